package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/storeurl"
)

// lease is how long a dead process keeps its claims. A real program leaves it
// at the default of 30 s; here every restart waits for it.
const lease = time.Second

// Order is what is checked out, Receipt what comes of it. That a step was
// refused is a result of the flow: an error would not settle a flow that was
// begun by a process that died, since of that one's attempt nothing is known.
type (
	Order   struct{ ID, Card, Address string }
	Receipt struct{ Reservation, Charge, Order, Refused string }
)

var errRefused = errors.New("refused")

// flow checks orders out.
type flow struct {
	url    string
	client *idem.Client
	http   *http.Client
}

// newFlow makes a flow whose steps are requests to the services at url.
func newFlow(store *storeurl.Opened, url string, wire func(http.RoundTripper) http.RoundTripper, base http.RoundTripper) (*flow, error) {
	client, err := idem.New(idem.Config{
		Store: store.Store, Scope: "shop/checkout", Lease: lease,
		// For idem.Resume, which goes on with what nobody asks for again.
		MaxPayload: 4 << 10,
		Policy:     idem.Policy{BaseDelay: 20 * time.Millisecond, AttemptTimeout: 20 * time.Second},
	})
	if err != nil {
		return nil, err
	}
	return &flow{url: url, client: client, http: &http.Client{Transport: wire(client.Transport(base))}}, nil
}

// checkout is one intent, named by the order. After a crash the same call goes
// on, under the same key: it waits until the dead process' lease is over and
// takes every step again, of which those that were taken are replayed.
func (f *flow) checkout(ctx context.Context, o Order) (Receipt, error) {
	res, err := idem.Do(ctx, f.client, idem.Intent{ID: o.ID, Payload: o}, func(ctx context.Context, key idem.Key) (Receipt, error) {
		return f.steps(ctx, key, o)
	})
	return res.Value, err
}

// steps is one attempt. It must take the same way each time that it runs: what
// it decides follows from the order and the steps' answers, which are kept, and
// never from the clock or from what has changed since.
func (f *flow) steps(ctx context.Context, key idem.Key, o Order) (r Receipt, err error) {
	if r.Reservation, err = f.step(ctx, key, "reserve", o); err != nil {
		return f.undo(ctx, key, o, err)
	}
	if r.Charge, err = f.step(ctx, key, "charge", o); err != nil {
		return f.undo(ctx, key, o, err, "release")
	}
	if r.Order, err = f.step(ctx, key, "order", o); err != nil {
		return f.undo(ctx, key, o, err, "refund", "release")
	}
	return r, nil
}

// undo takes back what was done before a step was refused. A step whose outcome
// is unknown is not undone: it may have happened, and the next attempt tells.
func (f *flow) undo(ctx context.Context, key idem.Key, o Order, why error, steps ...string) (Receipt, error) {
	if !errors.Is(why, errRefused) {
		return Receipt{}, why
	}
	for _, name := range steps {
		if _, err := f.step(ctx, key, name, o); err != nil {
			// Also if it was refused: the flow has ended only once all is
			// undone. Until then it is unresolved, and seen by whoever looks
			// after unresolved records.
			return Receipt{}, idem.Unknown(fmt.Errorf("%w; then: %w", why, err))
		}
	}
	return Receipt{Refused: why.Error()}, nil
}

// step takes one step under a key of its own. It makes one attempt: whoever
// repeats is the flow, as a whole.
func (f *flow) step(ctx context.Context, key idem.Key, name string, o Order) (string, error) {
	body, err := json.Marshal(o)
	if err != nil {
		return "", err
	}
	ctx = idem.WithIntent(ctx, idem.Intent{Key: key.Child(name)})
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, f.url+"/"+name+"/"+o.ID, bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := f.http.Do(req)
	if err != nil {
		return "", idem.Unknown(err) // of the flow: another attempt can help
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	switch outcome := idem.ReportOf(resp).Outcome; {
	case err != nil:
		return "", idem.Unknown(err)
	case outcome == idem.OutcomeRejected:
		return "", fmt.Errorf("%s: %w: %s", name, errRefused, bytes.TrimSpace(answer))
	case outcome != idem.OutcomeExecuted: // a 401, say: not now
		return "", idem.Unknown(fmt.Errorf("%s: %s", name, resp.Status))
	}
	return string(answer), nil
}
