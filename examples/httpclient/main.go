// Command httpclient shows idem inside an ordinary http.Client. It starts a
// payment provider of its own, on a network that loses the first reply, and
// pays an order twice.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemtest"
	"github.com/idem-go/idem/keystore/memstore"
)

func main() {
	if err := run(os.Stdout); err != nil {
		log.Fatal(err)
	}
}

func run(out io.Writer) error {
	provider, err := idemtest.NewProvider(idemtest.ProviderConfig{})
	if err != nil {
		return err
	}
	ts := httptest.NewServer(provider)
	defer ts.Close()
	network := idemtest.NewTransport(ts.Client().Transport, idemtest.LoseReply)

	// A real program takes a store that outlives it.
	store, err := memstore.New(memstore.Config{})
	if err != nil {
		return err
	}
	client, err := idem.New(idem.Config{Store: store, Scope: "acme/charge"})
	if err != nil {
		return err
	}
	hc := &http.Client{Transport: client.Transport(network)}

	for range 2 {
		resp, err := charge(hc, ts.URL, "order-17", 1200)
		var failure *idem.Error
		switch {
		case errors.As(err, &failure) && failure.Outcome == idem.OutcomeUnknown:
			// Nobody knows whether it was charged. Ask again later, with the
			// same order: it goes out under the same key.
			return fmt.Errorf("park %s: %w", failure.ID, err)
		case err != nil:
			return err
		}
		_ = resp.Body.Close()
		report := idem.ReportOf(resp)
		fmt.Fprintf(out, "%s: %v, source %v, %d attempts\n", resp.Status, report.Outcome, report.Source, report.Attempts)
	}
	fmt.Fprintf(out, "charges:\n%s", provider.Ledger())
	return client.Shutdown(context.Background())
}

// charge is an ordinary request; its context says what it is meant to do once.
func charge(hc *http.Client, url, order string, amount int) (*http.Response, error) {
	ctx := idem.WithIntent(context.Background(), idem.Intent{ID: order})
	body := strings.NewReader(fmt.Sprintf(`{"reference": %q, "amount": %d, "currency": "EUR"}`, order, amount))
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/charges", body)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	return hc.Do(req)
}
