package idem_test

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/keystore"
)

// Processes are clients that share a store and nothing else. With polls the
// store has no notification.
func eachStore(t *testing.T, test func(t *testing.T, store keystore.Store)) {
	t.Run("notified", func(t *testing.T) { synctest.Test(t, func(t *testing.T) { test(t, newStore(t)) }) })
	t.Run("polled", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { test(t, &hookStore{Store: newStore(t)}) })
	})
}

// TestProcesses: B085, two and more processes with one intent.
func TestProcesses(t *testing.T) {
	eachStore(t, func(t *testing.T, store keystore.Store) {
		const processes, callers = 8, 5
		var effects atomic.Int64
		var keys sync.Map
		var sources [4]atomic.Int64
		var all sync.WaitGroup
		for range processes {
			c := newClient(t, idem.Config{Store: store, RandomKeys: true})
			for range callers {
				all.Go(func() {
					res, err := idem.Do(t.Context(), c, intent, func(context.Context, idem.Key) (int64, error) {
						time.Sleep(time.Second)
						return effects.Add(1), nil
					})
					if err != nil || res.Value != 1 {
						t.Error(res, err)
					}
					keys.Store(res.Key, true)
					sources[res.Source].Add(1)
				})
			}
		}
		all.Wait()
		var distinct int
		keys.Range(func(any, any) bool { distinct++; return true })
		if effects.Load() != 1 || distinct != 1 || sources[idem.SourceExecuted].Load() != 1 {
			t.Errorf("%d effects, %d keys, %d executed", effects.Load(), distinct, sources[idem.SourceExecuted].Load())
		}
		if n := sources[idem.SourceReplayed].Load(); n != (processes-1)*callers {
			t.Errorf("%d replayed", n)
		}
	})
}

// TestOtherOwner: what a call meets while another process owns the intent.
func TestOtherOwner(t *testing.T) {
	owner := func(t *testing.T, store keystore.Store, errs ...error) (*caller[receipt], *gated) {
		g := newGated()
		s := answers(errs...)
		c := newClient(t, idem.Config{Store: store, Policy: idem.Policy{AttemptTimeout: time.Hour, Overall: time.Hour, Attempts: 1}})
		return start(t, c, intent, func(ctx context.Context, key idem.Key) (receipt, error) {
			g.call(ctx, key)
			return s.call(ctx, key)
		}), g
	}
	eachStore(t, func(t *testing.T, store keystore.Store) {
		t.Log("it succeeds: replayed")
		_, g := owner(t, store, nil)
		b := start(t, newClient(t, idem.Config{Store: store}), intent, never[receipt](t))
		time.Sleep(10 * time.Second)
		close(g.gate)
		res, err := b.wait()
		wantSource(t, res, err, idem.SourceReplayed)
	})
	eachStore(t, func(t *testing.T, store keystore.Store) {
		t.Log("it takes longer than the wait: in flight")
		a, g := owner(t, store, nil)
		began := time.Now()
		c := newClient(t, idem.Config{Store: store, Policy: idem.Policy{InFlightWait: 10 * time.Second}})
		_, err := idem.Do(t.Context(), c, intent, never[receipt](t))
		e := wantOutcome(t, err, idem.OutcomeInFlight, idem.ErrInFlight)
		if d := time.Since(began); d != 10*time.Second || e.RetryAfter <= 0 || e.RetryAfter > time.Second {
			t.Errorf("after %v, RetryAfter %v", d, e.RetryAfter)
		}
		close(g.gate)
		res, err := a.wait()
		wantSource(t, res, err, idem.SourceExecuted)
		if e.Key != res.Key {
			t.Errorf("told %s, sent was %s", e.Key, res.Key)
		}
	})
	eachStore(t, func(t *testing.T, store keystore.Store) {
		t.Log("another payload: refused at once")
		_, g := owner(t, store, nil)
		changed := intent
		changed.Payload = order{"o1", 43}
		began := time.Now()
		_, err := idem.Do(t.Context(), newClient(t, idem.Config{Store: store}), changed, never[receipt](t))
		wantOutcome(t, err, idem.OutcomeRejected, idem.ErrPayloadMismatch)
		if d := time.Since(began); d != 0 {
			t.Errorf("after %v", d)
		}
		close(g.gate)
		synctest.Wait()
	})
	eachStore(t, func(t *testing.T, store keystore.Store) {
		t.Log("it is refused: told so, and no key minted")
		a, g := owner(t, store, rejected)
		c := newClient(t, idem.Config{Store: store})
		b := start(t, c, intent, never[receipt](t))
		time.Sleep(5 * time.Second)
		close(g.gate)
		_, err := b.wait()
		wantOutcome(t, err, idem.OutcomeRejected, idem.ErrRejected)
		if rec := record(t, store); rec.State != keystore.Free || rec.Generation != 1 {
			t.Errorf("record %v, generation %d", rec.State, rec.Generation)
		}
		// Now the refusal is known, and who asks again means a new operation.
		s := answers(nil)
		res, err := idem.Do(t.Context(), c, intent, s.call)
		wantSource(t, res, err, idem.SourceExecuted)
		if _, err := a.wait(); failure(t, err).Key == s.sent(t) {
			t.Error("the refused key was sent again")
		}
	})
	eachStore(t, func(t *testing.T, store keystore.Store) {
		t.Log("it is not executed: the waiter does it under the same key")
		a, g := owner(t, store, notExecuted)
		s := answers(nil)
		b := start(t, newClient(t, idem.Config{Store: store}), intent, s.call)
		time.Sleep(5 * time.Second)
		close(g.gate)
		res, err := b.wait()
		wantSource(t, res, err, idem.SourceExecuted)
		if _, err := a.wait(); failure(t, err).Key != s.sent(t) {
			t.Error("another key")
		}
	})
	eachStore(t, func(t *testing.T, store keystore.Store) {
		t.Log("it ends unknown: the waiter takes over, and the unknown sticks")
		a, g := owner(t, store, errBoom)
		s := answers(rejected)
		b := start(t, newClient(t, idem.Config{Store: store}), intent, s.call)
		time.Sleep(5 * time.Second)
		close(g.gate)
		_, err := b.wait()
		wantOutcome(t, err, idem.OutcomeUnknown)
		if _, err := a.wait(); failure(t, err).Key != s.sent(t) {
			t.Error("another key")
		}
	})
}

// A call that found the record unresolved, and lost the race to take it over to
// one that was refused, mints no key either.
func TestRefusedWhileTakingOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := newStore(t)
		s := answers(errBoom)
		_, err := idem.Do(t.Context(), newClient(t, idem.Config{Store: mem}), intent, s.call)
		wantOutcome(t, err, idem.OutcomeUnknown)

		raced := false
		store := &hookStore{Store: mem, onClaim: func(cl *keystore.Claim) {
			if raced || cl.Status != keystore.Unresolved {
				return
			}
			raced = true
			r := cl.Record
			p := keystore.ClaimParams{ID: r.ID, Scope: r.Scope, Fingerprint: r.Fingerprint, Nonce: [16]byte{1}, Lease: time.Second, Begun: true, Takeover: true, Meta: []byte("{}")}
			won, err := mem.Claim(t.Context(), p)
			if err != nil || won.Status != keystore.Acquired {
				t.Fatal(won.Status, err)
			}
			meta, _ := json.Marshal(map[string]any{"v": 1, "g": 1, "k": "next"})
			if err := mem.Release(t.Context(), won.Owner, keystore.ReleaseParams{How: keystore.Reject, Meta: meta}); err != nil {
				t.Fatal(err)
			}
		}}
		_, err = idem.Do(t.Context(), newClient(t, idem.Config{Store: store}), intent, never[receipt](t))
		// It is told of the key that was refused.
		if e := wantOutcome(t, err, idem.OutcomeRejected); e.Key != idem.DeriveKey("intent", intent.Scope, intent.ID) {
			t.Errorf("refused under %q", e.Key)
		}
		if rec := record(t, mem); !raced || rec.State != keystore.Free || rec.Generation != 1 || keyIn(t, rec) != "next" {
			t.Errorf("record %+v", rec)
		}
	})
}

// B096: a record that vanishes under its owner is not taken for free.
func TestVanishedRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := newStore(t)
		g := newGated()
		a := start(t, newClient(t, idem.Config{Store: mem, Policy: patient}), intent, g.call)
		store := &vanishing{Store: mem}
		_, err := idem.Do(t.Context(), newClient(t, idem.Config{Store: store}), intent, never[int64](t))
		if e := failure(t, err); e.Outcome != idem.OutcomeInFlight && e.Outcome != idem.OutcomeUnknown {
			t.Error(err)
		}
		close(g.gate)
		res, err := a.wait()
		wantSource(t, res, err, idem.SourceExecuted)
	})
}

// vanishing is a store whose records can't be read any more.
type vanishing struct{ keystore.Store }

func (vanishing) Records(context.Context, keystore.Query) ([]keystore.Record, error) { return nil, nil }

// TestLease: the claim is renewed for as long as attempts go on.
func TestLease(t *testing.T) {
	eachStore(t, func(t *testing.T, store keystore.Store) {
		g := newGated()
		a := start(t, newClient(t, idem.Config{Store: store, Lease: time.Second, Policy: patient}), intent, g.call)
		other := newClient(t, idem.Config{Store: store, Policy: idem.Policy{InFlightWait: time.Second}})
		for range 10 {
			time.Sleep(time.Minute)
			if rec := record(t, store); rec.State != keystore.Running || rec.LeaseLeft <= 0 {
				t.Fatalf("lease %v", rec.LeaseLeft)
			}
			_, err := idem.Do(t.Context(), other, intent, never[int64](t))
			wantOutcome(t, err, idem.OutcomeInFlight)
		}
		close(g.gate)
		res, err := a.wait()
		wantSource(t, res, err, idem.SourceExecuted)
	})
}

// TestLeaseLost: who can't renew stops before the next send, and does not claim
// to know what became of the intent.
func TestLeaseLost(t *testing.T) {
	for name, last := range map[string]error{"not executed": notExecuted, "refused": rejected} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				mem := newStore(t)
				store := &hookStore{Store: mem, hook: func(method string, call func() error) error {
					if method == "renew" { // cut off from the store
						return errBoom
					}
					return call()
				}}
				g := newGated()
				o := &events{}
				sends := 0
				a := start(t, newClient(t, idem.Config{Store: store, Observer: o, Lease: time.Second, Policy: patient}), intent,
					func(ctx context.Context, key idem.Key) (int64, error) {
						sends++
						g.call(ctx, key)
						return 0, last
					})
				time.Sleep(10 * time.Second)
				res, err := idem.Do(t.Context(), newClient(t, idem.Config{Store: mem}), intent, succeed) // takes over
				wantSource(t, res, err, idem.SourceExecuted)
				close(g.gate)
				_, err = a.wait()
				e := wantOutcome(t, err, idem.OutcomeUnknown, errBoom)
				if sends != 1 || e.Key != res.Key {
					t.Errorf("%d sends, keys %s and %s", sends, e.Key, res.Key)
				}
				if rec := record(t, mem); rec.State != keystore.Done {
					t.Errorf("B143: the loser changed the record: %v", rec.State)
				}
				if ev := o.only(t); ev.Name != idem.EventFenced {
					t.Errorf("event %s", ev.Name)
				}
			})
		})
	}
	t.Run("told by the store", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			store := &hookStore{Store: newStore(t), hook: func(method string, call func() error) error {
				if method == "renew" {
					return keystore.ErrFenced
				}
				return call()
			}}
			sends := 0
			_, err := idem.Do(t.Context(), newClient(t, idem.Config{Store: store, Policy: patient}), intent, func(ctx context.Context, _ idem.Key) (int64, error) {
				sends++
				<-ctx.Done()
				return 0, errors.Join(context.Cause(ctx), idem.NotExecuted(errBoom))
			})
			wantOutcome(t, err, idem.OutcomeUnknown, idem.ErrLeaseLost, errBoom)
			if sends != 1 {
				t.Errorf("%d sends", sends)
			}
		})
	})
}
