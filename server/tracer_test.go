package server_test

import (
	"context"
	"fmt"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/keystore"
	"github.com/idem-go/idem/server"
)

// tracer writes down what it is told. Operations and attempts have names that
// their contexts carry.
type tracer struct {
	mu     sync.Mutex
	ops    int
	log    []string
	events []idem.Event
}

type spanKey struct{}

func span(ctx context.Context) string { s, _ := ctx.Value(spanKey{}).(string); return s }

func (tr *tracer) Start(ctx context.Context, e idem.Event, r *http.Request) (context.Context, string) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.ops++
	name := fmt.Sprintf("op%d", tr.ops)
	tr.log = append(tr.log, fmt.Sprintf("start %s half=%s request=%t", name, e.Half, r != nil))
	return context.WithValue(ctx, spanKey{}, name), name
}

func (tr *tracer) StartAttempt(ctx context.Context, a idem.Attempt, _ *http.Request) context.Context {
	return context.WithValue(ctx, spanKey{}, fmt.Sprintf("%s/%d", span(ctx), a.Number))
}

func (tr *tracer) EndAttempt(ctx context.Context, a idem.Attempt) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.log = append(tr.log, fmt.Sprintf("end %s %v", span(ctx), a.Outcome))
}

func (tr *tracer) Observe(ctx context.Context, e idem.Event) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	name, _, _ := strings.Cut(span(ctx), "/") // in a panic it is the attempt's context
	tr.log = append(tr.log, fmt.Sprintf("end %s %s", name, e.Name))
	tr.events = append(tr.events, e)
}

func (tr *tracer) want(t *testing.T, want ...string) {
	t.Helper()
	tr.mu.Lock()
	defer tr.mu.Unlock()
	if !slices.Equal(tr.log, want) {
		t.Errorf("told\n  %s\nwant\n  %s", strings.Join(tr.log, "\n  "), strings.Join(want, "\n  "))
	}
}

// storeFor returns a store that does what the effects need.
func storeFor(t *testing.T, effects server.Effects) keystore.Store {
	if effects == server.Transaction {
		return newTxStore(t)
	}
	return newStore(t)
}

// The handler runs in an attempt of its operation; a replay is led to it. What
// is no operation begins none.
func TestTracerOfHandler(t *testing.T) {
	for _, effects := range []server.Effects{server.Opaque, server.Marked, server.Idempotent, server.Transaction} {
		t.Run(fmt.Sprint(effects), func(t *testing.T) {
			tr := &tracer{}
			var ran []string
			c := &counter{do: func(w http.ResponseWriter, r *http.Request, _ int) {
				ran = append(ran, span(r.Context()))
				w.WriteHeader(http.StatusCreated)
			}}
			s := newServer(t, server.Config{Store: storeFor(t, effects), Effects: effects, Optional: true, Observer: tr})
			h := s.Handler(s.Handler(c))
			want(t, post(h, "", "{}"), http.StatusCreated, "")
			post(h, "k1", "{}")
			wantReplay(t, post(h, "k1", "{}"), http.StatusCreated, "")
			want(t, post(h, "k1", "[]"), http.StatusUnprocessableEntity, "key-reused")
			want(t, post(h, " ", "{}"), http.StatusBadRequest, "key-invalid")
			if !slices.Equal(ran, []string{"", "op1/1"}) {
				t.Errorf("the handler ran in %q", ran)
			}
			tr.want(t, "start op1 half=server request=true", "end op1/1 executed", "end op1 executed",
				"start op2 half=server request=true", "end op2 replayed", "start op3 half=server request=true", "end op3 mismatch",
				"start op4 half=server request=true", "end op4 refused")
			if tr.events[0].Origin != "" || tr.events[1].Origin != "op1" {
				t.Errorf("origins %q and %q; want the replay's to be op1", tr.events[0].Origin, tr.events[1].Origin)
			}
		})
	}
}

func TestTracerOfRun(t *testing.T) {
	for _, effects := range []server.Effects{server.Opaque, server.Transaction} {
		t.Run(fmt.Sprint(effects), func(t *testing.T) {
			tr := &tracer{}
			s := newServer(t, server.Config{Store: storeFor(t, effects), Effects: effects, Observer: tr})
			in := idem.Intent{Scope: "queue", ID: "m1"}
			var ran string
			for range 2 {
				if _, err := server.Run(t.Context(), s, in, func(ctx context.Context) (int, error) {
					ran = span(ctx)
					return 1, nil
				}); err != nil {
					t.Fatal(err)
				}
			}
			_, _ = server.Run(t.Context(), s, idem.Intent{}, func(context.Context) (int, error) { return 1, nil })
			if ran != "op1/1" {
				t.Errorf("the function ran in %q", ran)
			}
			tr.want(t, "start op1 half=server request=false", "end op1/1 executed", "end op1 executed",
				"start op2 half=server request=false", "end op2 replayed", "start op3 half=server request=false", "end op3 refused")
			if tr.events[1].Origin != "op1" {
				t.Errorf("the replay's origin is %q, want op1", tr.events[1].Origin)
			}
		})
	}
}

func TestTracerOfPanic(t *testing.T) {
	for effects, event := range map[server.Effects]string{
		server.Opaque: "unresolved", server.Marked: "failed", server.Transaction: "failed",
	} {
		t.Run(fmt.Sprint(effects), func(t *testing.T) {
			tr := &tracer{}
			c := &counter{do: func(http.ResponseWriter, *http.Request, int) { panic("boom") }}
			h := newServer(t, server.Config{Store: storeFor(t, effects), Effects: effects, Observer: tr}).Handler(c)
			func() {
				defer func() { _ = recover() }()
				post(h, "k1", "{}")
			}()
			outcome := map[string]string{"unresolved": "unknown", "failed": "not-executed"}[event]
			tr.want(t, "start op1 half=server request=true", "end op1/1 "+outcome, "end op1 "+event)
		})
	}
}

// What a tombstone stands for, a duplicate is led to as well.
func TestOriginOfTombstone(t *testing.T) {
	tr := &tracer{}
	h := newServer(t, server.Config{Observer: tr}).Handler(&counter{}, server.WithoutStoredAnswer())
	post(h, "k1", "{}")
	want(t, post(h, "k1", "{}"), http.StatusConflict, "response-not-retained")
	if tr.events[1].Origin != "op1" {
		t.Errorf("the origin is %q, want op1", tr.events[1].Origin)
	}
}

// Reconcile has an event, and so a beginning, for each record that it settles.
func TestTracerOfReconcile(t *testing.T) {
	tr := &tracer{}
	store := newStore(t)
	first := newServer(t, server.Config{Store: store}).Handler(&counter{do: func(w http.ResponseWriter, _ *http.Request, _ int) {
		w.WriteHeader(http.StatusInternalServerError)
	}})
	post(first, "k1", "{}")
	s := newServer(t, server.Config{Store: store, Observer: tr, Recover: func(context.Context, server.Pending) (server.Resolution, error) {
		return server.Resolution{Outcome: idem.OutcomeNotExecuted}, nil
	}})
	if n, err := s.Reconcile(t.Context()); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	tr.want(t, "start op1 half=server request=false", "end op1 recovered")
}

// Waited and Age tell what a duplicate was kept by, and how old its answer is.
func TestWaitedAndAge(t *testing.T) {
	for _, effects := range []server.Effects{server.Opaque, server.Transaction} {
		t.Run(fmt.Sprint(effects), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tr := &tracer{}
				s := newServer(t, server.Config{Store: storeFor(t, effects), Effects: effects, Observer: tr})
				h := s.Handler(&counter{do: func(http.ResponseWriter, *http.Request, int) { time.Sleep(time.Second) }})
				go post(h, "k1", "{}")
				time.Sleep(100 * time.Millisecond)
				post(h, "k1", "{}")
				time.Sleep(time.Hour)
				post(h, "k1", "{}")
				tr.mu.Lock()
				defer tr.mu.Unlock()
				slices.SortStableFunc(tr.events, func(a, b idem.Event) int { return a.Started.Compare(b.Started) })
				for i, want := range []struct{ waited, age time.Duration }{{0, 0}, {900 * time.Millisecond, time.Second}, {0, time.Hour + time.Second}} {
					if effects == server.Transaction && i > 0 {
						want.age -= time.Second // its record is of the commit
					}
					if e := tr.events[i]; e.Waited != want.waited || e.Age != want.age {
						t.Errorf("event %d, %s: waited %v for an answer of age %v, want %v", i, e.Name, e.Waited, e.Age, want)
					}
				}
			})
		})
	}
}

// An Observer that never returns delays a request by a moment, no more.
func TestObserverBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		block := make(chan struct{})
		h := newServer(t, server.Config{Observer: blocking(block)}).Handler(&counter{})
		began := time.Now()
		wantFirst(t, post(h, "k1", "{}"), http.StatusCreated, "made")
		if took := time.Since(began); took > time.Minute {
			t.Errorf("the request took %v", took)
		}
		close(block)
	})
}

type blocking chan struct{}

func (b blocking) Observe(context.Context, idem.Event) { <-b }

// What was begun ends, also where the application's hooks and writers panic.
func TestTracerOfUnwinding(t *testing.T) {
	created := &counter{}
	for name, broken := range map[string]struct {
		cfg   server.Config
		serve func(h http.Handler)
	}{
		"Authorize": {server.Config{Authorize: func(*http.Request) error { panic("hook") }}, func(h http.Handler) {
			post(h, "k1", "{}")
			post(h, "k1", "{}")
		}},
		"store": {server.Config{Store: &hooked{Store: newStore(t), claim: func(keystore.ClaimParams, func() (keystore.Claim, error)) (keystore.Claim, error) {
			panic("store")
		}}}, func(h http.Handler) { post(h, "k1", "{}") }},
		"writer": {server.Config{}, func(h http.Handler) { h.ServeHTTP(brokenWriter{}, request("k1", "{}")) }},
	} {
		t.Run(name, func(t *testing.T) {
			tr := &tracer{}
			broken.cfg.Observer = tr
			h := newServer(t, broken.cfg).Handler(created)
			func() {
				defer func() {
					if recover() == nil {
						t.Error("nothing panicked")
					}
				}()
				broken.serve(h)
			}()
			tr.mu.Lock()
			defer tr.mu.Unlock()
			if len(tr.events) != tr.ops {
				t.Errorf("%d operations began, %d ended: %q", tr.ops, len(tr.events), tr.log)
			}
			if last := tr.events[len(tr.events)-1]; last.Name != idem.EventUnresolved {
				t.Errorf("the last ended as %s", last.Name)
			}
		})
	}
}

type brokenWriter struct{}

func (brokenWriter) Header() http.Header       { return http.Header{} }
func (brokenWriter) Write([]byte) (int, error) { panic("writer") }
func (brokenWriter) WriteHeader(int)           { panic("writer") }

// A hook that ends its goroutine leaves no lease that is renewed for ever.
func TestRecoverGoexit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t)
		c := &counter{do: func(w http.ResponseWriter, _ *http.Request, run int) {
			w.WriteHeader(map[bool]int{true: 500, false: 201}[run == 1])
		}}
		post(newServer(t, server.Config{Store: store}).Handler(c), "k", "{}")
		exits := true
		s := newServer(t, server.Config{Store: store, Recover: func(context.Context, server.Pending) (server.Resolution, error) {
			if exits {
				exits = false
				runtime.Goexit()
			}
			return server.Resolution{Outcome: idem.OutcomeNotExecuted}, nil
		}})
		h := s.Handler(c)
		done := make(chan struct{})
		go func() { defer close(done); post(h, "k", "{}") }()
		<-done
		time.Sleep(time.Hour)
		wantFirst(t, post(h, "k", "{}"), 201, "")
	})
}

// Whoever finds at the end that another owner has the record says so, also
// where its answer has left already, or it has none.
func TestFencedEvents(t *testing.T) {
	fenced := func(keystore.CompleteParams, func() error) error { return keystore.ErrFenced }
	for name, tt := range map[string]struct {
		store *hooked
		do    func(w http.ResponseWriter)
	}{
		"streamed": {&hooked{complete: fenced}, func(w http.ResponseWriter) { w.(http.Flusher).Flush() }},
		"panic": {&hooked{release: func(keystore.ReleaseParams, func() error) error { return keystore.ErrFenced }},
			func(http.ResponseWriter) { panic("handler") }},
	} {
		t.Run(name, func(t *testing.T) {
			tr := &tracer{}
			tt.store.Store = newStore(t)
			h := newServer(t, server.Config{Store: tt.store, Observer: tr}).Handler(&counter{do: func(w http.ResponseWriter, _ *http.Request, _ int) { tt.do(w) }})
			func() {
				defer func() { _ = recover() }()
				post(h, "k", "{}")
			}()
			if len(tr.events) != 1 || tr.events[0].Name != idem.EventFenced {
				t.Errorf("events %v", tr.events)
			}
		})
	}
}
