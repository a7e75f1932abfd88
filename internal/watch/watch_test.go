package watch

import (
	"context"
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fake is a tracer of events that are numbers.
type fake struct {
	observe func(int)
	start   func(context.Context, *http.Request) (context.Context, string)
}

func (f fake) Observe(_ context.Context, e int) { f.observe(e) }

func (f fake) Start(ctx context.Context, _ int, r *http.Request) (context.Context, string) {
	return f.start(ctx, r)
}

func (f fake) StartAttempt(ctx context.Context, _ string, r *http.Request) context.Context {
	ctx, _ = f.start(ctx, r)
	return ctx
}

func (f fake) EndAttempt(context.Context, string) { f.observe(-1) }

// observeOnly is an observer that is no tracer.
type observeOnly struct{ fake *fake }

func (o observeOnly) Observe(_ context.Context, e int) { o.fake.observe(e) }

func number0(int) int { panic("an event is made for nobody") }

func number(n int) func(int) int { return func(int) int { return n } }

// Whatever an observer does, the call returns, and soon.
func TestObserverAtFault(t *testing.T) {
	for name, tt := range map[string]struct {
		observe func(ended chan struct{})
		took    time.Duration
		lost    int
	}{
		"good":   {func(chan struct{}) {}, 0, 0},
		"slow":   {func(chan struct{}) { time.Sleep(patience / 2) }, patience / 2, 0},
		"panics": {func(chan struct{}) { panic("observer") }, 0, 1},
		"exits":  {func(chan struct{}) { runtime.Goexit() }, 0, 1},
		"blocks": {func(ended chan struct{}) { <-ended }, patience, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ended := make(chan struct{})
				w := New[int, string](fake{observe: func(e int) {
					if e == 1 {
						tt.observe(ended)
					}
				}})
				began := time.Now()
				w.Observe(t.Context(), number(1))
				if took := time.Since(began); took != tt.took {
					t.Errorf("it took %v, want %v", took, tt.took)
				}
				w.Observe(t.Context(), func(lost int) int {
					if lost != tt.lost {
						t.Errorf("%d events are lost, want %d", lost, tt.lost)
					}
					return 2
				})
				close(ended)
			})
		})
	}
}

// An observer that blocks costs so many calls their time, then none; and when it
// is back it is told again, and of how many it has missed.
func TestBlockedObserver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		block := make(chan struct{})
		var told atomic.Int32
		w := New[int, string](fake{observe: func(int) { told.Add(1); <-block }})
		began := time.Now()
		const calls = 10 * maxBlocked
		for range calls {
			w.Observe(t.Context(), number(1))
		}
		if took := time.Since(began); took != maxBlocked*patience {
			t.Errorf("%d calls took %v, want %v: none may wait once %d are left behind", calls, took, maxBlocked*patience, maxBlocked)
		}
		if told.Load() != maxBlocked {
			t.Errorf("it was called %d times, want %d", told.Load(), maxBlocked)
		}
		close(block)
		synctest.Wait()
		w.Observe(t.Context(), func(lost int) int {
			if lost != calls {
				t.Errorf("%d are lost, want %d", lost, calls)
			}
			return 2
		})
		if told.Load() != maxBlocked+1 {
			t.Error("it is not called again")
		}
		if w.blocked.Load() != 0 {
			t.Errorf("%d count as blocked", w.blocked.Load())
		}
	})
}

type ctxKey struct{}

// The context and the headers of a tracer count if it returns in time.
func TestTracer(t *testing.T) {
	mark := func(ctx context.Context, r *http.Request) (context.Context, string) {
		if r != nil {
			r.Header.Set("Traceparent", "00-1")
		}
		return context.WithValue(ctx, ctxKey{}, "here"), "00-1"
	}
	for name, tt := range map[string]struct {
		start func(context.Context, *http.Request) (context.Context, string)
		good  bool
	}{
		"good": {mark, true},
		"late": {func(ctx context.Context, r *http.Request) (context.Context, string) {
			time.Sleep(2 * patience)
			return mark(ctx, r)
		}, false},
		"panics": {func(_ context.Context, r *http.Request) (context.Context, string) {
			r.Header.Set("Traceparent", "half done") // nil for a function: a panic too
			panic("tracer")
		}, false},
		"no context": {func(ctx context.Context, r *http.Request) (context.Context, string) {
			mark(ctx, r)
			return nil, "00-1"
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := New[int, string](fake{start: tt.start, observe: func(int) {}})
				r, _ := http.NewRequest(http.MethodPost, "http://shop.example", nil)
				ctx, origin := w.Start(t.Context(), 1, r)
				if (ctx.Value(ctxKey{}) == "here") != tt.good || (origin == "00-1") != tt.good {
					t.Errorf("Start: %v, %q", ctx.Value(ctxKey{}), origin)
				}
				if len(r.Header) > 0 {
					t.Errorf("Start changed the request: %v", r.Header)
				}
				ctx, told := w.StartAttempt(t.Context(), "1", r)
				if told != tt.good {
					t.Errorf("told %t", told)
				}
				if (ctx.Value(ctxKey{}) == "here") != tt.good || (r.Header.Get("Traceparent") == "00-1") != tt.good || !tt.good && len(r.Header) > 0 {
					t.Errorf("StartAttempt: %v, %v", ctx.Value(ctxKey{}), r.Header)
				}
				if ctx, _ := w.StartAttempt(t.Context(), "1", nil); !tt.good && ctx != t.Context() {
					t.Error("an attempt without a request has another context")
				}
				time.Sleep(3 * patience) // for what is left behind
			})
		})
	}
}

func TestOriginIsBounded(t *testing.T) {
	for n, want := range map[int]int{maxOrigin: maxOrigin, maxOrigin + 1: 0} {
		w := New[int, string](fake{start: func(ctx context.Context, _ *http.Request) (context.Context, string) {
			return ctx, strings.Repeat("x", n)
		}})
		if _, origin := w.Start(t.Context(), 1, nil); len(origin) != want {
			t.Errorf("of %d bytes %d are kept, want %d", n, len(origin), want)
		}
	}
}

// Nothing is done where nobody watches, or only the ends are of interest.
func TestDisabled(t *testing.T) {
	var none *Watch[int, string]
	if New[int, string](nil) != nil || none.Traces() {
		t.Error("a nil observer is watched by something")
	}
	ends := New[int, string](observeOnly{&fake{observe: func(int) {}}})
	r, _ := http.NewRequest(http.MethodPost, "http://shop.example", nil)
	for _, w := range []*Watch[int, string]{none, ends} {
		ctx, origin := w.Start(t.Context(), 1, r)
		at, told := w.StartAttempt(t.Context(), "1", r)
		if ctx != t.Context() || origin != "" || at != t.Context() || told || len(r.Header) > 0 {
			t.Error("an observer that is no tracer changes something")
		}
		w.EndAttempt(ctx, told, "1")
	}
	none.Observe(t.Context(), func(int) int { t.Error("an event is made for nobody"); return 0 })
	if n := testing.AllocsPerRun(100, func() {
		none.Observe(t.Context(), number0)
		ctx, _ := none.Start(t.Context(), 1, r)
		ctx, told := none.StartAttempt(ctx, "1", r)
		none.EndAttempt(ctx, told, "1")
	}); n != 0 {
		t.Errorf("a watch that is off allocates %v times", n)
	}
}

// A tracer can add headers, and change nothing else.
func TestTracerChangesHeadersOnly(t *testing.T) {
	w := New[int, string](fake{observe: func(int) {}, start: func(ctx context.Context, r *http.Request) (context.Context, string) {
		r.URL.Host, r.Method = "other.example", http.MethodDelete
		r.Header.Del("Authorization")
		r.Header.Set("Traceparent", "00-1")
		return ctx, ""
	}})
	r, _ := http.NewRequest(http.MethodPost, "http://shop.example", strings.NewReader("body"))
	r.Header.Set("Authorization", "mine")
	body := r.Body
	w.Start(t.Context(), 1, r)
	if r.Header.Get("Traceparent") != "" {
		t.Error("Start sets a header")
	}
	w.StartAttempt(t.Context(), "1", r)
	if r.URL.Host != "shop.example" || r.Method != http.MethodPost || r.Body != body || r.Header.Get("Authorization") != "mine" || r.Header.Get("Traceparent") != "00-1" {
		t.Errorf("the request is %v with %v", r, r.Header)
	}
}

// Whose time is up waits for a moment only.
func TestPatienceEndsWithContext(t *testing.T) {
	for _, left := range []time.Duration{-time.Second, 0, 100 * time.Millisecond, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), left)
			defer cancel()
			block := make(chan struct{})
			w := New[int, string](fake{observe: func(int) { <-block }})
			began := time.Now()
			w.Observe(ctx, number(1))
			if took, want := time.Since(began), min(max(left, 0)+least, patience); took != want {
				t.Errorf("with %v left it took %v, want %v", left, took, want)
			}
			close(block)
		})
	}
}
