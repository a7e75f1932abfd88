// Package lincheck checks that a keystore.Store is linearizable: that what many
// workers were answered at once could have been answered one after another,
// each call in an instant between its beginning and its end, by the contract of
// package keystore.
//
// The contract is told by a model that knows no time: leases end by Abandon
// alone. So calls of the histories that are checked must not wait for a lease
// or a retention to end, nor purge.
package lincheck

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/idem-go/idem/keystore"
)

// checkTimeout bounds the check of one record's history.
const checkTimeout = 30 * time.Second

// never is the end of a call of which nobody knows whether it was applied.
const never = math.MaxInt64

// History is what was asked of stores and what they answered. The zero History
// is empty and ready; it is safe for concurrent use. The stores must share
// their records, which must be new when the history begins.
type History struct {
	// turns counts the calls of workers, which go through the records together.
	turns atomic.Int64

	mu    sync.Mutex
	start time.Time
	calls map[[32]byte][]porcupine.Operation
}

// Store returns a store that writes down the calls to s, of a worker with this
// number. A call that fails with a backend's error may have been applied or
// not, also later on.
func (h *History) Store(s keystore.Store, worker int) keystore.Store {
	return recorder{s, h, worker}
}

// Len returns how many calls the history has.
func (h *History) Len() (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, calls := range h.calls {
		n += len(calls)
	}
	return n
}

// Check fails the test unless the history of every record is linearizable.
func (h *History) Check(t testing.TB) {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	for id, calls := range h.calls {
		if porcupine.CheckOperationsTimeout(model, calls, checkTimeout) == porcupine.Ok {
			continue
		}
		slices.SortFunc(calls, func(a, b porcupine.Operation) int { return int(a.Call - b.Call) })
		var b strings.Builder
		for _, c := range calls {
			fmt.Fprintf(&b, "\n%12d–%-20d worker %d: %v", c.Call, c.Return, c.ClientId, describe(c.Input, c.Output))
		}
		t.Fatalf("lincheck: the history of record %x is not linearizable:%s", id[:4], b.String())
	}
}

// begin returns the function that writes the call down when it has ended.
func (h *History) begin(worker int, in input) func(output) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.calls == nil {
		h.calls, h.start = map[[32]byte][]porcupine.Operation{}, time.Now()
	}
	call := int64(time.Since(h.start))
	return func(out output) {
		end := int64(time.Since(h.start))
		if out.unknown() {
			end = never
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		h.calls[in.id] = append(h.calls[in.id], porcupine.Operation{
			ClientId: worker, Input: in, Call: call, Output: out, Return: end,
		})
	}
}

// input is a call; the fields that its operation has are set.
type input struct {
	op       string
	id       [32]byte
	owner    keystore.Owner
	claim    keystore.ClaimParams
	renew    keystore.RenewParams
	complete keystore.CompleteParams
	release  keystore.ReleaseParams
}

// output is the answer.
type output struct {
	claim   keystore.Claim
	records []keystore.Record
	err     error
}

func (o output) unknown() bool { return o.err != nil && !errors.Is(o.err, keystore.ErrFenced) }

// recorder writes the calls to a store down.
type recorder struct {
	keystore.Store
	h      *History
	worker int
}

func (r recorder) Claim(ctx context.Context, p keystore.ClaimParams) (keystore.Claim, error) {
	end := r.h.begin(r.worker, input{op: "claim", id: p.ID, claim: p})
	c, err := r.Store.Claim(ctx, p)
	end(output{claim: c, err: err})
	return c, err
}

func (r recorder) Renew(ctx context.Context, o keystore.Owner, p keystore.RenewParams) error {
	end := r.h.begin(r.worker, input{op: "renew", id: o.ID, owner: o, renew: p})
	err := r.Store.Renew(ctx, o, p)
	end(output{err: err})
	return err
}

func (r recorder) Complete(ctx context.Context, o keystore.Owner, p keystore.CompleteParams) error {
	end := r.h.begin(r.worker, input{op: "complete", id: o.ID, owner: o, complete: p})
	err := r.Store.Complete(ctx, o, p)
	end(output{err: err})
	return err
}

func (r recorder) Release(ctx context.Context, o keystore.Owner, p keystore.ReleaseParams) error {
	end := r.h.begin(r.worker, input{op: "release", id: o.ID, owner: o, release: p})
	err := r.Store.Release(ctx, o, p)
	end(output{err: err})
	return err
}

// Records writes down queries for one ID only.
func (r recorder) Records(ctx context.Context, q keystore.Query) ([]keystore.Record, error) {
	if q.ID == nil || q.Scope != nil || q.Unresolved || q.After != [32]byte{} {
		return r.Store.Records(ctx, q)
	}
	end := r.h.begin(r.worker, input{op: "read", id: *q.ID})
	recs, err := r.Store.Records(ctx, q)
	end(output{records: recs, err: err})
	return recs, err
}
