package idem_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/idem-go/idem"
)

// Every attempt sends the same bytes, however the body was made.
func TestWireFrozenBody(t *testing.T) {
	file := func(t *testing.T) io.ReadCloser {
		f, err := os.CreateTemp(t.TempDir(), "body")
		if err != nil {
			t.Fatal(err)
		}
		_, _ = f.WriteString(wireBody)
		_, _ = f.Seek(0, io.SeekStart)
		return f
	}
	for _, row := range []struct {
		name string
		set  func(*testing.T, *http.Request)
	}{
		{"B002 as NewRequest makes it", func(*testing.T, *http.Request) {}},
		{"B004 a bare reader of unknown length", func(_ *testing.T, r *http.Request) {
			r.Body, r.ContentLength, r.GetBody = io.NopCloser(io.MultiReader(strings.NewReader(wireBody))), 0, nil
		}},
		{"length -1 and chunks", func(_ *testing.T, r *http.Request) {
			r.ContentLength, r.GetBody, r.TransferEncoding = -1, nil, []string{"chunked"}
		}},
		{"B006 no GetBody", func(_ *testing.T, r *http.Request) { r.GetBody = nil }},
		{"B007 a GetBody that fails", func(_ *testing.T, r *http.Request) {
			r.GetBody = func() (io.ReadCloser, error) { return nil, os.ErrClosed }
		}},
		{"B007 a file", func(t *testing.T, r *http.Request) { r.Body, r.GetBody = file(t), nil }},
	} {
		for _, method := range []string{http.MethodPost, http.MethodPut} {
			t.Run(row.name+"/"+method, func(t *testing.T) {
				srv := wireServe(t, wireReply(503, ""), wireEOF, wireReply(200, "done"))
				req := wireRequestTo(t, method, srv.URL, wireBody)
				row.set(t, req)
				if res := wireClient(t, idem.Config{}, wireBase(t)).do(t, req); res.body != "done" {
					t.Fatalf("%v", res.err)
				}
				for i, r := range srv.requests() {
					if r.Body != wireBody || r.ContentLength != int64(len(wireBody)) || len(r.TransferEncoding) != 0 {
						t.Errorf("request %d has the body %q, Content-Length %d", i+1, r.Body, r.ContentLength)
					}
				}
			})
		}
	}
}

// What can't be sent is refused before anything is sent, and the body closed.
func TestWireRefusedLocally(t *testing.T) {
	gone := errors.New("disk gone")
	const target = "http://charges.example/charges"
	for _, row := range []struct {
		name string
		set  func(*http.Request)
		is   error
	}{
		{"B009 the body's reader fails", func(r *http.Request) { r.Body, r.ContentLength = &wireReader{text: "abc", err: gone}, -1 }, gone},
		{"B004 over the bound", func(r *http.Request) { r.Body, r.ContentLength = &wireReader{text: strings.Repeat("x", 101)}, -1 }, idem.ErrTooLarge},
		{"over the bound by its length", func(r *http.Request) { r.ContentLength = 101 }, idem.ErrTooLarge},
		{"shorter than its length", func(r *http.Request) { r.ContentLength = int64(len(wireBody)) + 1 }, idem.ErrInvalidIntent},
		{"longer than its length", func(r *http.Request) { r.ContentLength = int64(len(wireBody)) - 1 }, idem.ErrInvalidIntent},
		{"no URL", func(r *http.Request) { r.URL = nil }, idem.ErrInvalidIntent},
		{"no host", func(r *http.Request) { r.URL = &url.URL{Scheme: "http", Path: "/"} }, idem.ErrInvalidIntent},
		{"scheme", func(r *http.Request) { r.URL.Scheme = "ftp" }, idem.ErrInvalidIntent},
		{"method", func(r *http.Request) { r.Method = "PO ST" }, idem.ErrInvalidIntent},
		{"header name", func(r *http.Request) { r.Header["X Y"] = []string{"z"} }, idem.ErrInvalidIntent},
		{"header value", func(r *http.Request) { r.Header.Set("X-Y", "a\r\nb") }, idem.ErrInvalidIntent},
		{"B038 CR and LF in a key", func(r *http.Request) { r.Header.Set("Idempotency-Key", "a\r\nX: y") }, idem.ErrInvalidIntent},
		{"B038 NUL in an intent's key", func(r *http.Request) {
			*r = *r.WithContext(idem.WithIntent(r.Context(), idem.Intent{Key: "a\x00b"}))
		}, idem.ErrInvalidKey},
		{"blank at the end of a key", func(r *http.Request) { r.Header.Set("Idempotency-Key", "k ") }, idem.ErrInvalidKey},
		{"empty key", func(r *http.Request) { r.Header.Set("Idempotency-Key", "") }, idem.ErrInvalidKey},
		{"key of 256 characters", func(r *http.Request) { r.Header.Set("Idempotency-Key", strings.Repeat("k", 256)) }, idem.ErrInvalidKey},
		{"half a quoted key", func(r *http.Request) { r.Header.Set("Idempotency-Key", `"k`) }, idem.ErrInvalidKey},
		{"B054 two keys", func(r *http.Request) { r.Header["Idempotency-Key"] = []string{"k", "k"} }, idem.ErrInvalidKey},
		{"B054 two keys in two spellings", func(r *http.Request) {
			r.Header["Idempotency-Key"], r.Header["idempotency-key"] = []string{"k"}, []string{"k2"}
		}, idem.ErrInvalidKey},
		{"an ID without a scope", func(r *http.Request) {
			*r = *r.WithContext(idem.WithIntent(r.Context(), idem.Intent{ID: "7"}))
		}, idem.ErrInvalidIntent},
		{"an ID and a key", func(r *http.Request) {
			*r = *r.WithContext(idem.WithIntent(r.Context(), idem.Intent{Scope: "s", ID: "7", Key: "k"}))
		}, idem.ErrInvalidIntent},
		{"a payload that hides something", func(r *http.Request) {
			*r = *r.WithContext(idem.WithIntent(r.Context(), idem.Intent{Scope: "s", ID: "7", Payload: struct{ hidden int }{1}}))
		}, idem.ErrInvalidIntent},
	} {
		t.Run(row.name, func(t *testing.T) {
			req := wirePost(t, target)
			body := &wireReader{text: wireBody}
			req.Body, req.ContentLength, req.GetBody = body, int64(len(wireBody)), nil
			row.set(req)
			if b, ok := req.Body.(*wireReader); ok {
				body = b
			}
			base := wireFunc(func(*http.Request) (*http.Response, error) {
				t.Error("it was sent")
				return nil, io.EOF
			})
			res := wireClient(t, idem.Config{MaxRequest: 100}, base).do(t, req)
			if res.outcome() != idem.OutcomeRejected || res.attempts() != 0 || !res.is(row.is) || !res.is(idem.ErrRejected) {
				t.Errorf("%v after %d attempts: %v; want rejected before any: %v", res.outcome(), res.attempts(), res.err, row.is)
			}
			if body.closed != 1 {
				t.Errorf("the body was closed %d times", body.closed)
			}
			if res.event.Name != idem.EventRefused || !errors.Is(res.event.Err, row.is) {
				t.Errorf("event %q: %v", res.event.Name, res.event.Err)
			}
			if strings.ContainsAny(res.err.Error(), "\r\n\x00") {
				t.Errorf("the error %q has control characters", res.err)
			}
		})
	}
	t.Run("B024 the caller had stopped before", func(t *testing.T) {
		for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodGet} {
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			req := wireRequestTo(t, method, target, "").WithContext(ctx)
			body := &wireReader{text: wireBody}
			req.Body = body
			base, n := wireSteps(wireStatusOf(200))
			res := wireClient(t, idem.Config{}, base).do(t, req)
			if res.outcome() != idem.OutcomeNotExecuted || !res.is(context.Canceled) || n.Load() != 0 || body.closed != 1 || res.event.Name != idem.EventFailed {
				t.Errorf("%s: %v, %d requests, body closed %d times", method, res.err, n.Load(), body.closed)
			}
		}
	})
}

func TestWireRequestParts(t *testing.T) {
	t.Run("trailers", func(t *testing.T) {
		srv := wireServe(t, wireReply(503, ""), wireReply(200, ""))
		req := wirePost(t, srv.URL)
		req.Trailer = http.Header{"X-Sum": nil}
		// Its value is known when the body has been read.
		req.Body = struct {
			io.Reader
			io.Closer
		}{io.MultiReader(strings.NewReader(wireBody), wireAtEnd(func() { req.Trailer.Set("X-Sum", "42") })), io.NopCloser(nil)}
		wireClient(t, idem.Config{}, wireBase(t)).do(t, req)
		seen := srv.requests()
		if len(seen) != 2 {
			t.Fatalf("%d requests", len(seen))
		}
		for i, r := range seen {
			if r.Body != wireBody || r.Trailer.Get("X-Sum") != "42" {
				t.Errorf("request %d: body %q, trailer %v", i+1, r.Body, r.Trailer)
			}
		}
	})
	t.Run("B011 Expect: 100-continue", func(t *testing.T) {
		for _, refusal := range []int{401, 503} {
			var mu sync.Mutex
			var keys, bodies []string
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				mu.Lock()
				keys = append(keys, r.Header.Get("Idempotency-Key"))
				n := len(keys)
				mu.Unlock()
				if n == 1 {
					w.WriteHeader(refusal) // without a look at the body
					return
				}
				body, _ := io.ReadAll(r.Body)
				mu.Lock()
				bodies = append(bodies, string(body))
				mu.Unlock()
			}))
			base := wireBase(t)
			base.ExpectContinueTimeout = 10 * wireMoment
			w := wireClient(t, idem.Config{}, base)
			body := strings.Repeat(wireBody, 10_000)
			for range 2 {
				req := wireRequestTo(t, http.MethodPost, srv.URL, body)
				req.Header.Set("Expect", "100-continue")
				req.Header.Set("Idempotency-Key", "k-11")
				w.do(t, req)
			}
			srv.Close()
			for i, k := range keys {
				if k != "k-11" {
					t.Errorf("%d: request %d has the key %q", refusal, i+1, k)
				}
			}
			for _, b := range bodies {
				if b != body {
					t.Errorf("%d: a body of %d bytes arrived, want %d", refusal, len(b), len(body))
				}
			}
			if want := map[int]int{401: 1, 503: 2}[refusal]; len(bodies) != want {
				t.Errorf("%d: %d bodies, want %d", refusal, len(bodies), want)
			}
		}
	})
	t.Run("Request.Cancel is left behind", func(t *testing.T) {
		gone := make(chan struct{})
		close(gone)
		for _, method := range []string{http.MethodPost, http.MethodGet} {
			srv := wireServe(t, wireReply(200, ""))
			req := wireRequestTo(t, method, srv.URL, "")
			//lint:ignore SA1019 see above
			req.Cancel = gone
			if res := wireClient(t, idem.Config{}, wireBase(t)).do(t, req); res.outcome() != idem.OutcomeExecuted {
				t.Errorf("%s: %v", method, res.err)
			}
		}
	})
	t.Run("Host, Close and other headers arrive", func(t *testing.T) {
		srv := wireServe(t, wireReply(200, ""))
		req := wirePost(t, srv.URL+"/charges?a=%2F&b")
		req.Host, req.Close = "pay.example", true
		req.Header.Set("X-Own", "1")
		wireClient(t, idem.Config{}, wireBase(t)).do(t, req)
		if r := srv.requests()[0]; r.Host != "pay.example" || !r.Close || r.Header.Get("X-Own") != "1" || r.RequestURI != "/charges?a=%2F&b" {
			t.Errorf("%s %s %v", r.Host, r.RequestURI, r.Header)
		}
	})
	t.Run("CloseIdleConnections is passed on", func(t *testing.T) {
		closed := 0
		base := wireCloser{wireFunc(func(req *http.Request) (*http.Response, error) { return wireAnswer(req, 200, ""), nil }), &closed}
		w := wireClient(t, idem.Config{}, base)
		(&http.Client{Transport: w.RoundTripper}).CloseIdleConnections()
		if closed != 1 {
			t.Errorf("closed %d times", closed)
		}
		// A base without it is none the worse.
		(&http.Client{Transport: wireClient(t, idem.Config{}, base.wireFunc).RoundTripper}).CloseIdleConnections()
	})
	t.Run("a big PUT body is one attempt, streamed", func(t *testing.T) {
		for _, length := range []int64{-1, 3 * int64(len(wireBody))} {
			srv := wireServe(t, wireReply(503, ""))
			req := wireRequestTo(t, http.MethodPut, srv.URL, strings.Repeat(wireBody, 3))
			req.ContentLength = length
			res := wireClient(t, idem.Config{MaxRequest: int64(len(wireBody))}, wireBase(t)).do(t, req)
			if res.resp == nil || res.resp.StatusCode != 503 || res.attempts() != 1 {
				t.Errorf("%v after %d attempts", res.err, res.attempts())
			}
			if seen := srv.requests(); len(seen) != 1 || seen[0].Body != strings.Repeat(wireBody, 3) || seen[0].ContentLength != length {
				t.Errorf("%d requests, Content-Length %d", len(seen), seen[0].ContentLength)
			}
		}
	})
	t.Run("other methods stream through", func(t *testing.T) {
		base := wireFunc(func(req *http.Request) (*http.Response, error) {
			if len(req.Header) != 0 || req.Body.(*wireReader).text != wireBody {
				t.Errorf("the request is not the caller's: %v", req.Header)
			}
			return nil, io.EOF
		})
		req := wireRequestTo(t, "PURGE", "http://charges.example/", "")
		req.Body = &wireReader{text: wireBody}
		if _, err := wireClient(t, idem.Config{}, base).RoundTrip(req); err != io.EOF {
			t.Errorf("error %v, want that of the base as it is", err)
		}
	})
}

// wireAtEnd is a reader that has nothing, and says so once it is asked.
type wireAtEnd func()

func (f wireAtEnd) Read([]byte) (int, error) { f(); return 0, io.EOF }

type wireCloser struct {
	wireFunc
	closed *int
}

func (c wireCloser) CloseIdleConnections() { *c.closed++ }
