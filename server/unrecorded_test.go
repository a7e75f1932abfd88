package server_test

import (
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

// A refusal that is not recorded yet is not told. Who is told "refused" takes
// its next key, and another run under this one may yet have the effect.
func TestRefusalUnrecorded(t *testing.T) {
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
				c := &counter{do: func(w http.ResponseWriter, _ *http.Request, _ int) { w.WriteHeader(402) }}
				s := newServer(t, server.Config{Store: store, Effects: mode, Observer: seen})
				h := s.Handler(c)
				w := post(h, "k", "{}")
				want(t, w, 503, "store-unavailable")
				if w.Header().Get("Retry-After") == "" {
					t.Error("without Retry-After")
				}
				if ev := seen.take()[0]; ev.Name != idem.EventStoreError || ev.Outcome != idem.OutcomeNotExecuted || !errors.Is(ev.Err, errDown) {
					t.Errorf("event %+v", ev)
				}
				run := func() error {
					_, err := server.Run(t.Context(), s, idem.Intent{Scope: "q", ID: "1"}, func(context.Context) (int, error) {
						return 0, idem.Rejected(errors.New("declined"))
					})
					return err
				}
				var e *idem.Error
				if err := run(); !errors.As(err, &e) || e.Outcome != idem.OutcomeNotExecuted || !errors.Is(err, idem.ErrStore) {
					t.Errorf("Run: %v", err)
				}
				down.Store(false)
				time.Sleep(10 * time.Second) // it is recorded in the background
				wantReplay(t, post(h, "k", "{}"), 402, "")
				if err := run(); !errors.As(err, &e) || e.Outcome != idem.OutcomeRejected {
					t.Errorf("Run: %v", err)
				}
				c.want(t, 1)
			})
		})
	}
}

// What may have had its effect is run again for the same payload only.
func TestIdempotentKeepsPayload(t *testing.T) {
	for name, answer := range map[string]func(http.ResponseWriter, *http.Request){
		"fails": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) },
		"then says that it did nothing": func(w http.ResponseWriter, r *http.Request) {
			server.MarkNotExecuted(r.Context())
			w.WriteHeader(503)
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := &counter{do: func(w http.ResponseWriter, r *http.Request, run int) {
				switch run {
				case 1:
					w.WriteHeader(500)
				case 2:
					answer(w, r)
				default:
					w.WriteHeader(201)
				}
			}}
			h := newServer(t, server.Config{Effects: server.Idempotent}).Handler(c)
			post(h, "k", "{}")
			post(h, "k", "{}")
			want(t, post(h, "k", "[]"), 422, "key-reused")
			wantFirst(t, post(h, "k", "{}"), 201, "")
			wantReplay(t, post(h, "k", "{}"), 201, "")
			c.want(t, 3)
		})
	}
	// A first run knows of all that happened.
	c := &counter{do: func(w http.ResponseWriter, r *http.Request, run int) {
		if run == 1 {
			server.MarkNotExecuted(r.Context())
		}
		w.WriteHeader(map[int]int{1: 503}[run] + map[int]int{2: 201}[run])
	}}
	h := newServer(t, server.Config{Effects: server.Idempotent}).Handler(c)
	want(t, post(h, "k", "{}"), 503, "")
	wantFirst(t, post(h, "k", "[]"), 201, "")
}

// Between finding a record unresolved and taking it over it may have lived
// another life: settled as not executed, run again, unresolved again. Then it is
// younger than it was, and has to be asked about all the same.
func TestRecoverAnotherLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := newStore(t)
		effects := 0
		c := &counter{do: func(w http.ResponseWriter, r *http.Request, run int) {
			if err := server.BeginEffect(r.Context()); err != nil {
				t.Error(err)
			}
			if run > 1 {
				effects++
			}
			w.WriteHeader(500)
		}}
		recover := func(context.Context, server.Pending) (server.Resolution, error) {
			if effects > 0 {
				return server.Resolution{Outcome: idem.OutcomeExecuted, Status: 201}, nil
			}
			return server.Resolution{Outcome: idem.OutcomeNotExecuted}, nil
		}
		cfg := server.Config{Store: mem, Effects: server.Marked, Recover: recover}
		post(newServer(t, server.Config{Store: mem, Effects: server.Marked}).Handler(c), "k", "{}")
		time.Sleep(time.Hour)

		other, meanwhile := newServer(t, cfg).Handler(c), true
		store := &hooked{Store: mem, claim: func(p keystore.ClaimParams, next func() (keystore.Claim, error)) (keystore.Claim, error) {
			if p.Takeover && meanwhile {
				meanwhile = false
				post(other, "k", "{}") // asks, runs, has its effect, fails
			}
			return next()
		}}
		cfg.Store = store
		wantReplay(t, post(newServer(t, cfg).Handler(c), "k", "{}"), 201, "")
		if effects != 1 {
			t.Errorf("%d effects", effects)
		}
		c.want(t, 2)
	})
}
