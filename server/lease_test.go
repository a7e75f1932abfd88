package server_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/keystore"
	"github.com/idem-go/idem/server"
)

// A process that dies neither renews nor settles. Here its store calls fail
// from some point on, and its handler never comes back.
func TestB139DeadOwner(t *testing.T) {
	for _, mode := range modes {
		t.Run(mode.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := newStore(t)
				var dead atomic.Bool
				gone := func(next func() error) error {
					if dead.Load() {
						return errDown
					}
					return next()
				}
				dying := &hooked{Store: store,
					renew:    func(_ keystore.RenewParams, next func() error) error { return gone(next) },
					complete: func(_ keystore.CompleteParams, next func() error) error { return gone(next) },
					release:  func(_ keystore.ReleaseParams, next func() error) error { return gone(next) },
				}
				forever := make(chan struct{})
				s, err := server.New(server.Config{Store: dying, Effects: mode.effects, Scope: server.SingleTenant})
				if err != nil {
					t.Fatal(err)
				}
				go post(s.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if mode.begin {
						_ = server.BeginEffect(r.Context())
					}
					<-forever
				})), "k", "{}")
				synctest.Wait()
				dead.Store(true)

				c := &counter{}
				h := newServer(t, server.Config{Store: store, Effects: mode.effects}).Handler(c)
				want(t, post(h, "k", "{}"), 409, "in-flight")
				time.Sleep(30 * time.Second)
				w := post(h, "k", "{}")
				if mode.effects == server.Opaque || mode.begin {
					// B142: an effect that may have happened is not repeated.
					want(t, w, 409, "recovery-required")
					if w.Header().Get("Retry-After") != "" {
						t.Error("it asks for another try, which can't help")
					}
					c.want(t, 0)
				} else {
					wantFirst(t, w, 201, "made")
				}
				close(forever)
				ctx, cancel := context.WithCancel(t.Context())
				cancel()
				_ = s.Shutdown(ctx)
			})
		})
	}
}

// B143, B144: A outlives its lease, B takes over. A's store calls must change
// nothing, and A's caller gets what is true.
func TestB143Fenced(t *testing.T) {
	// What B comes to before A ends, and what A's caller is told.
	tests := []struct {
		name   string
		b      func(w http.ResponseWriter, finish chan struct{})
		status int
		code   string
		event  idem.Outcome
	}{
		{"B is done", func(w http.ResponseWriter, _ chan struct{}) { status(201, "by B")(w, nil, 0) }, 201, "", idem.OutcomeExecuted},
		{"B still runs", func(w http.ResponseWriter, finish chan struct{}) { <-finish; status(201, "by B")(w, nil, 0) }, 409, "in-flight", idem.OutcomeInFlight},
		{"B has failed, C asked for something else", nil, 409, "recovery-required", idem.OutcomeUnknown},
		{"B has failed", func(w http.ResponseWriter, _ chan struct{}) { status(503, "")(w, nil, 0) }, 409, "recovery-required", idem.OutcomeUnknown},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := newStore(t)
				// A is cut off from the store until its lease is over.
				var cut atomic.Bool
				cut.Store(true)
				lagging := &hooked{Store: store, renew: func(_ keystore.RenewParams, next func() error) error {
					if cut.Load() {
						return errDown
					}
					return next()
				}}
				seen := &events{}
				var cause error
				a := newServer(t, server.Config{Store: lagging, Effects: server.Idempotent, Observer: seen}).Handler(
					http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						<-r.Context().Done()
						cause = context.Cause(r.Context())
						if err := server.BeginEffect(r.Context()); !errors.Is(err, idem.ErrLeaseLost) {
							t.Errorf("BeginEffect: %v", err)
						}
						status(200, "by A")(w, r, 0)
					}))
				finish := make(chan struct{})
				b := newServer(t, server.Config{Store: store, Effects: server.Idempotent}).Handler(
					http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						switch {
						case tt.b != nil:
							tt.b(w, finish)
						case r.ContentLength == 1:
							status(201, "for C")(w, nil, 0)
						default:
							w.WriteHeader(503)
						}
					}))

				got := make(chan *httptest.ResponseRecorder, 1)
				go func() { got <- post(a, "k", "{}") }()
				time.Sleep(31 * time.Second)
				go func() {
					post(b, "k", "{}")
					if tt.b == nil {
						post(b, "k", "3")
					}
				}()
				synctest.Wait()
				cut.Store(false)
				w := <-got // A's next renewal tells it
				if !errors.Is(cause, idem.ErrLeaseLost) {
					t.Errorf("A's context ended with %v", cause)
				}
				if tt.code == "" {
					wantReplay(t, w, tt.status, "by B")
				} else {
					want(t, w, tt.status, tt.code)
				}
				if all := seen.take(); len(all) != 1 || all[0].Name != idem.EventFenced || all[0].Outcome != tt.event {
					t.Errorf("events %+v", all)
				}
				close(finish)
				synctest.Wait()
				w = post(b, "k", "{}")
				if body := w.Body.String(); body == "by A" {
					t.Error("A's answer has replaced B's")
				}
			})
		})
	}
}

func TestB143FencedRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t)
		lagging := &hooked{Store: store, renew: func(keystore.RenewParams, func() error) error { return errDown }}
		a := newServer(t, server.Config{Store: lagging, Effects: server.Idempotent})
		b := newServer(t, server.Config{Store: store, Effects: server.Idempotent})
		type out map[string]int
		run := func(s *server.Server, id string, v out, wait time.Duration) (idem.Result[out], error) {
			return server.RunResult(t.Context(), s, idem.Intent{Scope: "q", ID: id}, func(context.Context) (out, error) {
				time.Sleep(wait)
				return v, nil
			})
		}
		go func() { _, _ = run(b, "2", out{}, time.Hour) }()
		for _, id := range []string{"1", "2"} {
			done := make(chan struct{})
			go func() {
				defer close(done)
				time.Sleep(31 * time.Second)
				_, _ = run(b, id, out{"B": 1}, 0)
			}()
			res, err := run(a, id, out{"A": 1}, time.Minute)
			<-done
			switch id {
			case "1":
				if err != nil || len(res.Value) != 1 || res.Value["B"] != 1 || res.Source != idem.SourceReplayed {
					t.Errorf("got %+v, %v", res, err)
				}
			case "2":
				if !errors.Is(err, idem.ErrInFlight) {
					t.Errorf("got %+v, %v", res, err)
				}
			}
		}
		time.Sleep(2 * time.Hour)
	})
}

// B144: a store call that changed no row is a lost lease, whichever it is.
func TestB144NoRowChanged(t *testing.T) {
	tests := map[string]struct {
		cut    func(*hooked)
		status int // of the handler
	}{
		"heartbeat": {func(s *hooked) {
			s.renew = func(keystore.RenewParams, func() error) error { return keystore.ErrFenced }
		}, 0},
		"complete": {func(s *hooked) {
			s.complete = func(keystore.CompleteParams, func() error) error { return keystore.ErrFenced }
		}, 201},
		"release": {func(s *hooked) {
			s.release = func(keystore.ReleaseParams, func() error) error { return keystore.ErrFenced }
		}, 503},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := &hooked{Store: newStore(t)}
				tt.cut(store)
				seen := &events{}
				h := newServer(t, server.Config{Store: store, Effects: server.Idempotent, Observer: seen}).Handler(
					http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						if tt.status != 0 {
							w.WriteHeader(tt.status)
							return
						}
						<-r.Context().Done()
						if cause := context.Cause(r.Context()); !errors.Is(cause, idem.ErrLeaseLost) {
							t.Errorf("the context ended with %v", cause)
						}
						panic(http.ErrAbortHandler)
					}))
				w, _ := attempt(h, request("k", "{}"))
				if tt.status != 0 {
					want(t, w, 409, "in-flight")
					if got := seen.names(); got != idem.EventFenced {
						t.Errorf("events %q", got)
					}
				}
			})
		})
	}
}

// A late answer is accepted as long as nobody has taken the record.
func TestMaxRunLateAnswer(t *testing.T) {
	for _, mode := range modes {
		t.Run(mode.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := &counter{do: func(w http.ResponseWriter, r *http.Request, _ int) {
					if mode.begin {
						_ = server.BeginEffect(r.Context())
					}
					time.Sleep(3 * time.Minute) // whatever its context says
					status(201, "late")(w, r, 0)
				}}
				h := newServer(t, server.Config{Effects: mode.effects}).Handler(c, server.WithMaxRun(time.Minute))
				go func() {
					time.Sleep(2 * time.Minute)
					if mode.effects == server.Opaque || mode.begin {
						want(t, post(h, "k", "{}"), 409, "recovery-required")
					}
				}()
				wantFirst(t, post(h, "k", "{}"), 201, "late")
				wantReplay(t, post(h, "k", "{}"), 201, "late")
				c.want(t, 1)
			})
		})
	}
}

// B140, B146: Retry-After is within the lease, whatever the clocks say.
func TestRetryAfter(t *testing.T) {
	tests := []struct {
		age, left, lease time.Duration
		want             int
	}{
		{0, 30 * time.Second, 0, 1},
		{3 * time.Second, 29 * time.Second, 0, 1},
		{10 * time.Second, 25 * time.Second, 0, 5},
		{20 * time.Second, 25 * time.Second, 0, 10},
		{time.Hour, 25 * time.Second, 0, 15}, // never the whole lease
		{time.Hour, 4 * time.Second, 0, 4},
		{time.Hour, time.Millisecond, 0, 1},
		{-5 * time.Minute, 30 * time.Second, 0, 1}, // B146
		{5 * time.Minute, 10 * time.Minute, 0, 15}, // B146
		{time.Hour, time.Second, time.Second, 1},
	}
	for _, tt := range tests {
		store := &hooked{Store: newStore(t), claim: func(keystore.ClaimParams, func() (keystore.Claim, error)) (keystore.Claim, error) {
			return keystore.Claim{Status: keystore.InFlight, Record: keystore.Record{State: keystore.Running, Age: tt.age, LeaseLeft: tt.left}}, nil
		}}
		h := newServer(t, server.Config{Store: store, Wait: server.NoWait, Lease: tt.lease, TooEarly: true}).Handler(&counter{})
		w := post(h, "k", "{}")
		want(t, w, http.StatusTooEarly, "in-flight")
		if got := w.Header().Get("Retry-After"); got != strconv.Itoa(tt.want) {
			t.Errorf("age %v, lease left %v: Retry-After %s, want %d", tt.age, tt.left, got, tt.want)
		}
	}
}

// B091: the client hangs up, and the handler goes on.
func TestB091HangUp(t *testing.T) {
	started, gone, finished := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	c := &counter{do: func(w http.ResponseWriter, r *http.Request, _ int) {
		close(started)
		<-gone
		finished <- r.Context().Err()
		status(201, "made")(w, r, 0)
	}}
	h := newServer(t, server.Config{}).Handler(c)
	ts := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-First") != "" {
			go func() { <-r.Context().Done(); close(gone) }() // the server has noticed
		}
		h.ServeHTTP(w, r)
	}))
	defer ts.Close()
	ctx, cancel := context.WithCancel(t.Context())
	do := func(ctx context.Context, first string) (*http.Response, error) {
		r, _ := http.NewRequestWithContext(ctx, "POST", ts.URL, nil)
		r.Header.Set("Idempotency-Key", "k")
		r.Header.Set("X-First", first)
		return ts.Client().Do(r)
	}
	go func() { <-started; cancel() }()
	if _, err := do(ctx, "1"); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if err := <-finished; err != nil {
		t.Errorf("the handler's context: %v", err)
	}
	resp, err := do(t.Context(), "") // waits for the first one, if need be
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if body, _ := io.ReadAll(resp.Body); string(body) != "made" || resp.Header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("got %s %v", body, resp.Header)
	}
	c.want(t, 1)
}
