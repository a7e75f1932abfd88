package idem_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/keystore/memstore"
)

// A process dies between the charge and its reply. After the restart, Resume
// finds what it has left and asks again, under the same key.
func ExampleResume() {
	ctx := context.Background()
	store, err := memstore.New(memstore.Config{}) // a durable one, in earnest
	if err != nil {
		fmt.Println(err)
		return
	}
	cfg := idem.Config{Store: store, Scope: "shop/charge", MaxPayload: 4096, Policy: idem.Policy{Attempts: 1}}
	charges := map[idem.Key]string{} // the provider's, by key

	before, err := idem.New(cfg)
	if err != nil {
		fmt.Println(err)
		return
	}
	charge := idem.Wrap(before, func(o order) idem.Intent { return idem.Intent{ID: o.ID} },
		func(_ context.Context, key idem.Key, o order) (receipt, error) {
			charges[key] = "ch_" + o.ID
			return receipt{}, idem.Unknown(errors.New("the reply is lost"))
		})
	_, err = charge(ctx, order{"o1", 42})
	fmt.Println(err)

	after, err := idem.New(cfg)
	if err != nil {
		fmt.Println(err)
		return
	}
	settled, err := idem.Resume(ctx, after, func(_ context.Context, key idem.Key, o order) (receipt, error) {
		return receipt{charges[key]}, nil // the provider replays
	})
	fmt.Println(settled, err, "charges:", len(charges))
	// Output:
	// idem: unknown after 1 attempt (key digest d9cb5834ea25): the reply is lost
	// 1 <nil> charges: 1
}

// The provider does not honour keys, so a charge of which nobody knows must not
// be sent again. But the provider's books can be asked what became of it. The
// same hook is asked where a provider may have forgotten a key.
func ExampleResolution() {
	lookup := func(ctx context.Context, p idem.Pending) (idem.Resolution, error) {
		charge, found, err := findCharge(ctx, p.ID)
		switch {
		case err != nil:
			return idem.Resolution{}, err // still unknown: it is asked again
		case !found:
			return idem.Resolution{Outcome: idem.OutcomeNotExecuted}, nil
		}
		return idem.Resolution{Outcome: idem.OutcomeExecuted, Value: charge}, nil
	}
	store, err := memstore.New(memstore.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	client, err := idem.New(idem.Config{
		Store: store, Scope: "shop/charge", Recover: lookup,
		Contract: idem.Keyless,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	in := idem.Intent{ID: "o1", Payload: order{"o1", 42}}
	lost := func(context.Context, idem.Key) (receipt, error) {
		return receipt{}, idem.Unknown(errors.New("the reply is lost"))
	}
	_, err = idem.Do(context.Background(), client, in, lost)
	fmt.Println(errors.Is(err, idem.ErrOutcomeUnknown))
	res, err := idem.Do(context.Background(), client, in, lost)
	fmt.Println(res.Value, res.Source, err)
	// Output:
	// true
	// {ch_o1} replayed <nil>
}

// findCharge asks the provider's books.
func findCharge(_ context.Context, id string) (receipt, bool, error) {
	return receipt{"ch_" + id}, true, nil
}
