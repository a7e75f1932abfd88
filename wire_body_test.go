package idem_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idem-go/idem"
)

// wirePipe is a body that the test writes, and that ends with the request.
func wirePipe(req *http.Request, write func(*io.PipeWriter)) *http.Response {
	pr, pw := io.Pipe()
	stop := context.AfterFunc(req.Context(), func() { pw.CloseWithError(context.Cause(req.Context())) })
	go func() {
		defer stop()
		write(pw)
		pw.CloseWithError(context.Cause(req.Context())) // nil: the body is whole
	}()
	resp := wireAnswer(req, 200, "")
	resp.ContentLength, resp.Body = -1, pr
	return resp
}

func TestWireBodyTimers(t *testing.T) {
	const url = "http://charges.example/"
	t.Run("B020 a slow body is read whole", func(t *testing.T) {
		want := strings.Repeat("0123456789abcdef", 1<<16) // 1 MiB
		for _, method := range []string{http.MethodPost, http.MethodGet} {
			synctest.Test(t, func(t *testing.T) {
				base, n := wireSteps(func(req *http.Request) (*http.Response, error) {
					return wirePipe(req, func(w *io.PipeWriter) {
						for rest := want; rest != ""; rest = rest[1<<16:] {
							time.Sleep(time.Second)
							_, _ = io.WriteString(w, rest[:1<<16])
						}
					}), nil
				})
				start := time.Now()
				res := wireClient(t, idem.Config{Policy: idem.Policy{AttemptTimeout: 2 * time.Second}}, base).do(t, wireRequestTo(t, method, url, ""))
				if res.body != want || n.Load() != 1 || time.Since(start) != 16*time.Second {
					t.Errorf("%s: %d bytes after %d requests and %v, want 1 MiB: %v", method, len(res.body), n.Load(), time.Since(start), res.err)
				}
			})
		}
	})
	t.Run("a gap ends the attempt", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			base, n := wireSteps(func(req *http.Request) (*http.Response, error) {
				return wirePipe(req, func(w *io.PipeWriter) {
					for range 3 {
						time.Sleep(time.Second)
						_, _ = io.WriteString(w, "abc")
					}
					<-req.Context().Done()
				}), nil
			}, wireStatusOf(201))
			start := time.Now()
			res := wireClient(t, idem.Config{Policy: idem.Policy{AttemptTimeout: 2 * time.Second, MaxDelay: time.Millisecond}}, base).do(t, wirePost(t, url))
			if res.outcome() != idem.OutcomeExecuted || n.Load() != 2 || time.Since(start) != 5*time.Second+time.Millisecond {
				t.Errorf("%v after %d requests and %v: %v", res.outcome(), n.Load(), time.Since(start), res.err)
			}
		})
	})
	t.Run("a gap ends a body that is not read ahead, and a slow reader does not", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			base, _ := wireSteps(func(req *http.Request) (*http.Response, error) {
				return wirePipe(req, func(w *io.PipeWriter) {
					_, _ = io.WriteString(w, "abc")
					_, _ = io.WriteString(w, "def")
					<-req.Context().Done()
				}), nil
			})
			w := wireClient(t, idem.Config{Policy: idem.Policy{AttemptTimeout: 2 * time.Second}}, base)
			resp, err := w.RoundTrip(wireRequestTo(t, http.MethodGet, url, ""))
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			got := make([]byte, 6)
			time.Sleep(time.Minute)
			_, _ = io.ReadFull(resp.Body, got[:3])
			time.Sleep(time.Minute)
			_, _ = io.ReadFull(resp.Body, got[3:])
			start := time.Now()
			_, err = resp.Body.Read(make([]byte, 1))
			var late interface{ Timeout() bool }
			if string(got) != "abcdef" || time.Since(start) != 2*time.Second || !errors.As(err, &late) || !late.Timeout() {
				t.Errorf("%q, then %v after %v; want a timeout after 2s", got, err, time.Since(start))
			}
		})
	})
	t.Run("B020 closing early frees the exchange", func(t *testing.T) {
		for _, size := range []int{10, 1000} { // of which 100 are read ahead
			ended := make(chan struct{})
			base, _ := wireSteps(func(req *http.Request) (*http.Response, error) {
				context.AfterFunc(req.Context(), func() { close(ended) })
				return wireAnswer(req, 200, strings.Repeat("x", size)), nil
			})
			method := map[bool]string{true: http.MethodPost, false: http.MethodGet}[size > 100]
			resp, err := wireClient(t, idem.Config{MaxResult: 100}, base).RoundTrip(wireRequestTo(t, method, url, ""))
			if err != nil {
				t.Fatal(err)
			}
			select {
			case <-ended:
				t.Fatal("the exchange ended before its body")
			default:
			}
			resp.Body.Close()
			<-ended
		}
	})
	t.Run("the caller's end is the end of a streamed body", func(t *testing.T) {
		for _, in := range []idem.Intent{{}, {Scope: "s", ID: "1"}} {
			base, _ := wireSteps(func(req *http.Request) (*http.Response, error) {
				return wirePipe(req, func(w *io.PipeWriter) {
					_, _ = io.WriteString(w, strings.Repeat("x", 200))
					<-req.Context().Done()
				}), nil
			})
			ctx, cancel := context.WithCancel(idem.WithIntent(t.Context(), in))
			resp, err := wireClient(t, idem.Config{MaxResult: 100}, base).RoundTrip(wirePost(t, url).WithContext(ctx))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(resp.Body, make([]byte, 200)); err != nil {
				t.Errorf("the body ended before the caller: %v", err)
			}
			cancel()
			if _, err := io.ReadAll(resp.Body); !errors.Is(err, context.Canceled) {
				t.Errorf("the body did not end with the caller: %v", err)
			}
			resp.Body.Close()
		}
	})
}

// A body over the bound goes to one caller, as it comes.
func TestWireOverBound(t *testing.T) {
	const bound = 1 << 10
	want := strings.Repeat("0123456789abcdef", 1<<14) // more than any buffer on the way
	srv := wireServe(t, wireReply(200, want))
	for _, in := range []idem.Intent{{}, {Scope: "s", ID: "order-1"}} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		w := wireClient(t, idem.Config{MaxResult: bound, Store: wireStore(t)}, wireBase(t))
		res := w.do(t, wirePost(t, srv.URL).WithContext(idem.WithIntent(ctx, in)))
		if res.body != want || res.outcome() != idem.OutcomeExecuted || res.resp.ContentLength != int64(len(want)) {
			t.Fatalf("intent %q: %v with %d bytes: %v", in.ID, res.outcome(), len(res.body), res.err)
		}
	}
	t.Run("joiners are told that it was not retained", func(t *testing.T) {
		const callers = 4
		for _, status := range []int{200, 422} {
			release := make(chan struct{})
			base, n := wireSteps(func(req *http.Request) (*http.Response, error) {
				<-release
				return wireAnswer(req, status, want), nil
			})
			synctest.Test(t, func(t *testing.T) {
				release = make(chan struct{})
				w := wireClient(t, idem.Config{MaxResult: bound, Scope: "s"}, base)
				results := make(chan wireResult, callers)
				for range callers {
					go func() {
						results <- w.do(t, wirePost(t, "http://c.example/").WithContext(idem.WithIntent(t.Context(), idem.Intent{ID: "1"})))
					}()
				}
				synctest.Wait()
				close(release)
				whole, refused := 0, 0
				outcome := map[int]idem.Outcome{200: idem.OutcomeExecuted, 422: idem.OutcomeRejected}[status]
				for range callers {
					res := <-results
					switch {
					case res.body == want && res.outcome() == outcome:
						whole++
					case res.outcome() == outcome && res.is(idem.ErrResultNotRetained) == (status == 200):
						refused++ // a refusal is told as one, without its body
					default:
						t.Errorf("%d: %v with %d bytes: %v", status, res.outcome(), len(res.body), res.err)
					}
				}
				if whole != 1 || refused != callers-1 || n.Load() != 1 {
					t.Errorf("%d: %d callers got the body, %d were told, %d requests", status, whole, refused, n.Load())
				}
			})
		}
	})
	t.Run("an error keeps what fits", func(t *testing.T) {
		srv := wireServe(t, wireReply(503, want))
		res := wireClient(t, idem.Config{MaxResult: bound}, wireBase(t)).do(t, wirePost(t, srv.URL))
		var last *idem.ResponseError
		if !errors.As(res.err, &last) || string(last.Body) != want[:bound] {
			t.Errorf("%v keeps %d bytes, want %d", res.err, len(last.Body), bound)
		}
	})
}

// B021: what nobody reads is closed.
func TestWireBodiesClosed(t *testing.T) {
	for _, size := range []int{10, 1 << 18} { // read ahead; over the bound
		for _, method := range []string{http.MethodPost, http.MethodGet} {
			var open, most int
			base := wireFunc(func(req *http.Request) (*http.Response, error) {
				most = max(most, open)
				open++
				status := 503
				if most == 0 && open > 3 {
					status = 200
				}
				resp := wireAnswer(req, status, strings.Repeat("x", size))
				resp.Body = wireCounted{resp.Body, &open}
				return resp, nil
			})
			w := wireClient(t, idem.Config{MaxResult: 100}, base)
			for range 10 {
				w.do(t, wireRequestTo(t, method, "http://c.example/", ""))
			}
			if open != 0 || most != 0 {
				t.Errorf("%s, %d bytes: %d bodies are open in the end, at most %d were when another attempt began", method, size, open, most)
			}
		}
	}
	t.Run("few connections", func(t *testing.T) {
		steps := make([]wireStep, 0, 400)
		for range 100 {
			steps = append(steps, wireReply(503, "a"), wireReply(503, "b"), wireReply(503, "c"), wireReply(200, "charged"))
		}
		srv := wireServe(t, steps...)
		policy := wirePolicy
		policy.RetryBudget = 1000
		w := wireClient(t, idem.Config{Policy: policy}, wireBase(t))
		for range 100 {
			if res := w.do(t, wirePost(t, srv.URL)); res.body != "charged" {
				t.Fatal(res.err)
			}
		}
		if seen := srv.requests(); seen[len(seen)-1].Conn != 1 {
			t.Errorf("%d connections", seen[len(seen)-1].Conn)
		}
	})
	t.Run("B023 the error code has been read and the connection is used again", func(t *testing.T) {
		srv := wireServe(t, wireProblem(409, "in-flight"), wireReply(201, "charged"))
		res := wireClient(t, idem.Config{}, wireBase(t)).do(t, wirePost(t, srv.URL))
		if seen := srv.requests(); res.body != "charged" || seen[0].Conn != seen[1].Conn {
			t.Errorf("%q over %d connections", res.body, seen[1].Conn)
		}
	})
}

type wireCounted struct {
	io.ReadCloser
	open *int
}

func (c wireCounted) Close() error { *c.open--; return c.ReadCloser.Close() }
