// Command decorator shows idem around a function: here one that charges through
// a payment SDK, which takes keys. It starts a provider of its own, on a
// network that loses the first reply.
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

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemtest"
	"github.com/idem-go/idem/keystore/memstore"
)

// Order is what is paid, Receipt what comes of it.
type (
	Order   struct{ ID, Card string }
	Receipt struct{ ChargeID string }
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
	network := &idemtest.Transport{Base: ts.Client().Transport, Plan: loseFirstReply()}
	sdk := &SDK{URL: ts.URL, HTTP: &http.Client{Transport: network}}

	// A real program takes a store that outlives it.
	store, err := memstore.New(memstore.Config{})
	if err != nil {
		return err
	}
	client, err := idem.New(idem.Config{Store: store, Scope: "acme/charge", Classify: classify})
	if err != nil {
		return err
	}
	charge := idem.Wrap(client,
		func(o Order) idem.Intent { return idem.Intent{ID: o.ID} },
		func(ctx context.Context, key idem.Key, o Order) (Receipt, error) {
			id, err := sdk.Charge(ctx, string(key), o.ID, o.Card)
			return Receipt{ChargeID: id}, err
		})

	for _, o := range []Order{{"order-17", "4242"}, {"order-17", "4242"}, {"order-18", idemtest.DeclinedCard}} {
		receipt, err := charge(context.Background(), o)
		fmt.Fprintln(out, o.ID, receipt, "rejected:", errors.Is(err, idem.ErrRejected))
	}
	fmt.Fprintf(out, "charges:\n%s", provider.Ledger())
	return client.Shutdown(context.Background())
}

// classify says what the SDK's errors prove. A decline is definite; idem knows
// network errors and timeouts itself.
func classify(err error) (idem.Outcome, bool) {
	var e *SDKError
	if errors.As(err, &e) && e.Status == http.StatusPaymentRequired {
		return idem.OutcomeRejected, true
	}
	return idem.OutcomeUnknown, false
}
