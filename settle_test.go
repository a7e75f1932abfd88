package idem_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/keystore"
)

// TestClaimBeforeSend: the key is in the store before the first attempt, and
// the outcome is there before the caller has it.
func TestClaimBeforeSend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &hookStore{Store: newStore(t)}
		s := answers(unknown, nil)
		res, err := idem.Do(t.Context(), newClient(t, idem.Config{Store: store}), intent, func(ctx context.Context, key idem.Key) (receipt, error) {
			store.note("send")
			if rec := record(t, store.Store); rec.State != keystore.Running || !rec.Begun || keyIn(t, rec) != key {
				t.Errorf("record %+v when %s is sent", rec, key)
			}
			return s.call(ctx, key)
		})
		store.note("answered")
		wantSource(t, res, err, idem.SourceExecuted)
		if got, want := store.noted(), []string{"claim", "send", "send", "complete", "answered"}; !slices.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
	})
}

// TestSettling: how a call ends, what its record is then, and what the next
// call with the intent meets, in this process and in another one.
func TestSettling(t *testing.T) {
	mismatch := idem.Contract{Answers: []idem.Answer{{Status: 422, Means: idem.MeansMismatch}}}
	busy := idem.Config{Classify: func(error) (idem.Outcome, bool) { return idem.OutcomeInFlight, true }}
	sends := func(status int, header ...string) func(judged) error {
		return func(j judged) error {
			req, _ := http.NewRequestWithContext(j.ctx, "POST", "http://shop.test/charges", nil)
			if _, err := j.client.Transport(replies(status, header...)).RoundTrip(req); err != nil {
				return err
			}
			return &sdkError{status}
		}
	}
	returns := func(err error) func(judged) error { return func(judged) error { return err } }

	const (
		replayed = "replayed"                           // no network
		rotated  = "next key, another payload allowed"  // a new operation
		freed    = "same key, another payload allowed"  // nothing was done under it
		held     = "same key and payload, or a refusal" // unresolved
	)
	for _, tt := range []struct {
		name  string
		cfg   idem.Config
		call  func(judged) error
		ends  idem.Outcome
		state keystore.State
		gen   uint32
		next  string
	}{
		{"executed", idem.Config{}, returns(nil), idem.OutcomeExecuted, keystore.Done, 0, replayed},
		{"refused", idem.Config{}, returns(rejected), idem.OutcomeRejected, keystore.Free, 1, rotated},
		{"refused by status", idem.Config{}, sends(404), idem.OutcomeRejected, keystore.Free, 1, rotated},
		{"not executed, attempts spent", idem.Config{}, returns(notExecuted), idem.OutcomeNotExecuted, keystore.Free, 0, freed},
		{"a guard's 401", idem.Config{}, sends(401), idem.OutcomeNotExecuted, keystore.Free, 0, freed},
		{"a guard's 403", idem.Config{}, sends(403), idem.OutcomeNotExecuted, keystore.Free, 0, freed},
		{"unknown", idem.Config{}, returns(unknown), idem.OutcomeUnknown, keystore.Running, 0, held},
		{"any error", idem.Config{}, returns(errBoom), idem.OutcomeUnknown, keystore.Running, 0, held},
		{"panic", idem.Config{}, func(judged) error { panic("boom") }, idem.OutcomeUnknown, keystore.Running, 0, held},
		{"mismatch on the wire", idem.Config{Contract: mismatch}, sends(422), idem.OutcomeUnknown, keystore.Running, 0, held},
		{"in-flight wait spent", busy, returns(errBoom), idem.OutcomeInFlight, keystore.Running, 0, held},
		{"caller gone", idem.Config{}, func(j judged) error { j.cancel(); <-j.ctx.Done(); return j.ctx.Err() }, idem.OutcomeUnknown, keystore.Running, 0, held},
	} {
		for _, where := range []string{"same process", "other process"} {
			t.Run(fmt.Sprint(tt.name, "/", where), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					cfg := tt.cfg
					store := newStore(t)
					cfg.Store = store
					c := newClient(t, cfg)
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					var key idem.Key
					res, _ := idem.Do(ctx, c, intent, func(ctx context.Context, k idem.Key) (receipt, error) {
						key = k
						return receipt{"ch_1"}, tt.call(judged{t, c, cancel, ctx})
					})
					graceOver()
					rec := record(t, store)
					if res.Outcome != tt.ends || rec.State != tt.state || rec.Generation != tt.gen {
						t.Fatalf("ended %v, record %v of generation %d; want %v, %v, %d", res.Outcome, rec.State, rec.Generation, tt.ends, tt.state, tt.gen)
					}
					if (rec.State == keystore.Running) != rec.Unresolved() {
						t.Errorf("claimed for %v more", rec.LeaseLeft)
					}
					if (keyIn(t, rec) == key) != (tt.gen == 0) {
						t.Errorf("sent %s, the record keeps %s", key, keyIn(t, rec))
					}

					// The next one, which succeeds if it gets through.
					if where == "other process" {
						c = newClient(t, idem.Config{Store: store})
					}
					changed := intent
					changed.Payload = order{"o1", 43}
					if tt.next == held || tt.next == replayed {
						_, err := idem.Do(t.Context(), c, changed, never[receipt](t))
						wantOutcome(t, err, idem.OutcomeRejected, idem.ErrPayloadMismatch)
						changed = intent
					}
					s := answers(nil)
					next, err := idem.Do(t.Context(), c, changed, s.call)
					if tt.next == replayed {
						wantSource(t, next, err, idem.SourceReplayed)
						if s.calls() != 0 || next.Value != (receipt{"ch_1"}) || next.Key != key || next.Attempts != 0 {
							t.Errorf("%d calls, %+v", s.calls(), next)
						}
						return
					}
					wantSource(t, next, err, idem.SourceExecuted)
					if (s.sent(t) == key) != (tt.next != rotated) {
						t.Errorf("sent %s, then %s; want: %s", key, s.sent(t), tt.next)
					}
					if rec := record(t, store); rec.State != keystore.Done || keyIn(t, rec) != s.sent(t) || rec.Generation != tt.gen {
						t.Errorf("record %+v", rec)
					}
				})
			})
		}
	}
}

// A keyed reply from behind the server's key layer settles what was unknown.
func TestKeyedReplySettles(t *testing.T) {
	for _, tt := range []struct {
		name   string
		reply  roundTripper
		ends   idem.Outcome
		state  keystore.State
		source idem.Source
	}{
		{"replayed 201", replies(201, "Idempotent-Replayed", "true"), idem.OutcomeExecuted, keystore.Done, idem.SourceReplayed},
		{"replayed 400", replies(400, "Idempotent-Replayed", "true"), idem.OutcomeRejected, keystore.Free, 0},
		{"first 400", replies(400, "Idempotent-Replayed", "false"), idem.OutcomeRejected, keystore.Free, 0},
		{"400 from anywhere", replies(400), idem.OutcomeUnknown, keystore.Running, 0},
		{"401", replies(401), idem.OutcomeUnknown, keystore.Running, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := newStore(t)
				c := newClient(t, idem.Config{Store: store})
				_, err := idem.Do(t.Context(), c, intent, answers(unknown).call)
				wantOutcome(t, err, idem.OutcomeUnknown)
				res, _ := idem.Do(t.Context(), c, intent, func(ctx context.Context, _ idem.Key) (receipt, error) {
					req, _ := http.NewRequestWithContext(ctx, "POST", "http://shop.test/charges", nil)
					resp, err := c.Transport(tt.reply).RoundTrip(req)
					if err == nil && resp.StatusCode >= 300 {
						err = &sdkError{resp.StatusCode}
					}
					return receipt{}, err
				})
				if rec := record(t, store); res.Outcome != tt.ends || rec.State != tt.state || res.Source != tt.source {
					t.Errorf("%v from %v, record %v; want %v from %v, %v", res.Outcome, res.Source, rec.State, tt.ends, tt.source, tt.state)
				}
			})
		})
	}
}

// The age counts from the latest free start: what was proven never to have been
// sent has not aged.
func TestAgeRestarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t, idem.Config{Store: newStore(t), Contract: idem.Contract{Retention: time.Hour}})
		for range 3 {
			s := answers(notExecuted)
			_, err := idem.Do(t.Context(), c, intent, s.call)
			wantOutcome(t, err, idem.OutcomeNotExecuted)
			time.Sleep(45 * time.Minute)
		}
	})
}

// A renewal that is on its way when the outcome is found to be unknown does not
// bring the lease back to life: the next call need not wait for it.
func TestRenewalDuringAbandon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &hookStore{Store: newStore(t), hook: func(method string, call func() error) error {
			if method == "renew" {
				time.Sleep(time.Second)
			}
			return call()
		}}
		c := newClient(t, idem.Config{Store: store, Policy: idem.Policy{Attempts: 1, AttemptTimeout: time.Minute, Overall: time.Minute}})
		_, err := idem.Do(t.Context(), c, intent, func(context.Context, idem.Key) (receipt, error) {
			time.Sleep(10*time.Second + 500*time.Millisecond) // a third of the lease, and a bit
			return receipt{}, unknown
		})
		wantOutcome(t, err, idem.OutcomeUnknown)
		time.Sleep(time.Second)
		if rec := record(t, store); !rec.Unresolved() || store.count("renew") != 1 {
			t.Errorf("the claim stands for %v, after %v", rec.LeaseLeft, store.noted())
		}
	})
}
