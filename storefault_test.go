package idem_test

import (
	"context"
	"encoding/json"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/keystore"
)

// broken is a store of which one method fails until it is mended.
func broken(t *testing.T, method string) (s *hookStore, mend func()) {
	var mended atomic.Bool
	return &hookStore{Store: newStore(t), hook: func(m string, call func() error) error {
		if m == method && !mended.Load() {
			return errBoom
		}
		return call()
	}}, func() { mended.Store(true) }
}

func TestStoreDownAtClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, mend := broken(t, "claim")
		c := newClient(t, idem.Config{Store: store})
		_, err := idem.Do(t.Context(), c, intent, never[receipt](t))
		e := wantOutcome(t, err, idem.OutcomeNotExecuted, idem.ErrStore, errBoom)
		if store.count("claim") != 3 || e.Attempts != 0 || len(records(t, store)) != 0 {
			t.Errorf("B102: %v, %d records", store.noted(), len(records(t, store)))
		}
		mend()
		s := answers(nil)
		res, err := idem.Do(t.Context(), c, intent, s.call)
		wantSource(t, res, err, idem.SourceExecuted)
		if e.Key != s.sent(t) {
			t.Errorf("told %s, sent %s", e.Key, s.sent(t))
		}
	})
}

// A store that never answers ends the call as one that fails.
func TestStoreHangsAtClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := hanging{newStore(t)}
		began := time.Now()
		_, err := idem.Do(t.Context(), newClient(t, idem.Config{Store: store}), intent, never[receipt](t))
		wantOutcome(t, err, idem.OutcomeNotExecuted, idem.ErrStore)
		if d := time.Since(began); d > 20*time.Second {
			t.Errorf("after %v", d)
		}
	})
}

type hanging struct{ keystore.Store }

func (hanging) Claim(ctx context.Context, _ keystore.ClaimParams) (keystore.Claim, error) {
	<-ctx.Done()
	return keystore.Claim{}, ctx.Err()
}

// B093: the claim was granted and the answer lost.
func TestClaimAnswerLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lost := 2
		store := &hookStore{Store: newStore(t), hook: func(method string, call func() error) error {
			err := call()
			if method == "claim" && lost > 0 {
				lost--
				return errBoom
			}
			return err
		}}
		s := answers(rejected)
		_, err := idem.Do(t.Context(), newClient(t, idem.Config{Store: store}), intent, s.call)
		wantOutcome(t, err, idem.OutcomeRejected) // not Unknown: it knows its own claim
		if s.calls() != 1 || store.count("claim") != 3 {
			t.Errorf("%d calls, %v", s.calls(), store.noted())
		}
	})
}

// B093: where the answer stays lost, nothing was sent, and the claim must not
// stay behind: without it nobody could tell whether a keyless server was asked.
func TestClaimAnswerStaysLost(t *testing.T) {
	for _, slow := range []time.Duration{0, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			lost := 4
			store := &hookStore{Store: newStore(t), hook: func(method string, call func() error) error {
				err := call()
				if method == "claim" && lost > 0 {
					lost--
					return errBoom
				}
				return err
			}}
			s := answers(nil)
			c := newClient(t, idem.Config{Store: store, Contract: idem.Keyless, Policy: idem.Policy{BaseDelay: slow, MaxDelay: slow}})
			_, err := idem.Do(t.Context(), c, intent, s.call)
			wantOutcome(t, err, idem.OutcomeNotExecuted, idem.ErrStore)
			if s.calls() != 0 {
				t.Error("it was sent")
			}
			res, err := idem.Do(t.Context(), c, intent, s.call)
			wantSource(t, res, err, idem.SourceExecuted)
		})
	}
}

// A store that stays down keeps the next call waiting for a moment only.
func TestClaimIsNotUndoneForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &hookStore{Store: newStore(t), hook: func(string, func() error) error { return errBoom }}
		c := newClient(t, idem.Config{Store: store})
		began := time.Now()
		for range 2 {
			_, err := idem.Do(t.Context(), c, intent, answers(nil).call)
			wantOutcome(t, err, idem.OutcomeNotExecuted, idem.ErrStore)
		}
		if took := time.Since(began); took > 7*time.Second {
			t.Errorf("two calls took %v", took)
		}
		_ = c.Shutdown(t.Context())
	})
}

// TestStoreDownAtSettle: the callers get what is true; the record follows when
// the store is back.
func TestStoreDownAtSettle(t *testing.T) {
	for _, tt := range []struct {
		method string
		err    error
		ends   idem.Outcome
		state  keystore.State
	}{
		{"complete", nil, idem.OutcomeExecuted, keystore.Done},
		{"release reject", rejected, idem.OutcomeRejected, keystore.Free},
		{"release forget", notExecuted, idem.OutcomeNotExecuted, keystore.Free},
		{"release abandon", errBoom, idem.OutcomeUnknown, keystore.Running},
	} {
		t.Run(tt.method, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, mend := broken(t, tt.method)
				c := newClient(t, idem.Config{Store: store})
				s := answers(tt.err)
				res, err := idem.Do(t.Context(), c, intent, s.call)
				if res.Outcome != tt.ends || (err == nil) != (tt.err == nil) {
					t.Fatalf("B092: %v, %v", res, err)
				}
				sent := s.sent(t)
				time.Sleep(time.Minute) // over two leases: it is renewed meanwhile
				// What is given up needs no renewal: it is unresolved by itself.
				if rec := record(t, store); rec.State != keystore.Running || (rec.LeaseLeft <= 0) != (tt.ends == idem.OutcomeUnknown) {
					t.Fatalf("record %v, lease %v", rec.State, rec.LeaseLeft)
				}
				mend()
				time.Sleep(10 * time.Second)
				synctest.Wait()
				if rec := record(t, store); rec.State != tt.state || rec.State == keystore.Running && !rec.Unresolved() {
					t.Errorf("record %v, lease %v; want %v", rec.State, rec.LeaseLeft, tt.state)
				}
				if tt.err == nil {
					res, err := idem.Do(t.Context(), newClient(t, idem.Config{Store: store}), intent, never[receipt](t))
					if wantSource(t, res, err, idem.SourceReplayed); res.Key != sent {
						t.Errorf("key %s, sent %s", res.Key, sent)
					}
				}
			})
		})
	}
}

// While the record can't be settled, the result is given to whoever asks, and
// nothing is sent.
func TestJoinWhileSettling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, mend := broken(t, "complete")
		c := newClient(t, idem.Config{Store: store})
		res, err := idem.Do(t.Context(), c, intent, succeed)
		wantSource(t, res, err, idem.SourceExecuted)
		for range 3 {
			time.Sleep(time.Second)
			res, err = idem.Do(t.Context(), c, intent, never[int64](t))
			if wantSource(t, res, err, idem.SourceJoined); res.Value != 7 {
				t.Error(res)
			}
		}
		mend()
		if err := c.Shutdown(t.Context()); err != nil || record(t, store).State != keystore.Done {
			t.Errorf("Shutdown did not wait for the record: %v", err)
		}
	})
}

// A record that can never be settled is given up: unresolved when its lease has
// run out.
func TestNeverSettled(t *testing.T) {
	for _, shutdown := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			store, mend := broken(t, "complete")
			c := newClient(t, idem.Config{Store: store})
			res, err := idem.Do(t.Context(), c, intent, succeed)
			wantSource(t, res, err, idem.SourceExecuted)
			if shutdown {
				if err := c.Shutdown(after(t, time.Second)); !errors.Is(err, context.DeadlineExceeded) {
					t.Error(err)
				}
				synctest.Wait()
				time.Sleep(30 * time.Second)
			} else {
				time.Sleep(4*30*time.Second + 40*time.Second)
			}
			tried := store.count("complete")
			time.Sleep(time.Hour)
			if store.count("complete") != tried || !record(t, store).Unresolved() {
				t.Errorf("still tried, or record %+v", record(t, store))
			}
			mend()
			again, err := idem.Do(t.Context(), newClient(t, idem.Config{Store: store}), intent, succeed)
			if wantSource(t, again, err, idem.SourceExecuted); again.Key != res.Key {
				t.Errorf("keys %s, %s", res.Key, again.Key)
			}
		})
	}
}

// A settling call whose answer was lost is repeated, and is success.
func TestSettleAnswerLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lost := true
		store := &hookStore{Store: newStore(t), hook: func(method string, call func() error) error {
			err := call()
			if method == "complete" && lost {
				lost = false
				return errBoom
			}
			return err
		}}
		o := &events{}
		c := newClient(t, idem.Config{Store: store, Observer: o})
		res, err := idem.Do(t.Context(), c, intent, succeed)
		wantSource(t, res, err, idem.SourceExecuted)
		if err := c.Shutdown(t.Context()); err != nil || record(t, store).State != keystore.Done || o.only(t).Name != idem.EventExecuted {
			t.Error(err)
		}
	})
}

// TestCorruptRecord: what can't be read may tell of an execution. It is never
// replaced by a fresh key.
func TestCorruptRecord(t *testing.T) {
	meta := func(version, generation int, key string) []byte {
		b, _ := json.Marshal(map[string]any{"v": version, "g": generation, "k": key})
		return b
	}
	for _, tt := range []struct {
		name string
		err  error  // of the claim
		meta []byte // in the record
		is   error
	}{
		{"B082 the store says so", keystore.ErrCorrupt, nil, keystore.ErrCorrupt},
		{"B094 newer format", keystore.ErrFormat, nil, keystore.ErrFormat},
		{"no meta", nil, []byte{}, keystore.ErrCorrupt},
		{"B082 zeros", nil, make([]byte, 100), keystore.ErrCorrupt},
		{"newer meta", nil, meta(2, 0, "k"), keystore.ErrFormat},
		{"another generation's key", nil, meta(1, 7, "k"), keystore.ErrCorrupt},
		{"no key", nil, meta(1, 0, ""), idem.ErrInvalidKey},
		{"invalid key", nil, meta(1, 0, "a\r\nb"), idem.ErrInvalidKey},
	} {
		for _, before := range []error{errBoom, nil} { // unresolved and done records
			t.Run(tt.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					mem := newStore(t)
					idem.Do(t.Context(), newClient(t, idem.Config{Store: mem}), intent, answers(before).call)
					was := record(t, mem)
					store := &hookStore{Store: mem, onClaim: func(cl *keystore.Claim) { cl.Record.Meta = tt.meta }}
					if tt.err != nil {
						store.hook = func(string, func() error) error { return tt.err }
					}
					_, err := idem.Do(t.Context(), newClient(t, idem.Config{Store: store}), intent, never[receipt](t))
					wantOutcome(t, err, idem.OutcomeUnknown, tt.is)
					if store.count("claim") != 1 {
						t.Errorf("%v: a corrupt record is no better at the next try", store.noted())
					}
					if now := record(t, mem); now.State != was.State || now.Generation != 0 || now.State == keystore.Running && !now.Unresolved() {
						t.Errorf("record %+v, was %+v", now, was)
					}
				})
			})
		}
	}
	t.Run("fresh claim with a corrupt meta", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			mem := newStore(t)
			store := &hookStore{Store: mem, onClaim: func(cl *keystore.Claim) { cl.Record.Meta = nil }}
			_, err := idem.Do(t.Context(), newClient(t, idem.Config{Store: store}), intent, never[receipt](t))
			wantOutcome(t, err, idem.OutcomeUnknown, keystore.ErrCorrupt)
			if rec := record(t, mem); !rec.Unresolved() {
				t.Errorf("the claim stands for %v", rec.LeaseLeft)
			}
		})
	})
	t.Run("an answer that is no status", func(t *testing.T) {
		store := &hookStore{Store: newStore(t), onClaim: func(cl *keystore.Claim) { cl.Status = 99 }}
		_, err := idem.Do(t.Context(), newClient(t, idem.Config{Store: store}), intent, never[receipt](t))
		wantOutcome(t, err, idem.OutcomeUnknown, idem.ErrStore)
	})
}

// While a failed call's record can't be settled there is nothing to share: who
// comes waits for the record, and continues from it.
func TestWaitWhileSettling(t *testing.T) {
	for _, tt := range []struct {
		method  string
		err     error
		sameKey bool
	}{{"release forget", notExecuted, true}, {"release reject", rejected, false}, {"release abandon", errBoom, true}} {
		t.Run(tt.method, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, mend := broken(t, tt.method)
				c := newClient(t, idem.Config{Store: store})
				first, second := answers(tt.err), answers(nil)
				idem.Do(t.Context(), c, intent, first.call)
				_, err := idem.Do(after(t, time.Second), c, intent, never[receipt](t))
				wantOutcome(t, err, idem.OutcomeUnknown, context.DeadlineExceeded)
				b := start(t, c, intent, second.call)
				time.Sleep(10 * time.Second)
				if second.calls() != 0 {
					t.Error("sent before the record was settled")
				}
				mend()
				res, err := b.wait()
				wantSource(t, res, err, idem.SourceExecuted)
				if (second.sent(t) == first.sent(t)) != tt.sameKey {
					t.Errorf("sent %s, then %s", first.sent(t), second.sent(t))
				}
			})
		})
	}
}

// Down at the claim and told to send all the same: the key is the derived one,
// what the record may know is not forgotten, and the observer learns of it.
func TestFailOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, mend := broken(t, "claim")
		seen := &events{}
		c := newClient(t, idem.Config{Store: store, FailOpen: true, Observer: seen})
		s := answers(nil)
		res, err := idem.Do(t.Context(), c, intent, s.call)
		wantSource(t, res, err, idem.SourceExecuted)
		if s.sent(t) != idem.DeriveKey("intent", intent.Scope, intent.ID) || len(records(t, store)) != 0 {
			t.Errorf("sent %s, %d records", s.sent(t), len(records(t, store)))
		}
		if got := seen.take(); len(got) != 1 || got[0].Name != idem.EventStoreError || !errors.Is(got[0].Err, errBoom) || got[0].Outcome != idem.OutcomeExecuted {
			t.Errorf("events %+v", got)
		}
		// Nothing that is not behind the key layer proves what an earlier
		// call may have done.
		_, err = idem.Do(t.Context(), c, intent, answers(idem.Rejected(errBoom)).call)
		wantOutcome(t, err, idem.OutcomeUnknown, errBoom)
		mend()
		again := answers(nil)
		res, err = idem.Do(t.Context(), c, intent, again.call)
		wantSource(t, res, err, idem.SourceExecuted)
		if res.Key != s.sent(t) {
			t.Errorf("then under %s", res.Key)
		}
	})
}

// A record that can't be read is no outage: it may tell of an execution.
func TestFailOpenCorrupt(t *testing.T) {
	store := &hookStore{Store: newStore(t), hook: func(string, func() error) error { return keystore.ErrCorrupt }}
	_, err := idem.Do(t.Context(), newClient(t, idem.Config{Store: store, FailOpen: true}), intent, never[receipt](t))
	wantOutcome(t, err, idem.OutcomeUnknown, keystore.ErrCorrupt)
}
