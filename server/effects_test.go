package server_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/keystore"
	"github.com/idem-go/idem/server"
)

// The modes of the effects table. Marked has two: the failure comes before
// BeginEffect, or after it.
var modes = []struct {
	name    string
	effects server.Effects
	begin   bool
}{
	{"Opaque", server.Opaque, false},
	{"Marked before BeginEffect", server.Marked, false},
	{"Marked after BeginEffect", server.Marked, true},
	{"Idempotent", server.Idempotent, false},
}

// failures are what the first run comes to, and what the next attempt meets in
// each of the modes.
var failures = []struct {
	name  string
	fail  func(w http.ResponseWriter, r *http.Request)
	meets [4]string
}{
	{"503", answer(503), [4]string{"recovery", "run", "recovery", "run"}},
	{"500", answer(500), [4]string{"recovery", "run", "recovery", "run"}},
	{"B119 429 inside", answer(429), [4]string{"recovery", "run", "recovery", "run"}},
	{"B118 panic", func(http.ResponseWriter, *http.Request) { panic("boom") }, [4]string{"recovery", "run", "recovery", "run"}},
	{"B090 ErrAbortHandler", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, [4]string{"recovery", "run", "recovery", "run"}},
	{"B090 Goexit", func(http.ResponseWriter, *http.Request) { runtime.Goexit() }, [4]string{"recovery", "run", "recovery", "run"}},
	{"invalid status", answer(42), [4]string{"recovery", "run", "recovery", "run"}},
	{"MarkNotExecuted and 503", marked(503), [4]string{"run", "run", "run", "run"}},
	{"MarkNotExecuted and 200", marked(200), [4]string{"run", "run", "run", "run"}},
	{"MarkNotExecuted and panic", func(_ http.ResponseWriter, r *http.Request) {
		server.MarkNotExecuted(r.Context())
		panic("boom")
	}, [4]string{"run", "run", "run", "run"}},
	{"400", answer(400), [4]string{"replay", "replay", "replay", "replay"}},
	{"302", answer(302), [4]string{"replay", "replay", "replay", "replay"}},
	{"200", answer(200), [4]string{"replay", "replay", "replay", "replay"}},
	{"B090 returns without writing", func(http.ResponseWriter, *http.Request) {}, [4]string{"replay", "replay", "replay", "replay"}},
	{"B090 writes only headers", func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X-A", "b") }, [4]string{"replay", "replay", "replay", "replay"}},
	{"client hangs up", func(w http.ResponseWriter, r *http.Request) {
		hangUp(r)
		synctest.Wait()
		if r.Context().Err() != nil {
			w.WriteHeader(500)
		}
	}, [4]string{"replay", "replay", "replay", "replay"}},
	{"MaxRun is over", func(w http.ResponseWriter, r *http.Request) {
		<-r.Context().Done()
		if !errors.Is(context.Cause(r.Context()), server.ErrMaxRun) {
			panic("cause: " + context.Cause(r.Context()).Error())
		}
		w.WriteHeader(500)
	}, [4]string{"recovery", "run", "recovery", "run"}},
	// The work goes on behind the 503.
	{"TimeoutHandler inside", func(w http.ResponseWriter, r *http.Request) {
		http.TimeoutHandler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			time.Sleep(time.Minute)
		}), time.Second, "too slow").ServeHTTP(w, r)
	}, [4]string{"recovery", "run", "recovery", "run"}},
}

func answer(status int) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = io.WriteString(w, "first")
	}
}

func marked(status int) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, r *http.Request) {
		server.MarkNotExecuted(r.Context())
		answer(status)(w, r)
	}
}

type hangUpKey struct{}

// hangUp cancels the request's own context.
func hangUp(r *http.Request) { r.Context().Value(hangUpKey{}).(context.CancelFunc)() }

// attempt serves a request that may panic or end its goroutine.
func attempt(h http.Handler, r *http.Request) (w *httptest.ResponseRecorder, panicked any) {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	r = r.WithContext(context.WithValue(ctx, hangUpKey{}, cancel))
	w = httptest.NewRecorder()
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() { panicked = recover() }()
		h.ServeHTTP(w, r)
	}()
	<-done
	return w, panicked
}

func TestEffectsTable(t *testing.T) {
	for _, tt := range failures {
		for i, mode := range modes {
			t.Run(tt.name+"/"+mode.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					defer time.Sleep(2 * time.Minute) // until all handlers are back
					seen := &events{}
					c := &counter{do: func(w http.ResponseWriter, r *http.Request, run int) {
						if mode.begin {
							if err := server.BeginEffect(r.Context()); err != nil {
								t.Error(err)
							}
						}
						if run > 1 {
							answer(201)(w, r)
							return
						}
						tt.fail(w, r)
					}}
					h := newServer(t, server.Config{Effects: mode.effects, Observer: seen}).Handler(c)
					first, _ := attempt(h, request("k", "{}"))
					if replayed := first.Header().Get("Idempotent-Replayed"); (replayed == "false") != (tt.meets[i] == "replay") {
						t.Errorf("the first answer says Idempotent-Replayed %q", replayed)
					}
					if all := seen.take(); len(all) != 1 || len(all[0].Attempts) != 1 {
						t.Errorf("events %+v", all)
					}
					// Whatever the first came to, it is decided at once.
					second := post(h, "k", "{}")
					switch tt.meets[i] {
					case "run":
						wantFirst(t, second, 201, "first")
						c.want(t, 2)
					case "replay":
						wantReplay(t, second, first.Code, first.Body.String())
						c.want(t, 1)
					case "recovery":
						want(t, second, 409, "recovery-required")
						c.want(t, 1)
						time.Sleep(48 * time.Hour)
						want(t, post(h, "k", "{}"), 409, "recovery-required")
						want(t, post(h, "k", "[]"), 422, "key-reused")
						c.want(t, 1)
					}
				})
			})
		}
	}
}

// What a function's error proves, and what the next call gets.
func TestEffectsTableRun(t *testing.T) {
	plain := errors.New("it failed")
	nested := &idem.Error{Outcome: idem.OutcomeNotExecuted, Last: idem.NotExecuted(plain)}
	tests := []struct {
		name    string
		err     error
		outcome [4]idem.Outcome
		meets   [4]string
	}{
		{"error", plain,
			[4]idem.Outcome{idem.OutcomeUnknown, idem.OutcomeNotExecuted, idem.OutcomeUnknown, idem.OutcomeUnknown},
			[4]string{"recovery", "run", "recovery", "run"}},
		{"Unknown", idem.Unknown(plain),
			[4]idem.Outcome{idem.OutcomeUnknown, idem.OutcomeUnknown, idem.OutcomeUnknown, idem.OutcomeUnknown},
			[4]string{"recovery", "recovery", "recovery", "run"}},
		{"NotExecuted", idem.NotExecuted(plain),
			[4]idem.Outcome{idem.OutcomeNotExecuted, idem.OutcomeNotExecuted, idem.OutcomeNotExecuted, idem.OutcomeNotExecuted},
			[4]string{"run", "run", "run", "run"}},
		{"Rejected", idem.Rejected(plain),
			[4]idem.Outcome{idem.OutcomeRejected, idem.OutcomeRejected, idem.OutcomeRejected, idem.OutcomeRejected},
			[4]string{"refusal", "refusal", "refusal", "refusal"}},
		{"mark of a nested call", nested,
			[4]idem.Outcome{idem.OutcomeUnknown, idem.OutcomeNotExecuted, idem.OutcomeUnknown, idem.OutcomeUnknown},
			[4]string{"recovery", "run", "recovery", "run"}},
		{"panic", nil, [4]idem.Outcome{}, [4]string{"recovery", "run", "recovery", "run"}},
	}
	for _, tt := range tests {
		for i, mode := range modes {
			t.Run(tt.name+"/"+mode.name, func(t *testing.T) {
				seen := &events{}
				s := newServer(t, server.Config{Effects: mode.effects, Observer: seen})
				runs := 0
				run := func() (idem.Result[int], error) {
					return server.RunResult(t.Context(), s, idem.Intent{Scope: "q", ID: "1"}, func(ctx context.Context) (int, error) {
						runs++
						if mode.begin {
							if err := server.BeginEffect(ctx); err != nil {
								t.Error(err)
							}
						}
						if runs > 1 {
							return 7, nil
						}
						if tt.err == nil {
							panic("boom")
						}
						return 0, tt.err
					})
				}
				func() {
					defer func() {
						if p := recover(); (p == "boom") != (tt.err == nil) {
							t.Errorf("recovered %v", p)
						}
					}()
					res, err := run()
					var e *idem.Error
					if !errors.As(err, &e) || !errors.Is(err, plain) || e.Outcome != tt.outcome[i] || res.Outcome != e.Outcome || res.Attempts != 1 || e.Attempts != 1 {
						t.Errorf("got %+v, %v; want %v", res, err, tt.outcome[i])
					}
				}()
				if all := seen.take(); len(all) != 1 {
					t.Errorf("events %+v", all)
				}
				res, err := run()
				switch tt.meets[i] {
				case "run":
					if err != nil || res.Value != 7 || runs != 2 {
						t.Errorf("got %+v, %v after %d runs", res, err, runs)
					}
				case "recovery":
					if !errors.Is(err, server.ErrRecoveryRequired) || !errors.Is(err, idem.ErrOutcomeUnknown) || runs != 1 {
						t.Errorf("got %+v, %v after %d runs", res, err, runs)
					}
				case "refusal":
					if !errors.Is(err, idem.ErrRejected) || res.Source != idem.SourceReplayed || runs != 1 {
						t.Errorf("got %+v, %v after %d runs", res, err, runs)
					}
				}
			})
		}
	}
}

func TestBeginEffect(t *testing.T) {
	t.Run("outside a protected call", func(t *testing.T) {
		if err := server.BeginEffect(t.Context()); err == nil {
			t.Error("no error")
		}
		server.MarkNotExecuted(t.Context())
	})
	t.Run("without a key on an optional route", func(t *testing.T) {
		c := &counter{do: func(w http.ResponseWriter, r *http.Request, _ int) {
			if err := server.BeginEffect(r.Context()); err != nil {
				t.Error(err)
			}
			server.MarkNotExecuted(r.Context())
		}}
		h := newServer(t, server.Config{Effects: server.Marked}).Handler(c, server.WithOptional())
		want(t, post(h, "", "{}"), 200, "")
		c.want(t, 1)
	})
	t.Run("writes once", func(t *testing.T) {
		renewals := 0
		store := &hooked{Store: newStore(t), renew: func(_ keystore.RenewParams, next func() error) error { renewals++; return next() }}
		s := newServer(t, server.Config{Store: store, Effects: server.Marked})
		_, err := server.Run(t.Context(), s, idem.Intent{Scope: "q", ID: "1"}, func(ctx context.Context) (int, error) {
			return 0, errors.Join(server.BeginEffect(ctx), server.BeginEffect(ctx))
		})
		if err != nil || renewals != 1 {
			t.Errorf("%d renewals, %v", renewals, err)
		}
	})
	t.Run("the store fails", func(t *testing.T) {
		store := &hooked{Store: newStore(t), renew: func(keystore.RenewParams, func() error) error { return errDown }}
		s := newServer(t, server.Config{Store: store, Effects: server.Marked})
		in := idem.Intent{Scope: "q", ID: "1"}
		_, err := server.Run(t.Context(), s, in, func(ctx context.Context) (int, error) { return 0, server.BeginEffect(ctx) })
		if !errors.Is(err, idem.ErrStore) || !errors.Is(err, errDown) || !errors.Is(err, idem.ErrNotExecuted) {
			t.Error(err)
		}
		if v, err := server.Run(t.Context(), s, in, func(context.Context) (int, error) { return 3, nil }); v != 3 || err != nil {
			t.Error(v, err)
		}
	})
	t.Run("after the call", func(t *testing.T) {
		var late context.Context
		s := newServer(t, server.Config{Effects: server.Marked})
		_, _ = server.Run(t.Context(), s, idem.Intent{Scope: "q", ID: "1"}, func(ctx context.Context) (int, error) {
			late = ctx
			return 0, nil
		})
		if err := server.BeginEffect(late); !errors.Is(err, idem.ErrLeaseLost) || !strings.Contains(err.Error(), "ended") || late.Err() == nil {
			t.Error(err, late.Err())
		}
	})
	for _, mode := range []server.Effects{server.Opaque, server.Marked, server.Idempotent} {
		t.Run("context ended/"+mode.String(), func(t *testing.T) {
			s := newServer(t, server.Config{Effects: mode})
			_, _ = server.Run(t.Context(), s, idem.Intent{Scope: "q", ID: "1"}, func(ctx context.Context) (int, error) {
				ctx, cancel := context.WithCancel(ctx)
				if err := server.BeginEffect(ctx); err != nil {
					t.Error(err)
				}
				cancel()
				if err := server.BeginEffect(ctx); !errors.Is(err, idem.ErrLeaseLost) || !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
				return 0, nil
			})
		})
	}
	t.Run("the lease could not be renewed", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			store := &hooked{Store: newStore(t), renew: func(keystore.RenewParams, func() error) error { return errDown }}
			s := newServer(t, server.Config{Store: store, Effects: server.Idempotent})
			_, _ = server.Run(t.Context(), s, idem.Intent{Scope: "q", ID: "1"}, func(ctx context.Context) (int, error) {
				time.Sleep(29 * time.Second)
				if err := server.BeginEffect(ctx); err != nil {
					t.Errorf("within the lease: %v", err)
				}
				time.Sleep(2 * time.Second)
				if err := server.BeginEffect(ctx); !errors.Is(err, idem.ErrLeaseLost) {
					t.Errorf("after the lease: %v", err)
				}
				return 0, nil
			})
		})
	})
	t.Run("behind a TimeoutHandler", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			late := make(chan error, 1)
			inner := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				time.Sleep(time.Minute) // whatever its context says
				late <- server.BeginEffect(r.Context())
			})
			h := newServer(t, server.Config{Effects: server.Marked}).Handler(http.TimeoutHandler(inner, time.Second, ""))
			want(t, post(h, "k", "{}"), 503, "")
			if err := <-late; !errors.Is(err, idem.ErrLeaseLost) {
				t.Errorf("got %v: the key was free already", err)
			}
		})
	})
}
