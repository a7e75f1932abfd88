package idem_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idem-go/idem"
)

// wireSteps answers in memory, request by request, the last one repeatedly.
func wireSteps(steps ...wireFunc) (wireFunc, *atomic.Int32) {
	var n atomic.Int32
	return func(req *http.Request) (*http.Response, error) {
		return steps[min(int(n.Add(1)), len(steps))-1](req)
	}, &n
}

func wireStatusOf(status int, headers ...string) wireFunc {
	return func(req *http.Request) (*http.Response, error) {
		return wireAnswer(req, status, "", headers...), nil
	}
}

// wireHang answers nothing until the request's context ends, with an error that
// does not tell why, as errors do.
func wireHang(req *http.Request) (*http.Response, error) {
	<-req.Context().Done()
	return nil, io.ErrClosedPipe
}

func TestWireRetryAfter(t *testing.T) {
	date := "Date: Mon, 02 Jan 2006 15:04:05 GMT"
	for _, row := range []struct {
		name    string
		first   wireFunc
		atLeast time.Duration // 0: our own backoff, 200 ms at most
	}{
		{"429 with seconds", wireStatusOf(429, "Retry-After: 7"), 7 * time.Second},
		{"503 with seconds", wireStatusOf(503, "Retry-After: 7"), 7 * time.Second},
		{"B033 409 in flight with seconds", wireStatusOf(409, "Retry-After: 2"), 2 * time.Second},
		{"500 with seconds", wireStatusOf(500, "Retry-After: 3"), 3 * time.Second},
		{"a date, by the server's clock", wireStatusOf(429, date, "Retry-After: Mon, 02 Jan 2006 15:04:15 GMT"), 10 * time.Second},
		{"milliseconds first", wireStatusOf(429, "Retry-After: 20", "Retry-After-Ms: 1500"), 1500 * time.Millisecond},
		{"the contract's own header first", wireStatusOf(429, "Retry-After: 20", "Retry-After-Ms: 1", "X-Wait: 4"), 4 * time.Second},
		{"none", wireStatusOf(429), 0},
		{"in the past", wireStatusOf(429, date, "Retry-After: Mon, 02 Jan 2006 15:03:05 GMT"), 0},
		{"zero", wireStatusOf(429, "Retry-After: 0"), 0},
		{"negative", wireStatusOf(429, "Retry-After: -5"), 0},
		{"two lines", wireStatusOf(429, "Retry-After: 5", "Retry-After: 6"), 0},
		{"not a number", wireStatusOf(429, "Retry-After: 120junk"), 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				base, n := wireSteps(row.first, wireStatusOf(201))
				w := wireClient(t, idem.Config{Contract: idem.Contract{RetryAfterHeader: "X-Wait"}, Policy: idem.Policy{Attempts: 4}}, base)
				start := time.Now()
				res := w.do(t, wirePost(t, "http://charges.example/"))
				took := time.Since(start)
				most := max(row.atLeast+row.atLeast/10, 200*time.Millisecond)
				if res.outcome() != idem.OutcomeExecuted || n.Load() != 2 || took < row.atLeast || took > most || took == 0 {
					t.Errorf("%v after %d requests and %v, want executed after 2 and %v to %v", res.outcome(), n.Load(), took, row.atLeast, most)
				}
			})
		})
	}
	for _, status := range []int{429, 503, 409} {
		synctest.Test(t, func(t *testing.T) {
			base, n := wireSteps(wireStatusOf(status, "Retry-After: 1800"))
			w := wireClient(t, idem.Config{Policy: idem.Policy{Attempts: 4}}, base)
			start := time.Now()
			res := w.do(t, wirePost(t, "http://charges.example/"))
			if res.err == nil {
				t.Fatalf("B043 %d: no error", status)
			}
			if !res.is(idem.ErrRetryAfterTooLong) || res.err.RetryAfter != 30*time.Minute || res.err.Key == "" || res.lastStatus() != status {
				t.Errorf("B043 %d: %v, asked to wait %v, last status %d", status, res.err, res.err.RetryAfter, res.lastStatus())
			}
			if n.Load() != 1 || time.Since(start) != 0 {
				t.Errorf("B043 %d: %d requests in %v, want to be told at once", status, n.Load(), time.Since(start))
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		base, n := wireSteps(wireStatusOf(503, "Retry-After: 10"))
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		start := time.Now()
		res := wireClient(t, idem.Config{Policy: idem.Policy{Attempts: 4}}, base).do(t, wirePost(t, "http://charges.example/").WithContext(ctx))
		if !res.is(idem.ErrRetryAfterTooLong) || n.Load() != 1 || time.Since(start) != 0 {
			t.Errorf("B045 %v after %d requests and %v; want no sleep towards an attempt that the deadline forbids", res.err, n.Load(), time.Since(start))
		}
	})
	synctest.Test(t, func(t *testing.T) {
		base, _ := wireSteps(wireStatusOf(503, "Retry-After: 1800"))
		res := wireClient(t, idem.Config{}, base).do(t, wireRequestTo(t, http.MethodGet, "http://charges.example/", ""))
		if res.resp == nil || res.resp.StatusCode != 503 {
			t.Errorf("an unkeyed caller gets the last reply as net/http gives it, not %v", res.err)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		base, n := wireSteps(wireStatusOf(503, "Retry-After: 10"))
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		res := wireClient(t, idem.Config{}, base).do(t, wireRequestTo(t, http.MethodGet, "http://charges.example/", "").WithContext(ctx))
		if !res.is(context.Canceled) || n.Load() != 1 {
			t.Errorf("an unkeyed caller who stops is told so, not %v after %d requests", res.err, n.Load())
		}
	})
}

func TestWireTimers(t *testing.T) {
	const url = "http://charges.example/"
	t.Run("B027 the attempt's timeout is not the caller's", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			base, n := wireSteps(wireHang, wireStatusOf(201))
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			w := wireClient(t, idem.Config{Policy: idem.Policy{AttemptTimeout: 50 * time.Millisecond}}, base)
			res := w.do(t, wirePost(t, url).WithContext(ctx))
			if res.outcome() != idem.OutcomeExecuted || n.Load() != 2 || res.event.Attempts[0].Duration != 50*time.Millisecond {
				t.Errorf("%v after %d requests: %v", res.outcome(), n.Load(), res.err)
			}
		})
	})
	t.Run("B026 an error that looks like the caller's end is none", func(t *testing.T) {
		for _, lie := range []error{context.DeadlineExceeded, context.Canceled} {
			base, n := wireSteps(func(*http.Request) (*http.Response, error) { return nil, lie }, wireStatusOf(201))
			if res := wireClient(t, idem.Config{}, base).do(t, wirePost(t, url)); res.outcome() != idem.OutcomeExecuted || n.Load() != 2 {
				t.Errorf("%v: %v after %d requests, want executed after 2", lie, res.outcome(), n.Load())
			}
		}
	})
	t.Run("B026 B027 the caller's end, whatever its cause", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			why := errors.New("the user closed the window")
			for _, in := range []idem.Intent{{}, {Scope: "s", ID: "order-1"}} {
				base, n := wireSteps(wireHang, wireStatusOf(201))
				ctx, cancel := context.WithCancelCause(t.Context())
				time.AfterFunc(time.Second, func() { cancel(why) })
				w := wireClient(t, idem.Config{Policy: idem.Policy{AttemptTimeout: time.Minute}}, base)
				start := time.Now()
				res := w.do(t, wirePost(t, url).WithContext(idem.WithIntent(ctx, in)))
				if res.outcome() != idem.OutcomeUnknown || n.Load() != 1 || time.Since(start) != time.Second {
					t.Errorf("%v after %d requests and %v, want unknown, 1 and 1s", res.err, n.Load(), time.Since(start))
				}
				if !res.is(context.Canceled) || !res.is(why) || res.err.Key == "" {
					t.Errorf("%v has not got the caller's end, its cause and the key", res.err)
				}
				time.Sleep(time.Minute) // the flight's grace
			}
		})
	})
	t.Run("the caller's end is not reported where the reply settles", func(t *testing.T) {
		for _, status := range []int{201, 422} {
			ctx, cancel := context.WithCancel(t.Context())
			base, _ := wireSteps(func(req *http.Request) (*http.Response, error) {
				defer cancel()
				return wireAnswer(req, status, "settled"), nil
			})
			if res := wireClient(t, idem.Config{}, base).do(t, wirePost(t, url).WithContext(ctx)); res.resp == nil || res.resp.StatusCode != status {
				t.Errorf("%d: %v", status, res.err)
			}
		}
	})
	t.Run("http.Client.Timeout does not hide the error", func(t *testing.T) {
		for _, in := range []idem.Intent{{}, {Scope: "s", ID: "order-1"}} {
			synctest.Test(t, func(t *testing.T) {
				w := wireClient(t, idem.Config{}, wireFunc(wireHang))
				hc := &http.Client{Transport: w, Timeout: 2 * time.Second}
				start := time.Now()
				resp, err := hc.Do(wirePost(t, url).WithContext(idem.WithIntent(t.Context(), in)))
				if err == nil {
					resp.Body.Close()
				}
				var e *idem.Error
				if !errors.As(err, &e) || e.Outcome != idem.OutcomeUnknown || e.Key == "" || !e.Timeout() {
					t.Errorf("error %v", err)
				}
				if took := time.Since(start); took >= 2*time.Second || took < 1900*time.Millisecond {
					t.Errorf("it came after %v, want a moment before 2s", took)
				}
				time.Sleep(time.Minute)
			})
		}
	})
	t.Run("http.Client.Timeout while a body flows", func(t *testing.T) {
		for _, in := range []idem.Intent{{}, {Scope: "s", ID: "order-1"}} {
			synctest.Test(t, func(t *testing.T) {
				w := wireClient(t, idem.Config{}, wireFunc(func(req *http.Request) (*http.Response, error) {
					resp := wireAnswer(req, 200, "")
					resp.ContentLength = -1
					resp.Body = io.NopCloser(wireDrip{req.Context(), time.Second})
					return resp, nil
				}))
				hc := &http.Client{Transport: w, Timeout: 20 * time.Second}
				resp, err := hc.Do(wirePost(t, url).WithContext(idem.WithIntent(t.Context(), in)))
				if err == nil {
					resp.Body.Close()
				}
				var e *idem.Error
				if !errors.As(err, &e) || e.Outcome != idem.OutcomeUnknown || !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("error %v", err)
				}
				time.Sleep(time.Minute)
			})
		}
	})
	t.Run("a joiner's own http.Client.Timeout", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			base, n := wireSteps(wireHang, wireStatusOf(201))
			w := wireClient(t, idem.Config{}, base)
			in := idem.Intent{Scope: "s", ID: "order-1"}
			done := make(chan wireResult)
			go func() { done <- w.do(t, wirePost(t, url).WithContext(idem.WithIntent(t.Context(), in))) }()
			synctest.Wait()
			hc := &http.Client{Transport: w, Timeout: time.Second}
			resp, err := hc.Do(wirePost(t, url).WithContext(idem.WithIntent(t.Context(), in)))
			if err == nil {
				resp.Body.Close()
			}
			var e *idem.Error
			if !errors.As(err, &e) || e.Outcome != idem.OutcomeUnknown {
				t.Errorf("error %v", err)
			}
			if res := <-done; res.outcome() != idem.OutcomeExecuted || n.Load() != 2 {
				t.Errorf("the first caller: %v after %d requests", res.outcome(), n.Load())
			}
		})
	})
	t.Run("no time for any attempt", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			defer cancel()
			base, n := wireSteps(wireStatusOf(201))
			for _, method := range []string{http.MethodPost, http.MethodPut} {
				body := &wireReader{text: wireBody + wireBody}
				req := wireRequestTo(t, method, url, "").WithContext(ctx)
				req.Body = body
				w := wireClient(t, idem.Config{MaxRequest: int64(len(wireBody)) * map[string]int64{http.MethodPost: 2, http.MethodPut: 1}[method]}, base)
				if res := w.do(t, req); res.outcome() != idem.OutcomeNotExecuted || n.Load() != 0 || !res.is(context.DeadlineExceeded) {
					t.Errorf("%s: %v after %d requests", method, res.err, n.Load())
				}
				if body.closed != 1 {
					t.Errorf("%s: the body was closed %d times", method, body.closed)
				}
			}
		})
	})
}

// wireDrip is a body that never ends and never pauses for long.
type wireDrip struct {
	ctx context.Context
	gap time.Duration
}

func (d wireDrip) Read(p []byte) (int, error) {
	select {
	case <-time.After(d.gap):
		p[0] = '.'
		return 1, nil
	case <-d.ctx.Done():
		return 0, io.ErrUnexpectedEOF
	}
}

// wireReader is a body that counts how often it is closed, and fails with err
// at its end.
type wireReader struct {
	text   string
	err    error
	closed int
}

func (r *wireReader) Read(p []byte) (int, error) {
	if r.text == "" {
		if r.err != nil {
			return 0, r.err
		}
		return 0, io.EOF
	}
	n := copy(p, r.text)
	r.text = r.text[n:]
	return n, nil
}

func (r *wireReader) Close() error { r.closed++; return nil }
