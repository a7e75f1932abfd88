package server_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/server"
)

// inTx is a handler whose effect is named after its run.
func inTx(do func(w http.ResponseWriter, r *http.Request, run int)) *counter {
	return &counter{do: func(w http.ResponseWriter, r *http.Request, run int) {
		effect(r.Context(), strconv.Itoa(run))
		do(w, r, run)
	}}
}

// What is released in Idempotent mode is rolled back in Transaction mode.
func TestEffectsTableTransaction(t *testing.T) {
	for _, tt := range failures {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				defer time.Sleep(2 * time.Minute) // until all handlers are back
				seen, store := &events{}, newTxStore(t)
				c := inTx(func(w http.ResponseWriter, r *http.Request, run int) {
					if err := server.BeginEffect(r.Context()); err != nil {
						t.Error(err)
					}
					if run > 1 {
						answer(201)(w, r)
						return
					}
					tt.fail(w, r)
				})
				h := newServer(t, server.Config{Store: store, Effects: server.Transaction, Observer: seen}).Handler(c)
				first, _ := attempt(h, request("k", "{}"))
				meets := tt.meets[3]
				if replayed := first.Header().Get("Idempotent-Replayed"); (replayed == "false") != (meets == "replay") {
					t.Errorf("the first answer says Idempotent-Replayed %q", replayed)
				}
				if all := seen.take(); len(all) != 1 || len(all[0].Attempts) != 1 || all[0].Name == idem.EventUnresolved {
					t.Errorf("events %+v", all)
				}
				second := post(h, "k", "{}")
				switch {
				case meets == "run":
					wantFirst(t, second, 201, "first")
					c.want(t, 2)
					store.wantEffects(t, "2")
				case first.Code >= 400: // the refusal is kept, the effect is not
					wantReplay(t, second, first.Code, first.Body.String())
					c.want(t, 1)
					store.wantEffects(t)
				default:
					wantReplay(t, second, first.Code, first.Body.String())
					c.want(t, 1)
					store.wantEffects(t, "1")
				}
			})
		})
	}
}

func TestEffectsTableTransactionRun(t *testing.T) {
	plain := errors.New("it failed")
	for _, tt := range []struct {
		name    string
		err     error // of the first run; nil panics
		outcome idem.Outcome
		meets   string
	}{
		{"error", plain, idem.OutcomeNotExecuted, "run"},
		{"Unknown", idem.Unknown(plain), idem.OutcomeUnknown, "run"},
		{"NotExecuted", idem.NotExecuted(plain), idem.OutcomeNotExecuted, "run"},
		{"Rejected", idem.Rejected(plain), idem.OutcomeRejected, "refusal"},
		{"panic", nil, 0, "run"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			store := newTxStore(t)
			s := newServer(t, server.Config{Store: store, Effects: server.Transaction})
			runs := 0
			run := func() (idem.Result[int], error) {
				return server.RunResult(t.Context(), s, idem.Intent{Scope: "q", ID: "1"}, func(ctx context.Context) (int, error) {
					runs++
					effect(ctx, strconv.Itoa(runs))
					switch {
					case runs > 1:
						return 7, nil
					case tt.err == nil:
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
				if !errors.As(err, &e) || !errors.Is(err, plain) || e.Outcome != tt.outcome || res.Outcome != e.Outcome || res.Attempts != 1 {
					t.Errorf("got %+v, %v; want %v", res, err, tt.outcome)
				}
			}()
			res, err := run()
			if tt.meets == "refusal" {
				if !errors.Is(err, idem.ErrRejected) || res.Source != idem.SourceReplayed || runs != 1 {
					t.Errorf("got %+v, %v after %d runs", res, err, runs)
				}
				store.wantEffects(t)
				return
			}
			if err != nil || res.Value != 7 || res.Source != idem.SourceExecuted || runs != 2 {
				t.Errorf("got %+v, %v after %d runs", res, err, runs)
			}
			if res, err := run(); err != nil || res.Value != 7 || res.Source != idem.SourceReplayed {
				t.Errorf("replayed %+v, %v", res, err)
			}
			store.wantEffects(t, "2")
		})
	}
}

func TestStateTableTransaction(t *testing.T) {
	for _, tt := range stateTable {
		t.Run(tt.state+"/"+payload(tt.other), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				finish := make(chan struct{})
				c := inTx(func(w http.ResponseWriter, r *http.Request, run int) {
					if run == 1 && tt.state != "not seen" {
						<-finish
					}
					body, _ := io.ReadAll(r.Body)
					w.WriteHeader(http.StatusCreated)
					_, _ = w.Write(body)
				})
				h := newServer(t, server.Config{Store: newTxStore(t), Effects: server.Transaction}).Handler(c)
				bring(tt.state, finish, func() { post(h, "k", payload(false)) })
				runs := c.runs()
				w := post(h, "k", payload(tt.other))
				switch tt.meets {
				case "run":
					wantFirst(t, w, 201, payload(tt.other))
					runs++
				case "replay":
					wantReplay(t, w, 201, payload(false))
				case "mismatch":
					want(t, w, 422, "key-reused")
				case "in-flight":
					want(t, w, 409, "in-flight")
				}
				c.want(t, runs)
				end(tt.state, finish)
			})
		})
	}
}

// Duplicates must not take the connections that the running request, and
// others, need.
func TestTransactionWaiters(t *testing.T) {
	for _, fails := range []bool{false, true} {
		for _, replicas := range []int{1, 2} {
			t.Run(strconv.Itoa(replicas)+" replicas, the first fails "+strconv.FormatBool(fails), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					store := newTxStore(t)
					store.pool = make(chan struct{}, 1+replicas)
					c := inTx(func(w http.ResponseWriter, r *http.Request, run int) {
						time.Sleep(time.Second)
						if fails && run == 1 {
							w.WriteHeader(503)
							return
						}
						status(201, "made")(w, r, run)
					})
					var mounts []http.Handler
					for range replicas {
						mounts = append(mounts, newServer(t, server.Config{Store: store, Effects: server.Transaction}).Handler(c, server.WithWait(time.Minute)))
					}
					go post(mounts[0], "k", "{}")
					synctest.Wait()
					var wg sync.WaitGroup
					for i := range 50 {
						wg.Go(func() {
							if w := post(mounts[i%replicas], "k", "{}"); w.Code != 201 || w.Body.String() != "made" {
								t.Errorf("got %d %s", w.Code, w.Body)
							}
						})
					}
					synctest.Wait()
					if used := len(store.pool); used != 1 {
						t.Errorf("%d connections are in use while all wait", used)
					}
					began := time.Now()
					effects := []string{"1"}
					if fails {
						effects = []string{"2"}
					}
					wg.Wait()
					if took := time.Since(began); took > 3*time.Second {
						t.Errorf("took %v", took)
					}
					store.wantEffects(t, effects...)
					if n := store.transactions(); replicas == 1 && n != len(effects)+c.runs()-1 {
						t.Errorf("%d transactions", n)
					}
				})
			})
		}
	}
}

func TestTransactionFate(t *testing.T) {
	tests := []struct {
		name   string
		commit func(store *txStore, other http.Handler, in *tx) error
		first  func(t *testing.T, w *httptest.ResponseRecorder)
		// next is what a retry gets.
		next    func(t *testing.T, w *httptest.ResponseRecorder)
		effects []string
	}{
		{"committed, but the reply is lost",
			func(_ *txStore, _ http.Handler, in *tx) error { return errors.Join(in.apply(), errDown) },
			func(t *testing.T, w *httptest.ResponseRecorder) { wantFirst(t, w, 201, "1") },
			func(t *testing.T, w *httptest.ResponseRecorder) { wantReplay(t, w, 201, "1") },
			[]string{"1"}},
		{"not committed",
			func(*txStore, http.Handler, *tx) error { return errDown },
			func(t *testing.T, w *httptest.ResponseRecorder) { want(t, w, 503, "rolled-back") },
			func(t *testing.T, w *httptest.ResponseRecorder) { wantFirst(t, w, 201, "2") },
			[]string{"2"}},
		{"not committed, and run elsewhere",
			func(store *txStore, other http.Handler, in *tx) error {
				store.release(in)
				post(other, "k", "{}")
				return errDown
			},
			func(t *testing.T, w *httptest.ResponseRecorder) { wantReplay(t, w, 201, "2") },
			func(t *testing.T, w *httptest.ResponseRecorder) { wantReplay(t, w, 201, "2") },
			[]string{"2"}},
		{"not committed, and used elsewhere for something else",
			func(store *txStore, other http.Handler, in *tx) error {
				store.release(in)
				post(other, "k", "[]")
				return errDown
			},
			func(t *testing.T, w *httptest.ResponseRecorder) { want(t, w, 422, "key-reused") },
			func(t *testing.T, w *httptest.ResponseRecorder) { want(t, w, 422, "key-reused") },
			[]string{"2"}},
		{"the commit goes on after its reply is lost",
			func(store *txStore, _ http.Handler, in *tx) error {
				store.linger(in, time.Second)
				return errDown
			},
			func(t *testing.T, w *httptest.ResponseRecorder) { wantFirst(t, w, 201, "1") },
			func(t *testing.T, w *httptest.ResponseRecorder) { wantReplay(t, w, 201, "1") },
			[]string{"1"}},
		{"the commit goes on for long",
			func(store *txStore, _ http.Handler, in *tx) error {
				store.linger(in, time.Minute)
				return errDown
			},
			func(t *testing.T, w *httptest.ResponseRecorder) {
				want(t, w, 503, "commit-unknown")
				time.Sleep(time.Minute)
			},
			func(t *testing.T, w *httptest.ResponseRecorder) { wantReplay(t, w, 201, "1") },
			[]string{"1"}},
		{"committed, and then the database is down",
			func(store *txStore, _ http.Handler, in *tx) error {
				store.begin = func() error { return errDown }
				return errors.Join(in.apply(), errDown)
			},
			func(t *testing.T, w *httptest.ResponseRecorder) { want(t, w, 503, "commit-unknown") },
			func(t *testing.T, w *httptest.ResponseRecorder) { wantReplay(t, w, 201, "1") },
			[]string{"1"}},
		{"not committed, and then the database is down",
			func(store *txStore, _ http.Handler, in *tx) error {
				store.begin = func() error { return errDown }
				return errDown
			},
			func(t *testing.T, w *httptest.ResponseRecorder) { want(t, w, 503, "commit-unknown") },
			func(t *testing.T, w *httptest.ResponseRecorder) { wantFirst(t, w, 201, "2") },
			[]string{"2"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := newTxStore(t)
				c := inTx(func(w http.ResponseWriter, r *http.Request, run int) {
					status(201, strconv.Itoa(run))(w, r, run)
				})
				cfg := server.Config{Store: store, Effects: server.Transaction}
				h, other := newServer(t, cfg).Handler(c), newServer(t, cfg).Handler(c)
				store.commit = func(in *tx) error {
					store.commit = nil
					return tt.commit(store, other, in)
				}
				tt.first(t, post(h, "k", "{}"))
				store.begin = nil
				tt.next(t, post(h, "k", "{}"))
				store.wantEffects(t, tt.effects...)
			})
		})
	}
}
