package server_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/keystore"
	"github.com/idem-go/idem/server"
)

func TestB087Parallel(t *testing.T) {
	c := &counter{}
	store := newStore(t)
	// Two replicas, and mounts of their own.
	var mounts []http.Handler
	for range 2 {
		s := newServer(t, server.Config{Store: store})
		mounts = append(mounts, s.Handler(c), s.Handler(c))
	}
	var firsts, replays atomic.Int32
	var wg sync.WaitGroup
	start := make(chan struct{})
	for i := range 100 {
		wg.Go(func() {
			<-start
			w := post(mounts[i%len(mounts)], "k", "{}")
			if w.Code != 201 || w.Body.String() != "made" {
				t.Errorf("got %d %s", w.Code, w.Body)
			}
			if w.Header().Get("Idempotent-Replayed") == "true" {
				replays.Add(1)
			} else {
				firsts.Add(1)
			}
		})
	}
	close(start)
	wg.Wait()
	c.want(t, 1)
	if firsts.Load() != 1 || replays.Load() != 99 {
		t.Errorf("%d first answers, %d replays", firsts.Load(), replays.Load())
	}
}

func TestWait(t *testing.T) {
	for _, notified := range []bool{true, false} {
		t.Run(fmt.Sprintf("notified %v", notified), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := newStore(t)
				if !notified {
					store = &hooked{Store: store}
				}
				c := &counter{do: func(w http.ResponseWriter, r *http.Request, _ int) {
					time.Sleep(5 * time.Second)
					status(201, "made")(w, r, 0)
				}}
				s := newServer(t, server.Config{Store: store})
				h := s.Handler(c)
				go post(h, "k", "{}")
				synctest.Wait()
				for _, tt := range []struct {
					opts  []server.RouteOption
					waits time.Duration
				}{{[]server.RouteOption{server.WithWait(server.NoWait)}, 0}, {nil, 2 * time.Second}} {
					began := time.Now()
					want(t, post(s.Handler(c, tt.opts...), "k", "{}"), 409, "in-flight")
					if got := time.Since(began); got != tt.waits {
						t.Errorf("waited %v, want %v", got, tt.waits)
					}
				}
				began := time.Now()
				wantReplay(t, post(s.Handler(c, server.WithWait(time.Minute)), "k", "{}"), 201, "made")
				if got := time.Since(began); got < 3*time.Second || got > 3*time.Second+500*time.Millisecond {
					t.Errorf("waited %v, want 3 s", got)
				}
				c.want(t, 1)
			})
		})
	}
}

// B126: another payload is refused at once, and found on every path.
func TestB126MismatchAfterTakeover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &counter{do: func(w http.ResponseWriter, r *http.Request, run int) {
			if run == 1 {
				<-r.Context().Done()
				w.WriteHeader(503)
				return
			}
			time.Sleep(time.Second)
			status(201, "made")(w, r, 0)
		}}
		h := newServer(t, server.Config{Effects: server.Idempotent}).Handler(c, server.WithMaxRun(time.Second), server.WithWait(time.Minute))
		go post(h, "k", "{}")
		synctest.Wait()
		var wg sync.WaitGroup
		// One waits for the first run, runs, and is waited for in turn.
		for _, wait := range []time.Duration{0, time.Second + time.Millisecond} {
			wg.Go(func() {
				time.Sleep(wait)
				if w := post(h, "k", "{}"); w.Code != 201 {
					t.Errorf("got %d %s", w.Code, w.Body)
				}
			})
			wg.Go(func() {
				time.Sleep(wait)
				began := time.Now()
				if w := post(h, "k", "[]"); w.Code != 422 || time.Since(began) != 0 {
					t.Errorf("got %d %s after %v", w.Code, w.Body, time.Since(began))
				}
			})
		}
		wg.Wait()
		c.want(t, 2)
	})
}

// vanishing is a store that can lose a record.
type vanishing struct {
	keystore.Store
	lost atomic.Bool
}

func (s *vanishing) Records(ctx context.Context, q keystore.Query) ([]keystore.Record, error) {
	if s.lost.Load() {
		return nil, nil
	}
	return s.Store.Records(ctx, q)
}

func (s *vanishing) Claim(ctx context.Context, p keystore.ClaimParams) (keystore.Claim, error) {
	if s.lost.Load() {
		return keystore.Claim{Status: keystore.Acquired, Owner: keystore.Owner{ID: p.ID, Nonce: p.Nonce, Token: 1}}, nil
	}
	return s.Store.Claim(ctx, p)
}

func TestB096VanishedRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &vanishing{Store: newStore(t)}
		c := &counter{do: func(w http.ResponseWriter, r *http.Request, _ int) {
			time.Sleep(10 * time.Second)
			status(201, "made")(w, r, 0)
		}}
		h := newServer(t, server.Config{Store: store}).Handler(c)
		go post(h, "k", "{}")
		synctest.Wait()
		time.AfterFunc(time.Second, func() { store.lost.Store(true) })
		want(t, post(h, "k", "{}"), 409, "in-flight")
		c.want(t, 1)
		store.lost.Store(false)
		time.Sleep(time.Minute)
	})
}

func TestAuthorize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		finish := make(chan struct{})
		c := &counter{do: func(w http.ResponseWriter, r *http.Request, _ int) {
			w.Header().Set("Location", "/secret")
			<-finish
			status(201, "made")(w, r, 0)
		}}
		var asked atomic.Int32
		s := newServer(t, server.Config{Authorize: func(r *http.Request) error {
			asked.Add(1)
			if r.Header.Get("Authorization") == "" {
				return errors.New("who are you?")
			}
			return nil
		}})
		h := s.Handler(c)
		var first *httptest.ResponseRecorder
		go func() { first = post(h, "k", "{}") }()
		synctest.Wait()
		time.AfterFunc(time.Second, func() { close(finish) })
		refused := func() {
			t.Helper()
			w := post(h, "k", "{}")
			want(t, w, 403, "replay-refused")
			if w.Header().Get("Location") != "" || w.Header().Get("Idempotent-Replayed") != "" {
				t.Errorf("the answer leaks: %v", w.Header())
			}
		}
		refused() // after a wait
		synctest.Wait()
		refused()
		wantFirst(t, first, 201, "made")
		r := request("k", "{}")
		r.Header.Set("Authorization", "me")
		wantReplay(t, serve(h, r), 201, "made")

		tombstone := s.Handler(c, server.WithoutStoredAnswer())
		post(tombstone, "k2", "{}")
		want(t, post(tombstone, "k2", "{}"), 403, "replay-refused")
		if asked.Load() != 4 {
			t.Errorf("asked %d times", asked.Load())
		}
		c.want(t, 2)
	})
}

// The client that waits hangs up: nothing is waited for any more.
func TestWaiterHangsUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		finish := make(chan struct{})
		s := newServer(t, server.Config{Wait: time.Hour})
		h := s.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-finish }))
		go post(h, "k", "{}")
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		want(t, serve(h, request("k", "{}").WithContext(ctx)), 409, "in-flight")

		in := idem.Intent{Scope: "q", ID: "1"}
		go func() {
			_, _ = server.Run(t.Context(), s, in, func(context.Context) (int, error) { <-finish; return 0, nil })
		}()
		synctest.Wait()
		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := server.Run(ctx, s, in, func(context.Context) (int, error) { return 0, nil })
		if !errors.Is(err, idem.ErrInFlight) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		close(finish)
		synctest.Wait()
	})
}
