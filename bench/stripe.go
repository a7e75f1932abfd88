package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"

	"github.com/stripe/stripe-go/v82"
)

// overStripe charges through stripe-go, which makes keys and retries by itself,
// at a server in this process that takes whatever comes.
func overStripe(s *stage) (func(int) error, error) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"id":"pi_3MtwBwLkdIwHu7ix28a3tqPa","object":"payment_intent","amount":4200,"currency":"eur","status":"succeeded"}`)
	}))
	s.onEnd(server.Close)
	backends := stripe.NewBackendsWithConfig(&stripe.BackendConfig{
		HTTPClient: &http.Client{Transport: connections(s)}, URL: stripe.String(server.URL),
		LeveledLogger: &stripe.LeveledLogger{Level: stripe.LevelNull}, EnableTelemetry: stripe.Bool(false),
	})
	client := stripe.NewClient("sk_test_123", stripe.WithBackends(backends))
	return func(int) error {
		pi, err := client.V1PaymentIntents.Create(s, &stripe.PaymentIntentCreateParams{
			Amount: stripe.Int64(4200), Currency: stripe.String("eur"), Confirm: stripe.Bool(true),
		})
		if err == nil && pi.Status != stripe.PaymentIntentStatusSucceeded {
			err = fmt.Errorf("the payment is %q", pi.Status)
		}
		return err
	}, nil
}
