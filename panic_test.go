package idem_test

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"testing/synctest"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/keystore"
)

// TestFlightPanics: B072, B073, B074. Every caller is told, and the intent is
// not stuck.
func TestFlightPanics(t *testing.T) {
	for name, tt := range map[string]struct {
		end func()
		is  error
	}{
		"B072 panic":  {func() { panic(errBoom) }, errBoom},
		"B073 Goexit": {runtime.Goexit, idem.ErrGoexit},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := newStore(t)
				c := newClient(t, idem.Config{Store: store, Policy: patient})
				g := newGated()
				call := func(ctx context.Context, key idem.Key) (int64, error) {
					<-g.gate
					tt.end()
					return 0, nil
				}
				all := []*caller[int64]{start(t, c, intent, call), start(t, c, intent, call), start(t, c, intent, call)}
				all[0].cancel() // B074: nobody is there to recover it
				synctest.Wait()
				close(g.gate)
				for _, b := range all[1:] {
					_, err := b.wait()
					wantOutcome(t, err, idem.OutcomeUnknown, tt.is)
				}
				if rec := record(t, store); !rec.Unresolved() {
					t.Errorf("record %+v", rec)
				}
				res, err := idem.Do(t.Context(), c, intent, succeed)
				wantSource(t, res, err, idem.SourceExecuted)
			})
		})
	}
}

func succeed(context.Context, idem.Key) (int64, error) { return 7, nil }

// TestHookPanics: a panic outside of the function, in a hook or in the store,
// neither kills the process nor leaves the record claimed.
func TestHookPanics(t *testing.T) {
	for name, cfg := range map[string]idem.Config{
		"Classify":        {Classify: func(error) (idem.Outcome, bool) { panic("classify") }},
		"Classify Goexit": {Classify: func(error) (idem.Outcome, bool) { runtime.Goexit(); return 0, false }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := newStore(t)
				cfg.Store = store
				c := newClient(t, cfg)
				_, err := idem.Do(t.Context(), c, intent, func(context.Context, idem.Key) (int64, error) { return 0, errBoom })
				wantOutcome(t, err, idem.OutcomeUnknown)
				if rec := record(t, store); !rec.Unresolved() {
					t.Errorf("record %+v", rec)
				}
				res, err := idem.Do(t.Context(), c, intent, succeed)
				wantSource(t, res, err, idem.SourceExecuted)
			})
		})
	}
	for _, method := range []string{"claim", "complete"} {
		t.Run("store "+method, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				panics := true
				store := &hookStore{Store: newStore(t), hook: func(m string, call func() error) error {
					if m == method && panics {
						panic("store")
					}
					return call()
				}}
				c := newClient(t, idem.Config{Store: store})
				_, err := idem.Do(t.Context(), c, intent, succeed)
				var p *idem.PanicError
				if wantOutcome(t, err, idem.OutcomeUnknown); !errors.As(err, &p) {
					t.Error(err)
				}
				panics = false
				res, err := idem.Do(t.Context(), c, intent, succeed)
				wantSource(t, res, err, idem.SourceExecuted)
				if record(t, store).State != keystore.Done {
					t.Error("not settled")
				}
			})
		})
	}
}

// A store that panics while a record is settled in the background, too.
func TestSettlingPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &hookStore{Store: newStore(t)}
		store.hook = func(method string, call func() error) error {
			switch {
			case method != "complete":
				return call()
			case store.count("complete") == 1:
				return errBoom
			}
			panic("store")
		}
		c := newClient(t, idem.Config{Store: store})
		res, err := idem.Do(t.Context(), c, intent, succeed)
		wantSource(t, res, err, idem.SourceExecuted)
		if err := c.Shutdown(t.Context()); err != nil || store.count("complete") != 2 {
			t.Errorf("%v, %v", err, store.noted())
		}
	})
}
