package idem_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idem-go/idem"
)

// tracer writes down what it is told. Each operation and attempt has a name,
// which its context carries: op1, op1/1 ...
type tracer struct {
	mu  sync.Mutex
	ops int
	log []string
	// origins are the Origins of events, by operation.
	origins map[string]string
}

type spanKey struct{}

func span(ctx context.Context) string { s, _ := ctx.Value(spanKey{}).(string); return s }

func (tr *tracer) note(format string, args ...any) {
	tr.log = append(tr.log, fmt.Sprintf(format, args...))
}

func (tr *tracer) Start(ctx context.Context, e idem.Event, r *http.Request) (context.Context, string) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.ops++
	name := strings.TrimPrefix(fmt.Sprintf("%s>op%d", span(ctx), tr.ops), ">")
	tr.note("start %s half=%s request=%t", name, e.Half, r != nil)
	return context.WithValue(ctx, spanKey{}, name), name
}

func (tr *tracer) StartAttempt(ctx context.Context, a idem.Attempt, r *http.Request) context.Context {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	name := fmt.Sprintf("%s/%d", span(ctx), a.Number)
	if r != nil {
		r.Header.Set("Traceparent", name)
	}
	tr.note("start %s", name)
	return context.WithValue(ctx, spanKey{}, name)
}

func (tr *tracer) EndAttempt(ctx context.Context, a idem.Attempt) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.note("end %s %v", span(ctx), a.Outcome)
}

func (tr *tracer) Observe(ctx context.Context, e idem.Event) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	if tr.origins == nil {
		tr.origins = map[string]string{}
	}
	tr.origins[span(ctx)] = e.Origin
	tr.note("end %s %s", span(ctx), e.Name)
}

// want checks all that was told.
func (tr *tracer) want(t *testing.T, want ...string) {
	t.Helper()
	tr.mu.Lock()
	defer tr.mu.Unlock()
	if !slices.Equal(tr.log, want) {
		t.Errorf("told\n  %s\nwant\n  %s", strings.Join(tr.log, "\n  "), strings.Join(want, "\n  "))
	}
}

func TestTracerOfFunction(t *testing.T) {
	for name, in := range map[string]idem.Intent{"named": intent, "unnamed": {}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tr := &tracer{}
				c := newClient(t, idem.Config{Observer: tr})
				var seen []string
				_, err := idem.Do(t.Context(), c, in, func(ctx context.Context, _ idem.Key) (int, error) {
					seen = append(seen, span(ctx))
					if len(seen) == 1 {
						return 0, idem.NotExecuted(errBoom)
					}
					return 1, nil
				})
				if err != nil || !slices.Equal(seen, []string{"op1/1", "op1/2"}) {
					t.Errorf("%v; the attempts ran in %v", err, seen)
				}
				tr.want(t, "start op1 half=client request=false",
					"start op1/1", "end op1/1 not-executed", "start op1/2", "end op1/2 executed", "end op1 executed")
			})
		})
	}
}

// Each end has a beginning, whatever keeps an operation from being one.
func TestTracerOfRefusals(t *testing.T) {
	down := idem.Config{Store: &hookStore{hook: func(string, func() error) error { return errBoom }}}
	for _, tt := range []struct {
		cfg   idem.Config
		in    idem.Intent
		ended bool
		event string
	}{
		{idem.Config{}, idem.Intent{Key: " "}, false, idem.EventRefused},
		{down, intent, false, idem.EventStoreError},
		{idem.Config{}, intent, true, idem.EventFailed},
	} {
		tr := &tracer{}
		tt.cfg.Observer = tr
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if tt.ended {
				cancel()
			}
			idem.Do(ctx, newClient(t, tt.cfg), tt.in, answers(nil).call)
		})
		tr.want(t, "start op1 half=client request=false", "end op1 "+tt.event)
	}
}

// The trace goes out in the attempt's headers, is signed with them, and has no
// part in what the server compares.
func TestTracerOfRequest(t *testing.T) {
	tr := &tracer{}
	var sent []string
	base := roundTripper(func(r *http.Request) (*http.Response, error) {
		sent = append(sent, r.Header.Get("Traceparent")+" "+span(r.Context())+" "+r.Header.Get("Signature"))
		status := http.StatusServiceUnavailable
		if len(sent) > 1 {
			status = http.StatusCreated
		}
		return &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(""))}, nil
	})
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t, idem.Config{Store: newStore(t), Observer: tr, Sign: func(r *http.Request) error {
			r.Header.Set("Signature", "of "+r.Header.Get("Traceparent"))
			return nil
		}})
		for range 2 {
			ctx := idem.WithIntent(t.Context(), idem.Intent{Scope: "shop", ID: "o1"})
			req, _ := http.NewRequestWithContext(ctx, http.MethodPost, "http://shop.example/charges", strings.NewReader("{}"))
			resp, err := c.Transport(base).RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			if resp.Body.Close(); len(req.Header) > 0 {
				t.Errorf("the caller's request was changed: %v", req.Header)
			}
		}
	})
	if want := []string{"op1/1 op1/1 of op1/1", "op1/2 op1/2 of op1/2"}; !slices.Equal(sent, want) {
		t.Errorf("sent %q, want %q", sent, want)
	}
	tr.want(t, "start op1 half=client request=true", "start op1/1", "end op1/1 unknown", "start op1/2", "end op1/2 executed",
		"end op1 executed", "start op2 half=client request=true", "end op2 replayed")
	if tr.origins["op1"] != "" || tr.origins["op2"] != "op1" {
		t.Errorf("origins %v; want the replay's to be op1", tr.origins)
	}
}

// A request of a decorated function is an attempt within the function's.
func TestTracerOfRequestWithin(t *testing.T) {
	tr := &tracer{}
	c := newClient(t, idem.Config{Observer: tr})
	var sent string
	hc := &http.Client{Transport: c.Transport(roundTripper(func(r *http.Request) (*http.Response, error) {
		sent = r.Header.Get("Traceparent")
		return &http.Response{StatusCode: http.StatusCreated, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(""))}, nil
	}))}
	_, err := idem.Do(t.Context(), c, intent, func(ctx context.Context, _ idem.Key) (int, error) {
		req, _ := http.NewRequestWithContext(ctx, http.MethodPost, "http://shop.example/charges", strings.NewReader("{}"))
		resp, err := hc.Do(req)
		if err == nil {
			resp.Body.Close()
		}
		return 1, err
	})
	if err != nil || sent != "op1/1/1" {
		t.Errorf("%v; sent %q", err, sent)
	}
	tr.want(t, "start op1 half=client request=false", "start op1/1", "start op1/1/1", "end op1/1/1 executed",
		"end op1/1 executed", "end op1 executed")
}

// Who joins a call, or waits for another process, is led to what executed.
func TestOrigin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr, store := &tracer{}, newStore(t)
		slow := func(context.Context, idem.Key) (int, error) { time.Sleep(time.Second); return 1, nil }
		here := newClient(t, idem.Config{Store: store, Observer: tr})
		there := newClient(t, idem.Config{Store: store, Observer: tr})
		for _, c := range []*idem.Client{here, here, there} {
			go idem.Do(t.Context(), c, intent, slow)
			synctest.Wait()
		}
		time.Sleep(time.Minute)
		tr.mu.Lock()
		defer tr.mu.Unlock()
		if tr.origins["op1"] != "" || tr.origins["op2"] != "op1" || tr.origins["op3"] != "op1" {
			t.Errorf("origins %v; want op1 for both that did not execute", tr.origins)
		}
	})
}

// Waited and Age tell what a caller was kept by, and how old its answer is.
func TestWaitedAndAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, store := &events{}, newStore(t)
		slow := func(context.Context, idem.Key) (int, error) { time.Sleep(time.Second); return 1, nil }
		here := newClient(t, idem.Config{Store: store})
		there := newClient(t, idem.Config{Store: store, Observer: o})
		go idem.Do(t.Context(), here, intent, slow)
		time.Sleep(100 * time.Millisecond)
		idem.Do(t.Context(), there, intent, slow)
		if e := o.only(t); e.Waited != 900*time.Millisecond || e.Age != time.Second {
			t.Errorf("waited %v for a result of age %v; want 900ms and 1s", e.Waited, e.Age)
		}
		time.Sleep(time.Hour)
		idem.Do(t.Context(), there, intent, slow)
		if e := o.only(t); e.Waited != 0 || e.Age != time.Hour+time.Second {
			t.Errorf("waited %v for a result of age %v; want 0 and 1h0m1s", e.Waited, e.Age)
		}
	})
}

// An Observer that never returns delays an operation by a moment, no more.
func TestObserverBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		block := make(chan struct{})
		c := newClient(t, idem.Config{Observer: blocking{block}})
		began := time.Now()
		res, err := idem.Do(t.Context(), c, intent, answers(nil).call)
		wantSource(t, res, err, idem.SourceExecuted)
		if took := time.Since(began); took > time.Minute {
			t.Errorf("the call took %v", took)
		}
		close(block)
	})
}

// blocking is a Tracer that returns when it is told to.
type blocking struct{ until chan struct{} }

func (b blocking) Observe(context.Context, idem.Event) { <-b.until }
func (b blocking) Start(context.Context, idem.Event, *http.Request) (context.Context, string) {
	<-b.until
	panic("late")
}
func (b blocking) StartAttempt(context.Context, idem.Attempt, *http.Request) context.Context {
	<-b.until
	return nil
}
func (b blocking) EndAttempt(context.Context, idem.Attempt) { <-b.until }

// slowTracer takes its time before each attempt.
type slowTracer struct {
	tracer
	takes time.Duration
}

func (tr *slowTracer) StartAttempt(ctx context.Context, a idem.Attempt, r *http.Request) context.Context {
	time.Sleep(tr.takes)
	return tr.tracer.StartAttempt(ctx, a, r)
}

// A tracer's time counts: nothing is sent when the lease is over, or no time
// is left, and the attempt that it was told of ends.
func TestTracerTakesTime(t *testing.T) {
	for name, cfg := range map[string]idem.Config{
		"lease":   {Lease: 500 * time.Millisecond},
		"overall": {Policy: idem.Policy{Overall: 500 * time.Millisecond}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tr := &slowTracer{takes: 900 * time.Millisecond}
				cfg.Observer = tr
				cfg.Store = &hookStore{Store: newStore(t), hook: func(method string, call func() error) error {
					if method == "renew" {
						return errBoom
					}
					return call()
				}}
				idem.Do(t.Context(), newClient(t, cfg), intent, never[int](t))
				tr.mu.Lock()
				defer tr.mu.Unlock()
				if want := []string{"start op1/1", "end op1/1 not-executed"}; len(tr.log) < 3 || !slices.Equal(tr.log[1:3], want) {
					t.Errorf("told %q", tr.log)
				}
			})
		})
	}
}

// Attempts end, whatever ends them, and what did not begin does not end.
func TestTracerEndsAttempts(t *testing.T) {
	t.Run("Goexit", func(t *testing.T) {
		tr := &tracer{}
		c := newClient(t, idem.Config{Observer: tr})
		done := make(chan struct{})
		go func() {
			defer close(done)
			idem.Do(t.Context(), c, idem.Intent{}, func(context.Context, idem.Key) (int, error) { runtime.Goexit(); return 0, nil })
		}()
		<-done
		tr.want(t, "start op1 half=client request=false", "start op1/1", "end op1/1 unknown", "end op1 unresolved")
	})
	t.Run("panic", func(t *testing.T) {
		tr := &tracer{}
		c := newClient(t, idem.Config{Observer: tr})
		func() {
			defer func() { _ = recover() }()
			req, _ := http.NewRequest(http.MethodPost, "http://shop.example", nil)
			c.Transport(roundTripper(func(*http.Request) (*http.Response, error) { panic("base") })).RoundTrip(req)
		}()
		tr.want(t, "start op1 half=client request=true", "start op1/1", "end op1/1 unknown", "end op1 unresolved")
	})
	t.Run("not begun", func(t *testing.T) {
		tr := &panickyTracer{}
		idem.Do(t.Context(), newClient(t, idem.Config{Observer: tr}), intent, answers(nil).call)
		tr.want(t, "end  executed") // in the context of the caller
	})
}

type panickyTracer struct{ tracer }

func (*panickyTracer) Start(context.Context, idem.Event, *http.Request) (context.Context, string) {
	panic("tracer")
}

func (*panickyTracer) StartAttempt(context.Context, idem.Attempt, *http.Request) context.Context {
	panic("tracer")
}

// An operation is not led to itself, and a redirect is nothing unresolved.
func TestOriginOfUnnamed(t *testing.T) {
	tr := &tracer{}
	c := newClient(t, idem.Config{Observer: tr})
	idem.Do(t.Context(), c, idem.Intent{}, answers(nil).call)
	idem.Do(t.Context(), c, intent, answers(errBoom).call)
	if tr.origins["op1"] != "" || tr.origins["op2"] != "" {
		t.Errorf("origins %v", tr.origins)
	}
}

func TestRedirectEvent(t *testing.T) {
	o := &events{}
	ts := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/" {
			http.Redirect(w, r, "/charges", http.StatusTemporaryRedirect)
		}
	}))
	defer ts.Close()
	base := &http.Transport{}
	defer base.CloseIdleConnections()
	resp, err := (&http.Client{Transport: newClient(t, idem.Config{Observer: o}).Transport(base)}).Post(ts.URL, "text/plain", strings.NewReader("x"))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	var names []string
	for _, e := range o.take() {
		names = append(names, e.Name)
	}
	if want := []string{idem.EventRedirected, idem.EventExecuted}; !slices.Equal(names, want) {
		t.Errorf("events %v, want %v", names, want)
	}
}

// An observer's error is its own.
func TestEventErrorIsACopy(t *testing.T) {
	o := &events{}
	_, err := idem.Do(t.Context(), newClient(t, idem.Config{Observer: o}), intent, answers(errBoom).call)
	if e := o.only(t); e.Err == err || e.Err.Error() != err.Error() {
		t.Errorf("the observer got %p, the caller %p", e.Err, err)
	}
}
