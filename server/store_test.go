package server_test

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/keystore"
	"github.com/idem-go/idem/server"
)

func TestB102StoreDownAtClaim(t *testing.T) {
	for _, mode := range []server.Effects{server.Opaque, server.Marked} {
		t.Run(mode.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var claims atomic.Int32
				var up atomic.Bool
				store := &hooked{Store: newStore(t), claim: func(_ keystore.ClaimParams, next func() (keystore.Claim, error)) (keystore.Claim, error) {
					if claims.Add(1); up.Load() {
						return next()
					}
					return keystore.Claim{}, errDown
				}}
				seen := &events{}
				c := &counter{}
				s := newServer(t, server.Config{Store: store, Effects: mode, Observer: seen})
				h := s.Handler(c)
				w := post(h, "k", "{}")
				want(t, w, 503, "store-unavailable")
				if w.Header().Get("Retry-After") != "1" || claims.Load() != 3 {
					t.Errorf("Retry-After %q after %d claims", w.Header().Get("Retry-After"), claims.Load())
				}
				if got := seen.names(); got != idem.EventStoreError {
					t.Errorf("events %q", got)
				}
				_, err := server.Run(t.Context(), s, idem.Intent{Scope: "q", ID: "1"}, func(context.Context) (int, error) { c.n++; return 0, nil })
				if !errors.Is(err, idem.ErrStore) || !errors.Is(err, errDown) || !errors.Is(err, idem.ErrNotExecuted) {
					t.Errorf("Run: %v", err)
				}
				c.want(t, 0)
				up.Store(true)
				wantFirst(t, post(h, "k", "{}"), 201, "made")
			})
		})
	}
}

func TestB102FailOpen(t *testing.T) {
	store := &hooked{Store: newStore(t), claim: func(keystore.ClaimParams, func() (keystore.Claim, error)) (keystore.Claim, error) {
		return keystore.Claim{}, keystore.ErrFull
	}}
	seen := &events{}
	c := &counter{do: func(w http.ResponseWriter, r *http.Request, _ int) {
		if err := server.BeginEffect(r.Context()); err != nil {
			t.Error(err)
		}
		status(201, "made")(w, r, 0)
	}}
	s := newServer(t, server.Config{Store: store, Effects: server.Marked, FailOpen: true, Observer: seen})
	h := s.Handler(c)
	for range 2 {
		wantAnswer(t, post(h, "k", "{}"), 201, "made", "")
	}
	c.want(t, 2)
	for _, failure := range []error{nil, errDown} {
		v, err := server.Run(t.Context(), s, idem.Intent{Scope: "q", ID: "1"}, func(ctx context.Context) (int, error) { return 4, failure })
		if !errors.Is(err, failure) || (failure == nil) != (v == 4) {
			t.Errorf("Run: %d, %v", v, err)
		}
	}
	if got := seen.names(); got != "store-error store-error store-error store-error" {
		t.Errorf("events %q", got)
	}
}

// The claim was granted, but its answer did not arrive.
func TestB093LostAck(t *testing.T) {
	for _, lost := range []int{1, 2, 3} {
		synctest.Test(t, func(t *testing.T) {
			var n atomic.Int32
			store := &hooked{Store: newStore(t), claim: func(_ keystore.ClaimParams, next func() (keystore.Claim, error)) (keystore.Claim, error) {
				c, err := next()
				if int(n.Add(1)) <= lost {
					return keystore.Claim{}, errDown
				}
				return c, err
			}}
			c := &counter{}
			h := newServer(t, server.Config{Store: store}).Handler(c)
			w := post(h, "k", "{}")
			if lost < 3 {
				wantFirst(t, w, 201, "made")
				c.want(t, 1)
				return
			}
			want(t, w, 503, "store-unavailable")
			// An Opaque claim begins at once. Nothing ran, so it must not
			// stay unresolved: it is taken back.
			time.Sleep(time.Second)
			wantFirst(t, post(h, "k", "{}"), 201, "made")
			c.want(t, 1)
		})
	}
}

func TestB092StoreDownAtComplete(t *testing.T) {
	for _, mode := range []server.Effects{server.Opaque, server.Marked, server.Idempotent} {
		t.Run(mode.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var down atomic.Bool
				down.Store(true)
				store := &hooked{Store: newStore(t), complete: func(_ keystore.CompleteParams, next func() error) error {
					if down.Load() {
						return errDown
					}
					return next()
				}}
				seen := &events{}
				c := &counter{}
				h := newServer(t, server.Config{Store: store, Effects: mode, Observer: seen}).Handler(c)
				// The true answer, without the marker: it is not stored yet.
				wantAnswer(t, post(h, "k", "{}"), 201, "made", "")
				if ev := seen.take()[0]; ev.Name != idem.EventExecuted || !errors.Is(ev.Attempts[0].Err, errDown) {
					t.Errorf("event %+v", ev)
				}
				// The lease is renewed, so the key is not free, however long.
				time.Sleep(time.Hour)
				want(t, post(h, "k", "{}"), 409, "in-flight")
				down.Store(false)
				time.Sleep(10 * time.Second)
				wantReplay(t, post(h, "k", "{}"), 201, "made")
				c.want(t, 1)
			})
		})
	}
}

func TestStoreDownAtRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var down atomic.Bool
		down.Store(true)
		store := &hooked{Store: newStore(t), release: func(_ keystore.ReleaseParams, next func() error) error {
			if down.Load() {
				return errDown
			}
			return next()
		}}
		c := &counter{do: func(w http.ResponseWriter, r *http.Request, _ int) {
			server.MarkNotExecuted(r.Context())
			w.WriteHeader(503)
		}}
		h := newServer(t, server.Config{Store: store}).Handler(c)
		want(t, post(h, "k", "{}"), 503, "")
		want(t, post(h, "k", "{}"), 409, "in-flight")
		down.Store(false)
		time.Sleep(10 * time.Second)
		want(t, post(h, "k", "{}"), 503, "")
		c.want(t, 2)
	})
}

// A renewal that is on its way must not bring back a lease that was given up.
func TestRenewalDuringAbandon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &hooked{Store: newStore(t), renew: func(_ keystore.RenewParams, next func() error) error {
			time.Sleep(2 * time.Second)
			return next()
		}, release: func(_ keystore.ReleaseParams, next func() error) error {
			defer time.Sleep(2 * time.Second)
			return next()
		}}
		c := &counter{do: func(w http.ResponseWriter, r *http.Request, _ int) {
			time.Sleep(11 * time.Second)
			w.WriteHeader(500)
		}}
		h := newServer(t, server.Config{Store: store}).Handler(c)
		want(t, post(h, "k", "{}"), 500, "")
		time.Sleep(5 * time.Second)
		want(t, post(h, "k", "{}"), 409, "recovery-required")
	})
}

// A claim that is under way when the client hangs up is seen to its end.
func TestHangUpDuringClaim(t *testing.T) {
	ctx, hangUp := context.WithCancel(t.Context())
	store := &hooked{Store: newStore(t), claim: func(_ keystore.ClaimParams, next func() (keystore.Claim, error)) (keystore.Claim, error) {
		hangUp()
		return next()
	}}
	c := &counter{}
	h := newServer(t, server.Config{Store: store}).Handler(c)
	wantFirst(t, serve(h, request("k", "{}").WithContext(ctx)), 201, "made")
	wantReplay(t, post(h, "k", "{}"), 201, "made")
	c.want(t, 1)
}

// A completion that no repeat can help is not repeated for ever.
func TestCompleteFailsForGood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, fails := range [][]error{{keystore.ErrCorrupt}, {errDown, keystore.ErrCorrupt}, {errDown, keystore.ErrFenced}} {
			var completes atomic.Int32
			store := &hooked{Store: newStore(t), complete: func(keystore.CompleteParams, func() error) error {
				return fails[completes.Add(1)-1]
			}}
			c := &counter{}
			h := newServer(t, server.Config{Store: store}).Handler(c)
			wantAnswer(t, post(h, "k", "{}"), 201, "made", "")
			time.Sleep(time.Minute)
			if int(completes.Load()) != len(fails) {
				t.Errorf("%d completions, want %d", completes.Load(), len(fails))
			}
			want(t, post(h, "k", "{}"), 409, "recovery-required")
		}
	})
}

func TestB094UnreadableRecord(t *testing.T) {
	results := map[string]func([]byte) []byte{
		"empty":         func([]byte) []byte { return nil },
		"zeros":         func(b []byte) []byte { return make([]byte, len(b)) },
		"damaged":       func(b []byte) []byte { b = bytes.Clone(b); b[len(b)-1] ^= 1; return b },
		"cut":           func(b []byte) []byte { return b[:len(b)-3] },
		"newer version": func(b []byte) []byte { b = bytes.Clone(b); b[0]++; return b },
	}
	for name, damage := range results {
		t.Run(name, func(t *testing.T) {
			store := &hooked{Store: newStore(t)}
			store.claim = func(_ keystore.ClaimParams, next func() (keystore.Claim, error)) (keystore.Claim, error) {
				c, err := next()
				if c.Status == keystore.Completed {
					c.Record.Result = damage(c.Record.Result)
				}
				return c, err
			}
			seen := &events{}
			s := newServer(t, server.Config{Store: store, Observer: seen})
			c := &counter{}
			h := s.Handler(c)
			wantFirst(t, post(h, "k", "{}"), 201, "made")
			want(t, post(h, "k", "{}"), 500, "record-unreadable")
			c.want(t, 1)
			if got := seen.names(); got != "executed store-error" {
				t.Errorf("events %q", got)
			}
			run := func() error {
				_, err := server.Run(t.Context(), s, idem.Intent{Scope: "q", ID: "1"}, func(context.Context) (int, error) { c.n++; return 0, nil })
				return err
			}
			if err := run(); err != nil {
				t.Fatal(err)
			}
			var e *idem.Error
			if err := run(); !errors.Is(err, idem.ErrResultLost) || !errors.As(err, &e) || e.Outcome != idem.OutcomeExecuted {
				t.Errorf("Run: %v", err)
			}
			c.want(t, 2)
		})
	}
	for _, sentinel := range []error{keystore.ErrCorrupt, keystore.ErrFormat} {
		t.Run(sentinel.Error(), func(t *testing.T) {
			store := &hooked{Store: newStore(t), claim: func(keystore.ClaimParams, func() (keystore.Claim, error)) (keystore.Claim, error) {
				return keystore.Claim{}, sentinel
			}}
			c := &counter{}
			// Not even then: the store works, and the record may tell of an
			// execution.
			s := newServer(t, server.Config{Store: store, FailOpen: true})
			want(t, post(s.Handler(c), "k", "{}"), 500, "record-unreadable")
			_, err := server.Run(t.Context(), s, idem.Intent{Scope: "q", ID: "1"}, func(context.Context) (int, error) { c.n++; return 0, nil })
			if !errors.Is(err, sentinel) || !errors.Is(err, idem.ErrOutcomeUnknown) {
				t.Errorf("Run: %v", err)
			}
			c.want(t, 0)
		})
	}
}

// A claim of the function's record by a handler, and the other way round, can
// only be told as unreadable.
func TestAnswerOfAnotherKind(t *testing.T) {
	store := &hooked{Store: newStore(t)}
	s := newServer(t, server.Config{Store: store})
	c := &counter{}
	h := s.Handler(c)
	wantFirst(t, post(h, "k", "{}"), 201, "made")
	var response []byte
	store.claim = func(_ keystore.ClaimParams, next func() (keystore.Claim, error)) (keystore.Claim, error) {
		c, err := next()
		if c.Status == keystore.Completed {
			c.Record.Result, response = response, c.Record.Result
		}
		return c, err
	}
	run := func() error {
		_, err := server.Run(t.Context(), s, idem.Intent{Scope: "q", ID: "1"}, func(context.Context) (int, error) { return 0, nil })
		return err
	}
	post(h, "k", "{}") // takes the response, gives nothing
	if err := run(); err != nil {
		t.Fatal(err)
	}
	if err := run(); !errors.Is(err, idem.ErrResultLost) {
		t.Errorf("a response as a result: %v", err)
	}
	want(t, post(h, "k", "{}"), 500, "record-unreadable")
}

// B127: completing keeps what the claim has stored.
func TestB127ColdProcess(t *testing.T) {
	store := newStore(t)
	c := &counter{}
	wantFirst(t, post(newServer(t, server.Config{Store: store}).Handler(c), "k", "{}"), 201, "made")
	cold := newServer(t, server.Config{Store: store}).Handler(c)
	wantReplay(t, post(cold, "k", "{}"), 201, "made")
	want(t, post(cold, "k", "[]"), 422, "key-reused")
	c.want(t, 1)
	recs, err := store.Records(t.Context(), keystore.Query{})
	if err != nil || len(recs) != 1 {
		t.Fatal(recs, err)
	}
	if got, want := string(recs[0].Meta), `{"v":1,"scope":"single-tenant","key":"k","method":"POST","path":"/charges"}`; got != want {
		t.Errorf("Meta %s, want %s", got, want)
	}
}
