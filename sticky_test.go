package idem_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/keystore"
)

var (
	unknown     = idem.Unknown(errBoom)
	notExecuted = idem.NotExecuted(errBoom)
	rejected    = idem.Rejected(errBoom)
)

// TestSticky: what one attempt left unknown, no later failure makes known. Only
// success does.
func TestSticky(t *testing.T) {
	for _, tt := range []struct {
		name     string
		errs     []error
		outcome  idem.Outcome
		attempts int
		state    keystore.State // of the record
	}{
		{"B030 never sent", []error{notExecuted}, idem.OutcomeNotExecuted, 4, keystore.Free},
		{"B030 the last is unknown", []error{notExecuted, notExecuted, notExecuted, unknown}, idem.OutcomeUnknown, 4, keystore.Running},
		{"B030 an earlier one is unknown", []error{unknown, notExecuted}, idem.OutcomeUnknown, 4, keystore.Running},
		{"B030 one between is unknown", []error{notExecuted, unknown, notExecuted}, idem.OutcomeUnknown, 4, keystore.Running},
		{"unknown, then refused", []error{unknown, rejected}, idem.OutcomeUnknown, 2, keystore.Running},
		{"not executed, then refused", []error{notExecuted, rejected}, idem.OutcomeRejected, 2, keystore.Free},
		{"B031 unknown, then success", []error{unknown, nil}, idem.OutcomeExecuted, 2, keystore.Done},
		{"unknown, not executed, success", []error{unknown, notExecuted, nil}, idem.OutcomeExecuted, 3, keystore.Done},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := newStore(t)
				s := answers(tt.errs...)
				res, err := idem.Do(t.Context(), newClient(t, idem.Config{Store: store}), intent, s.call)
				if res.Outcome != tt.outcome || res.Attempts != tt.attempts || s.calls() != tt.attempts {
					t.Errorf("%v after %d attempts (%d calls), want %v after %d", res.Outcome, res.Attempts, s.calls(), tt.outcome, tt.attempts)
				}
				if rec := record(t, store); rec.State != tt.state {
					t.Errorf("record %v, want %v", rec.State, tt.state)
				}
				if tt.outcome == idem.OutcomeExecuted {
					wantSource(t, res, err, idem.SourceExecuted)
					return
				}
				if e := wantOutcome(t, err, tt.outcome, errBoom); e.Key != s.sent(t) || e.Key == "" {
					t.Errorf("the error has key %q, sent was %q", e.Key, s.sent(t))
				}
			})
		})
	}
}

// TestStickyRecord: what a call left unknown, sticks to its record, for every
// later call and client.
func TestStickyRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t)
		var keys []idem.Key
		do := func(errs ...error) (idem.Result[receipt], error) {
			s := answers(errs...)
			res, err := idem.Do(t.Context(), newClient(t, idem.Config{Store: store}), intent, s.call)
			keys = append(keys, s.sent(t))
			return res, err
		}
		for _, later := range []error{unknown, notExecuted, rejected, errBoom} {
			_, err := do(later)
			wantOutcome(t, err, idem.OutcomeUnknown, idem.ErrOutcomeUnknown)
			if rec := record(t, store); !rec.Unresolved() || rec.Generation != 0 {
				t.Fatalf("after %v: %+v", later, rec)
			}
		}
		res, err := do(nil)
		wantSource(t, res, err, idem.SourceExecuted)
		for _, k := range keys {
			if k != keys[0] || k != res.Key {
				t.Fatalf("B057: keys %v", keys)
			}
		}
	})
}

// TestDeadProcess: a process that dies between claim and settling leaves an
// unknown outcome, too; its successor sends the same key.
func TestDeadProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t)
		var died atomic.Bool
		process := &hookStore{Store: store, hook: func(_ string, call func() error) error {
			if died.Load() {
				return errBoom
			}
			return call()
		}}
		first := answers(errBoom)
		c := newClient(t, idem.Config{Store: process, Lease: time.Second})
		_, err := idem.Do(t.Context(), c, intent, func(ctx context.Context, key idem.Key) (receipt, error) {
			died.Store(true)
			return first.call(ctx, key)
		})
		wantOutcome(t, err, idem.OutcomeUnknown)
		time.Sleep(time.Minute)
		if rec := record(t, store); !rec.Unresolved() {
			t.Fatalf("%+v", rec)
		}
		second := answers(notExecuted)
		_, err = idem.Do(t.Context(), newClient(t, idem.Config{Store: store}), intent, second.call)
		wantOutcome(t, err, idem.OutcomeUnknown)
		if second.sent(t) != first.sent(t) {
			t.Errorf("B061: sent %s, then %s", first.sent(t), second.sent(t))
		}
	})
}
