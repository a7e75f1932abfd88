package server_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/keystore"
	"github.com/idem-go/idem/server"
)

func within(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

func TestShutdown(t *testing.T) {
	t.Run("refuses new work, waits for the old", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := &counter{do: func(w http.ResponseWriter, r *http.Request, _ int) {
				time.Sleep(10 * time.Second)
				if r.Context().Err() != nil {
					t.Error(context.Cause(r.Context()))
				}
				status(201, "made")(w, r, 0)
			}}
			s := newServer(t, server.Config{})
			h := s.Handler(c)
			var first *httptest.ResponseRecorder
			go func() { first = post(h, "k", "{}") }()
			synctest.Wait()
			began := time.Now()
			time.AfterFunc(time.Second, func() {
				if w := post(h, "k", "{}"); w.Code != 503 || code(w) != "shutting-down" {
					t.Errorf("got %d %s", w.Code, w.Body)
				}
				_, err := server.Run(t.Context(), s, idem.Intent{Scope: "q", ID: "1"}, func(context.Context) (int, error) { return 0, nil })
				if !errors.Is(err, idem.ErrShutdown) || !errors.Is(err, idem.ErrNotExecuted) {
					t.Errorf("Run: %v", err)
				}
			})
			if err := s.Shutdown(within(t, time.Minute)); err != nil || time.Since(began) != 10*time.Second {
				t.Errorf("Shutdown: %v after %v", err, time.Since(began))
			}
			synctest.Wait()
			wantFirst(t, first, 201, "made")
			c.want(t, 1)
			if err := s.Shutdown(within(t, 0)); err != nil {
				t.Errorf("a second Shutdown: %v", err)
			}
		})
	})
	t.Run("leaves what does not end", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			store := newStore(t)
			s, err := server.New(server.Config{Store: store, Effects: server.Opaque, Scope: server.SingleTenant})
			if err != nil {
				t.Fatal(err)
			}
			var cause error
			finish := make(chan struct{})
			late := s.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				<-r.Context().Done()
				cause = context.Cause(r.Context())
				<-finish
				w.WriteHeader(201)
			}))
			go post(late, "k", "{}")
			waiter := make(chan *httptest.ResponseRecorder, 1)
			synctest.Wait()
			go func() { waiter <- post(s.Handler(http.NotFoundHandler(), server.WithWait(time.Hour)), "k", "{}") }()
			synctest.Wait()
			if err := s.Shutdown(within(t, time.Second)); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("Shutdown: %v", err)
			}
			synctest.Wait()
			if !errors.Is(cause, idem.ErrShutdown) {
				t.Errorf("the handler's context ended with %v", cause)
			}
			want(t, <-waiter, 409, "in-flight") // what it has seen is true
			// The record is left, and becomes unresolved.
			next := newServer(t, server.Config{Store: store}).Handler(http.NotFoundHandler(), server.WithWait(server.NoWait))
			want(t, post(next, "k", "{}"), 409, "in-flight")
			time.Sleep(31 * time.Second)
			want(t, post(next, "k", "{}"), 409, "recovery-required")
			// The late answer still counts.
			close(finish)
			synctest.Wait()
			wantReplay(t, post(next, "k", "{}"), 201, "")
		})
	})
	t.Run("waits for completions", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var down atomic.Bool
			down.Store(true)
			store := &hooked{Store: newStore(t), complete: func(_ keystore.CompleteParams, next func() error) error {
				if down.Load() {
					return errDown
				}
				return next()
			}}
			s := newServer(t, server.Config{Store: store})
			c := &counter{}
			wantAnswer(t, post(s.Handler(c), "k", "{}"), 201, "made", "")
			time.AfterFunc(20*time.Second, func() { down.Store(false) })
			if err := s.Shutdown(within(t, time.Minute)); err != nil {
				t.Error(err)
			}
			wantReplay(t, post(newServer(t, server.Config{Store: store}).Handler(c), "k", "{}"), 201, "made")
		})
	})
	t.Run("leaves completions that don't land", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			store := &hooked{Store: newStore(t), complete: func(keystore.CompleteParams, func() error) error { return errDown }}
			s, err := server.New(server.Config{Store: store, Effects: server.Opaque, Scope: server.SingleTenant})
			if err != nil {
				t.Fatal(err)
			}
			c := &counter{}
			wantAnswer(t, post(s.Handler(c), "k", "{}"), 201, "made", "")
			if err := s.Shutdown(within(t, time.Second)); !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
			time.Sleep(time.Minute)
			want(t, post(newServer(t, server.Config{Store: store}).Handler(c), "k", "{}"), 409, "recovery-required")
			c.want(t, 1)
		})
	})
	t.Run("returns after its own last store call", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var calls atomic.Int32
			store := &hooked{Store: newStore(t), complete: func(keystore.CompleteParams, func() error) error {
				calls.Add(1)
				defer calls.Add(-1)
				time.Sleep(3 * time.Second) // whatever its context says
				return errDown
			}}
			s, err := server.New(server.Config{Store: store, Effects: server.Opaque, Scope: server.SingleTenant})
			if err != nil {
				t.Fatal(err)
			}
			wantAnswer(t, post(s.Handler(&counter{}), "k", "{}"), 201, "made", "")
			if err := s.Shutdown(within(t, time.Second)); !errors.Is(err, context.DeadlineExceeded) || calls.Load() != 0 {
				t.Errorf("got %v, with %d calls under way", err, calls.Load())
			}
		})
	})
	// The claim is on its way when the server stops.
	t.Run("does not start what was claimed too late", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			store := &hooked{Store: newStore(t), claim: func(_ keystore.ClaimParams, next func() (keystore.Claim, error)) (keystore.Claim, error) {
				time.Sleep(2 * time.Second)
				return next()
			}}
			s, err := server.New(server.Config{Store: store, Effects: server.Opaque, Scope: server.SingleTenant})
			if err != nil {
				t.Fatal(err)
			}
			c := &counter{}
			var w *httptest.ResponseRecorder
			go func() { w = post(s.Handler(c), "k", "{}") }()
			var runErr error
			go func() {
				_, runErr = server.Run(t.Context(), s, idem.Intent{Scope: "q", ID: "1"}, func(context.Context) (int, error) { c.n++; return 0, nil })
			}()
			synctest.Wait()
			_ = s.Shutdown(within(t, time.Second))
			time.Sleep(10 * time.Second)
			synctest.Wait()
			want(t, w, 503, "shutting-down")
			if !errors.Is(runErr, idem.ErrShutdown) {
				t.Errorf("Run: %v", runErr)
			}
			c.want(t, 0)
			wantFirst(t, post(newServer(t, server.Config{Store: store}).Handler(c), "k", "{}"), 201, "made")
		})
	})
}
