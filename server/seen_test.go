package server_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/keystore"
	"github.com/idem-go/idem/keystore/memstore"
	"github.com/idem-go/idem/server"
)

// A duplicate that has seen the first one running must not run beside it.
func TestFailOpenAfterInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var down atomic.Bool
		store := &hooked{Store: newStore(t)}
		store.claim = func(p keystore.ClaimParams, next func() (keystore.Claim, error)) (keystore.Claim, error) {
			if down.Load() {
				return keystore.Claim{}, errDown
			}
			return next()
		}
		running, release := make(chan struct{}), make(chan struct{})
		c := &counter{do: func(w http.ResponseWriter, r *http.Request, n int) {
			if n == 1 {
				close(running)
				<-release
			}
			w.WriteHeader(201)
		}}
		seen := &events{}
		h := newServer(t, server.Config{Store: store, FailOpen: true, Observer: seen}).Handler(c)
		go post(h, "k", "{}")
		<-running
		dup := make(chan *httptest.ResponseRecorder)
		go func() { dup <- post(h, "k", "{}") }()
		synctest.Wait() // it waits now: it has seen InFlight
		down.Store(true)
		// Let the waiter leave its poll: lease is alive, so end the first.
		close(release)
		if w := <-dup; code(w) != "in-flight" {
			t.Errorf("the duplicate got %d %q", w.Code, code(w))
		}
		if c.runs() != 1 {
			t.Errorf("the handler ran %d times, although the duplicate had seen the first one at work", c.runs())
		}
	})
}

func TestRunWaiterToldNotExecuted(t *testing.T) {
	for _, how := range []string{"store fails", "shutdown"} {
		t.Run(how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var down atomic.Bool
				store := &hooked{Store: newStore(t)}
				store.claim = func(p keystore.ClaimParams, next func() (keystore.Claim, error)) (keystore.Claim, error) {
					if down.Load() {
						return keystore.Claim{}, errDown
					}
					return next()
				}
				s := newServer(t, server.Config{Store: store, Wait: time.Minute})
				effects := 0
				in := idem.Intent{Scope: "q", ID: "1"}
				go server.Run(context.Background(), s, in, func(ctx context.Context) (int, error) {
					effects++
					time.Sleep(10 * time.Second)
					return 1, nil
				})
				synctest.Wait()
				got := make(chan error, 1)
				go func() {
					_, err := server.Run(context.Background(), s, in, func(context.Context) (int, error) { effects++; return 2, nil })
					got <- err
				}()
				synctest.Wait()
				if how == "shutdown" {
					ctx, cancel := context.WithTimeout(context.Background(), time.Second)
					s.Shutdown(ctx)
					cancel()
				} else {
					time.Sleep(5 * time.Second)
					down.Store(true)
				}
				err := <-got
				var e *idem.Error
				errors.As(err, &e)
				if e.Outcome == idem.OutcomeNotExecuted {
					t.Errorf("told NotExecuted, though it saw another run, effects %d", effects)
				}
				down.Store(false)
				time.Sleep(time.Minute)
			})
		})
	}
}

// Idempotent code hands KeyFrom downstream; FailOpen is when it is needed most.
func TestFailOpenKeyFrom(t *testing.T) {
	store := &hooked{Store: newStore(t)}
	store.claim = func(keystore.ClaimParams, func() (keystore.Claim, error)) (keystore.Claim, error) {
		return keystore.Claim{}, errors.New("down")
	}
	s := newServer(t, server.Config{Store: store, FailOpen: true, Effects: server.Idempotent})
	h := s.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if k, ok := idem.KeyFrom(r.Context()); !ok || k != "k" {
			t.Errorf("KeyFrom: %q, %v; want the request's key", k, ok)
		}
	}))
	post(h, "k", "{}")
}

// A refusal whose text does not fit into the store is replayed as Executed.
func TestRefusalTooLargeBecomesExecuted(t *testing.T) {
	store, _ := memstore.New(memstore.Config{MaxResult: 200})
	s := newServer(t, server.Config{Store: store})
	call := func() (idem.Result[int], error) {
		return server.RunResult(t.Context(), s, idem.Intent{Scope: "q", ID: "1"}, func(context.Context) (int, error) {
			return 0, idem.Rejected(errors.New(strings.Repeat("card declined; ", 40)))
		})
	}
	call()
	r2, _ := call()
	if r2.Outcome != idem.OutcomeRejected {
		t.Errorf("second call is told %v, want Rejected: nothing was executed", r2.Outcome)
	}
}

// same, but with the default contract size and only the store's total bound reached.
func TestRefusalInFullStoreBecomesExecuted(t *testing.T) {
	store, _ := memstore.New(memstore.Config{MaxBytes: 600})
	s := newServer(t, server.Config{Store: store})
	call := func() (idem.Result[int], error) {
		return server.RunResult(t.Context(), s, idem.Intent{Scope: "q", ID: "1"}, func(context.Context) (int, error) {
			return 0, idem.Rejected(errors.New(strings.Repeat("card declined; ", 40)))
		})
	}
	call()
	if r2, err := call(); r2.Outcome != idem.OutcomeRejected {
		t.Errorf("second call is told %v (%v), want Rejected", r2.Outcome, err)
	}
}

// Signed Location over ~450 bytes in a full memory store: the tombstone does not fit.
func TestTombstoneWithLongLocationFullStore(t *testing.T) {
	store, _ := memstore.New(memstore.Config{MaxBytes: 600})
	for _, m := range []server.Effects{server.Opaque, server.Idempotent, server.Marked} {
		t.Run(m.String(), func(t *testing.T) {
			c := &counter{do: func(w http.ResponseWriter, r *http.Request, _ int) {
				if m == server.Marked {
					server.BeginEffect(r.Context())
				}
				w.Header().Set("Location", "https://b.s3.amazonaws.com/x?sig="+strings.Repeat("a", 600))
				w.WriteHeader(201)
			}}
			h := newServer(t, server.Config{Store: store, Effects: m}).Handler(c)
			post(h, "k"+m.String(), "{}")
			w2 := post(h, "k"+m.String(), "{}")
			if code(w2) != "response-not-retained" || c.runs() != 1 {
				t.Errorf("retry got %d %q, runs %d; want 409 response-not-retained, 1 run", w2.Code, code(w2), c.runs())
			}
		})
	}
}
