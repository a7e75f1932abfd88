// Command stripe shows stripe-go behind the client half: the SDK's own retries
// are off, its requests go through Transport, and the key is that of the
// application's intent instead of one that the SDK draws for each call.
//
//	go run ./examples/stripe
//
// It talks to a server in this process that keeps Stripe's promise about keys;
// with a test key of yours and without the URL it is the same code.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/stripe/stripe-go/v82"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/provider"
)

func main() {
	if err := run(context.Background(), os.Stdout); err != nil {
		log.Fatal(err)
	}
}

// newStripe returns stripe-go's client over Transport.
func newStripe(client *idem.Client, base http.RoundTripper, url string) *stripe.Client {
	backends := stripe.NewBackendsWithConfig(&stripe.BackendConfig{
		HTTPClient:        &http.Client{Transport: client.Transport(base)},
		MaxNetworkRetries: stripe.Int64(0), // retries are the client half's
		URL:               stripe.String(url),
		LeveledLogger:     &stripe.LeveledLogger{Level: stripe.LevelNull},
	})
	return stripe.NewClient("sk_test_123", stripe.WithBackends(backends))
}

// charge charges an order once, however often it is called. The intent is for
// the POST that creates the payment; whatever else the SDK sends under this
// context keeps out.
func charge(ctx context.Context, sc *stripe.Client, order string, cents int64) (*stripe.PaymentIntent, error) {
	ctx = idem.WithIntent(ctx, idem.Intent{ID: order, Match: func(r *http.Request) bool {
		return r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/payment_intents")
	}})
	return sc.V1PaymentIntents.Create(ctx, &stripe.PaymentIntentCreateParams{
		Amount: stripe.Int64(cents), Currency: stripe.String("eur"), Confirm: stripe.Bool(true),
	})
}

func run(ctx context.Context, out io.Writer) error {
	fake := newFakeStripe(disruption{lose: true}, disruption{status: 409, code: "idempotency_key_in_use"})
	defer fake.Close()
	client, err := idem.New(idem.Config{Scope: "shop/charge", Contract: provider.Stripe,
		Policy: idem.Policy{BaseDelay: time.Millisecond, MaxDelay: 5 * time.Millisecond}})
	if err != nil {
		return err
	}
	base := &http.Transport{}
	defer base.CloseIdleConnections()
	sc := newStripe(client, base, fake.URL)

	fmt.Fprintln(out, "the first reply is lost, and the second request meets the first one at work:")
	pi, err := charge(ctx, sc, "order-17", 4200)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "   %s %s; requests: %d, keys: %d, charges: %d\n", pi.ID, pi.Status, len(fake.keys), distinct(fake.keys), fake.charges)

	fmt.Fprintln(out, "the same order again, from anywhere:")
	pi, err = charge(ctx, sc, "order-17", 4200)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "   %s %s; charges: %d\n", pi.ID, pi.Status, fake.charges)

	fmt.Fprintln(out, "another amount under it:")
	_, err = charge(ctx, sc, "order-17", 9900)
	fmt.Fprintf(out, "   refused: %v; charges: %d\n", errors.Is(err, idem.ErrPayloadMismatch), fake.charges)

	fmt.Fprintln(out, "a 500, which Stripe stores: nobody knows, and it is said so:")
	fake.next = []disruption{{fail: true}}
	_, err = charge(ctx, sc, "order-18", 100)
	var failure *idem.Error
	if errors.As(err, &failure) {
		fmt.Fprintf(out, "   outcome: %v, attempts: %d, key kept: %v\n", failure.Outcome, failure.Attempts, failure.Key != "")
	}
	return nil
}

func distinct(keys []string) int {
	seen := map[string]bool{}
	for _, k := range keys {
		seen[k] = true
	}
	return len(seen)
}
