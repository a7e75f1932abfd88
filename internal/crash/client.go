package crash

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/idem-go/idem"
)

// order is an intent's payload.
type order struct{ ID string }

// told is what a caller was told of an intent.
type told struct {
	ID      string
	Outcome idem.Outcome
	Answer  answer
	Err     string
}

// final tells whether there is no more to be told.
func (t told) final() bool {
	return t.Outcome == idem.OutcomeExecuted || t.Outcome == idem.OutcomeRejected
}

// runClient is the main function of the client's process: first what the
// process before it has left, then what the control hands out.
func runClient(ctx context.Context, storeURL, controlURL string, servers []string) error {
	store, err := openStore(ctx, storeURL)
	if err != nil {
		return err
	}
	client, err := idem.New(idem.Config{
		Store: store.Store, Scope: "crash", MaxPayload: 1000, Lease: lease,
		Policy: idem.Policy{Attempts: 3, AttemptTimeout: 3 * time.Second, Overall: 8 * time.Second, BaseDelay: 20 * time.Millisecond, MaxDelay: 500 * time.Millisecond,
			RetryBudget: 1 << 20, InFlightWait: 3 * time.Second},
	})
	if err != nil {
		return err
	}
	hc := &http.Client{Transport: client.Transport(&http.Transport{
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, network, servers[rand.N(len(servers))])
		},
		MaxConnsPerHost: 64, IdleConnTimeout: time.Second,
	})}
	place := func(ctx context.Context, _ idem.Key, o order) (answer, error) { return placeOrder(ctx, hc, o) }
	_, resumeErr := idem.Resume(ctx, client, place)
	if resumeErr != nil {
		fmt.Println("resume:", resumeErr) // they are handed out again
	}
	do := idem.WrapResult(client, func(o order) idem.Intent { return idem.Intent{ID: o.ID} }, place)
	var workers sync.WaitGroup
	for range 16 { // enough, while some wait for what a dead owner has
		workers.Go(func() {
			for {
				var o order
				if err := call(ctx, controlURL+"/next", nil, &o); err != nil || o.ID == "" {
					return
				}
				res, err := do(ctx, o)
				t := told{ID: o.ID, Outcome: res.Outcome, Answer: res.Value}
				if err != nil {
					t.Err = err.Error()
				}
				if err := call(ctx, controlURL+"/told", t, nil); err != nil {
					return
				}
			}
		})
	}
	workers.Wait()
	return client.Shutdown(ctx) // records that could not be settled at once are now
}

func placeOrder(ctx context.Context, hc *http.Client, o order) (a answer, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://orders.example/orders/"+o.ID, strings.NewReader(o.ID))
	if err != nil {
		return a, err
	}
	resp, err := hc.Do(req)
	if err != nil {
		return a, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return a, &idem.ResponseError{StatusCode: resp.StatusCode}
	}
	return a, json.NewDecoder(resp.Body).Decode(&a)
}

// call asks the control: in goes out as JSON, the answer comes into out.
func call(ctx context.Context, url string, in, out any) error {
	b, err := json.Marshal(in)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(b))
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return errors.New(resp.Status)
	}
	if out == nil {
		return nil
	}
	return json.NewDecoder(resp.Body).Decode(out)
}
