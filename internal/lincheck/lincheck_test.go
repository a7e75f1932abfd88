package lincheck

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"github.com/idem-go/idem/keystore"
	"github.com/idem-go/idem/keystore/memstore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestSoundStore(t *testing.T) {
	Run(t, 8, 2500, newStore(t))
}

// Each of these stores is broken in one way, and must not pass.
func TestFaults(t *testing.T) {
	for name, broken := range map[string]func(keystore.Store) keystore.Store{
		"two winners": func(s keystore.Store) keystore.Store {
			return faulty{Store: s, claim: func(p keystore.ClaimParams, c *keystore.Claim, n int64) {
				if c.Status == keystore.InFlight && n%10 == 0 {
					c.Status, c.Owner = keystore.Acquired, keystore.Owner{ID: p.ID, Nonce: p.Nonce, Token: c.Record.Token}
				}
			}}
		},
		"token stays": func(s keystore.Store) keystore.Store {
			return faulty{Store: s, claim: func(_ keystore.ClaimParams, c *keystore.Claim, _ int64) {
				c.Record.Token = 1
				if c.Status == keystore.Acquired {
					c.Owner.Token = 1
				}
			}}
		},
		"result lost": func(s keystore.Store) keystore.Store {
			return faulty{Store: s, claim: func(_ keystore.ClaimParams, c *keystore.Claim, _ int64) { c.Record.Result = nil }}
		},
		"generation off": func(s keystore.Store) keystore.Store {
			return faulty{Store: s, claim: func(_ keystore.ClaimParams, c *keystore.Claim, _ int64) { c.Record.Generation = 0 }}
		},
		"unfenced": func(s keystore.Store) keystore.Store {
			return faulty{Store: s, settled: func(error) error { return nil }}
		},
		"fenced without reason": func(s keystore.Store) keystore.Store {
			return faulty{Store: s, settled: func(error) error { return keystore.ErrFenced }}
		},
	} {
		t.Run(name, func(t *testing.T) {
			failure := inspect(func(t testing.TB) { Run(t, 4, 500, broken(newStore(t))) })
			if !strings.Contains(failure, "is not linearizable") {
				t.Fatalf("the check of a broken store failed with %q, want it not linearizable", failure)
			}
		})
	}
}

var errLost = errors.New("connection lost")

// Calls of which nobody knows whether they were applied are allowed for, but a
// second winner among them is not.
func TestUnknownCalls(t *testing.T) {
	run := func(t testing.TB, s keystore.Store) {
		var h History
		w := NewWorker(&h, 0, s, IDs(50))
		for range 50 * callsPerRecord {
			if err := w.Call(t.Context()); err != nil && !errors.Is(err, errLost) {
				t.Fatal(err)
			}
		}
		h.Check(t)
	}
	everyFifth := func(err error) func() error {
		calls := 0
		return func() error {
			if calls++; calls%5 == 0 {
				return err
			}
			return nil
		}
	}
	t.Run("applied", func(t *testing.T) { run(t, faulty{Store: newStore(t), lose: everyFifth(errLost)}) })
	t.Run("not applied", func(t *testing.T) { run(t, unreachable{newStore(t), everyFifth(errLost)}) })
	t.Run("confirmed and not applied", func(t *testing.T) {
		failure := inspect(func(t testing.TB) { run(t, unreachable{newStore(t), everyFifth(errIgnored)}) })
		if !strings.Contains(failure, "is not linearizable") {
			t.Fatalf("the check failed with %q, want it not linearizable", failure)
		}
	})
}

// errIgnored makes unreachable confirm a Complete without applying it.
var errIgnored = errors.New("ignored")

func newStore(t testing.TB) keystore.Store {
	s, err := memstore.New(memstore.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// faulty changes answers. What is nil does not.
type faulty struct {
	keystore.Store
	claim   func(keystore.ClaimParams, *keystore.Claim, int64)
	settled func(error) error
	lose    func() error
}

var claims atomic.Int64

func (f faulty) Claim(ctx context.Context, p keystore.ClaimParams) (keystore.Claim, error) {
	c, err := f.Store.Claim(ctx, p)
	if err == nil && f.claim != nil {
		f.claim(p, &c, claims.Add(1))
	}
	if err := f.lost(); err != nil {
		return keystore.Claim{}, err
	}
	return c, err
}

func (f faulty) Complete(ctx context.Context, o keystore.Owner, p keystore.CompleteParams) error {
	return f.answer(f.Store.Complete(ctx, o, p))
}

func (f faulty) Release(ctx context.Context, o keystore.Owner, p keystore.ReleaseParams) error {
	return f.answer(f.Store.Release(ctx, o, p))
}

func (f faulty) answer(err error) error {
	if lost := f.lost(); lost != nil {
		return lost
	}
	if f.settled != nil {
		return f.settled(err)
	}
	return err
}

func (f faulty) lost() error {
	if f.lose == nil {
		return nil
	}
	return f.lose()
}

// unreachable fails some calls before they get to the store.
type unreachable struct {
	keystore.Store
	before func() error
}

func (u unreachable) Claim(ctx context.Context, p keystore.ClaimParams) (keystore.Claim, error) {
	if err := u.before(); err != nil && !errors.Is(err, errIgnored) {
		return keystore.Claim{}, err
	}
	return u.Store.Claim(ctx, p)
}

func (u unreachable) Complete(ctx context.Context, o keystore.Owner, p keystore.CompleteParams) error {
	switch err := u.before(); {
	case errors.Is(err, errIgnored):
		return nil
	case err != nil:
		return err
	}
	return u.Store.Complete(ctx, o, p)
}

// failing stands in for a test that has to fail.
type failing struct {
	testing.TB
	message string
}

func (f *failing) Helper()                  {}
func (f *failing) Context() context.Context { return context.Background() }
func (f *failing) Fatal(...any)             { runtime.Goexit() }
func (f *failing) Errorf(string, ...any)    {}
func (f *failing) Fatalf(format string, _ ...any) {
	f.message = format
	runtime.Goexit()
}

// inspect returns the message with which the check fails, "" if it passes.
func inspect(check func(testing.TB)) string {
	f := &failing{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		check(f)
	}()
	<-done
	return f.message
}
