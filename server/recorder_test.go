package server_test

import (
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/stored"
	"github.com/idem-go/idem/keystore"
	"github.com/idem-go/idem/server"
)

func TestB103WhatIsStored(t *testing.T) {
	per := map[string]string{
		"Set-Cookie": "s=1", "Www-Authenticate": "Basic", "Authentication-Info": "x", "Proxy-Authenticate": "Basic",
		"Date": "Mon, 01 Jan 2024 00:00:00 GMT", "X-Request-Id": "1", "Traceparent": "00-1-2-3", "Retry-After": "3",
		"Connection": "X-Hop, keep-alive", "X-Hop": "1", "Transfer-Encoding": "chunked", "Keep-Alive": "5", "Upgrade": "h2c",
		"Ratelimit": "1", "Ratelimit-Policy": "1", "X-Ratelimit-Remaining": "1", "X-Rate-Limit-Reset": "1", "Age": "3",
	}
	kept := map[string]string{"Location": "/orders/7", "Etag": `"1"`, "Content-Type": "text/x", "X-App": "a", "Link": "</next>; rel=next"}
	c := &counter{do: func(w http.ResponseWriter, _ *http.Request, _ int) {
		for name, value := range kept {
			w.Header().Set(name, value)
		}
		for name, value := range per {
			w.Header().Set(name, value)
		}
		w.Header().Set("Idempotent-Replayed", "true") // not the handler's to say
		w.Header().Del("X-Outer")
		w.Header().Add("Vary", "Accept")
		w.WriteHeader(201)
		w.WriteHeader(500) // superfluous
		w.Header().Set("X-Late", "1")
		_, _ = io.WriteString(w, "made")
	}}
	inner := newServer(t, server.Config{}).Handler(c)
	n := 0
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n++
		w.Header().Set("Vary", "Origin")
		w.Header().Set("X-Outer", "outer")
		w.Header().Set("X-Serial", fmt.Sprint(n))
		inner.ServeHTTP(w, r)
	})

	first := post(h, "k", "{}")
	wantFirst(t, first, 201, "made")
	again := post(h, "k", "{}")
	wantReplay(t, again, 201, "made")
	c.want(t, 1)
	for name, value := range per {
		if got := first.Header().Get(name); got != value {
			t.Errorf("first answer: %s %q, want %q", name, got, value)
		}
		if got := again.Header().Values(name); got != nil {
			t.Errorf("replay: %s %q", name, got)
		}
	}
	for name, value := range kept {
		if f, a := first.Header().Get(name), again.Header().Get(name); f != value || a != value {
			t.Errorf("%s %q, then %q, want %q", name, f, a, value)
		}
	}
	for _, w := range []*httptest.ResponseRecorder{first, again} {
		if vary := w.Header().Values("Vary"); !slices.Equal(vary, []string{"Origin", "Accept"}) || w.Header().Get("X-Late") != "" {
			t.Errorf("header %v", w.Header())
		}
	}
	// What the handler removes is removed, what is set around it is set anew.
	if first.Header().Get("X-Outer") != "" || first.Header().Get("X-Serial") != "1" || again.Header().Get("X-Serial") != "2" {
		t.Errorf("headers %v, then %v", first.Header(), again.Header())
	}
	if got := again.Header().Get("Content-Length"); got != "4" {
		t.Errorf("replay: Content-Length %q", got)
	}
}

// A held-back answer looks on the wire like one that was not held back, and so
// does its replay.
func TestAnswersOnTheWire(t *testing.T) {
	tests := []struct {
		name, method string
		do           http.HandlerFunc
		unlike       string // header that the replay has not
	}{
		{"nothing", "POST", func(http.ResponseWriter, *http.Request) {}, ""},
		{"sniffed", "POST", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>x") }, ""},
		{"not sniffed", "POST", func(w http.ResponseWriter, _ *http.Request) {
			w.Header()["Content-Type"] = nil
			_, _ = io.WriteString(w, "<html>x")
		}, ""},
		{"encoded", "POST", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "x-own")
			_, _ = io.WriteString(w, "<html>x")
		}, ""},
		{"204", "POST", func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(204)
			if _, err := io.WriteString(w, "stray"); err != http.ErrBodyNotAllowed {
				panic(err)
			}
		}, ""},
		{"304", "POST", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Etag", "1")
			w.WriteHeader(304)
		}, ""},
		{"declared length", "POST", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "4")
			_, _ = io.WriteString(w, "made")
		}, ""},
		{"HEAD", "HEAD", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>x") }, ""},
		{"HEAD with declared length", "HEAD", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "1234")
		}, ""},
		{"trailers", "POST", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Trailer", "X-Sum")
			_, _ = io.WriteString(w, "made")
			w.Header().Set("X-Sum", "42")
			w.Header().Set(http.TrailerPrefix+"X-More", "43")
		}, "Trailer"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newServer(t, server.Config{})
			mux := http.NewServeMux()
			mux.Handle("/plain", tt.do)
			mux.Handle("/held", s.Handler(tt.do))
			ts := httptest.NewServer(mux)
			defer ts.Close()
			get := func(path string) (*http.Response, string) {
				r, _ := http.NewRequest(tt.method, ts.URL+path, nil)
				r.Header.Set("Idempotency-Key", "k")
				resp, err := ts.Client().Do(r)
				if err != nil {
					t.Fatal(err)
				}
				defer resp.Body.Close()
				body, err := io.ReadAll(resp.Body)
				if err != nil {
					t.Fatal(err)
				}
				resp.Header.Del("Date")
				return resp, string(body)
			}
			plain, plainBody := get("/plain")
			for _, marker := range []string{"false", "true"} {
				resp, body := get("/held")
				if got := resp.Header.Get("Idempotent-Replayed"); got != marker {
					t.Errorf("Idempotent-Replayed %q, want %q", got, marker)
				}
				resp.Header.Del("Idempotent-Replayed")
				if marker == "true" && tt.unlike != "" {
					if resp.Trailer != nil {
						t.Errorf("the replay has trailers %v", resp.Trailer)
					}
					plain.Trailer, plain.ContentLength = nil, int64(len(plainBody))
					resp.Header.Del("Content-Length")
				}
				if resp.StatusCode != plain.StatusCode || body != plainBody || !maps.EqualFunc(resp.Header, plain.Header, slices.Equal) ||
					!maps.EqualFunc(resp.Trailer, plain.Trailer, slices.Equal) || resp.ContentLength != plain.ContentLength {
					t.Errorf("got %d %q %v %v %d\nwant %d %q %v %v %d", resp.StatusCode, body, resp.Header, resp.Trailer, resp.ContentLength,
						plain.StatusCode, plainBody, plain.Header, plain.Trailer, plain.ContentLength)
				}
			}
		})
	}
}

func TestB108WrongContentLength(t *testing.T) {
	for _, body := range []string{"short", "much too long"} {
		t.Run(body, func(t *testing.T) {
			c := &counter{do: func(w http.ResponseWriter, _ *http.Request, _ int) {
				w.Header().Set("Content-Length", "10")
				_, _ = io.WriteString(w, body)
			}}
			h := newServer(t, server.Config{}).Handler(c)
			post(h, "k", "{}")
			want(t, post(h, "k", "{}"), 409, "response-not-retained")
			c.want(t, 1)
		})
	}
}

func TestNonsenseContentLength(t *testing.T) {
	c := &counter{do: func(w http.ResponseWriter, _ *http.Request, _ int) {
		w.Header().Set("Content-Length", "four")
		_, _ = io.WriteString(w, "made")
	}}
	h := newServer(t, server.Config{}).Handler(c)
	wantFirst(t, post(h, "k", "{}"), 200, "made")
	wantReplay(t, post(h, "k", "{}"), 200, "made")
}

// gzipped is a compressing middleware of the common kind.
func gzipped(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Add("Vary", "Accept-Encoding")
		if !strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
			next.ServeHTTP(w, r)
			return
		}
		zw := gzip.NewWriter(w)
		defer zw.Close()
		next.ServeHTTP(&gzipWriter{w, zw}, r)
	})
}

type gzipWriter struct {
	http.ResponseWriter
	zw *gzip.Writer
}

func (w *gzipWriter) WriteHeader(status int) {
	w.Header().Del("Content-Length")
	w.Header().Set("Content-Encoding", "gzip")
	w.ResponseWriter.WriteHeader(status)
}

func (w *gzipWriter) Write(p []byte) (int, error) { return w.zw.Write(p) }

func TestB109Gzip(t *testing.T) {
	for _, where := range []string{"outside", "inside"} {
		t.Run(where, func(t *testing.T) {
			c := &counter{}
			s := newServer(t, server.Config{})
			h := s.Handler(gzipped(c))
			if where == "outside" {
				h = gzipped(s.Handler(c))
			}
			for _, accept := range []string{"gzip", "", "identity", "gzip"} {
				r := request("k", "{}")
				r.Header.Set("Accept-Encoding", accept)
				w := serve(h, r)
				var body io.Reader = w.Body
				switch encoding := w.Header().Get("Content-Encoding"); {
				case encoding == "gzip" && accept == "gzip" && where == "outside":
					zr, err := gzip.NewReader(w.Body)
					if err != nil {
						t.Fatal(err)
					}
					body = zr
				case encoding != "":
					t.Errorf("Accept-Encoding %q: Content-Encoding %q", accept, encoding)
				}
				if got, err := io.ReadAll(body); string(got) != "made" || err != nil {
					t.Errorf("Accept-Encoding %q: got %q, %v", accept, got, err)
				}
				if w.Header().Get("Vary") != "Accept-Encoding" {
					t.Errorf("Vary %q", w.Header().Get("Vary"))
				}
			}
			c.want(t, 1)
		})
	}
}

func TestB105TooLargeToStore(t *testing.T) {
	const limit = 100
	large := strings.Repeat("x", limit+1)
	tests := []struct {
		name   string
		status int
		cfg    server.Config
		opts   []server.RouteOption
		body   string
		marker string // of the first answer
	}{
		{"B106 at the bound", 201, server.Config{MaxResponse: limit}, nil, large[1:], "false"},
		{"B106 over the bound", 201, server.Config{MaxResponse: limit}, nil, large, ""},
		{"refusal over the bound", 404, server.Config{MaxResponse: limit}, nil, large, ""},
		{"B138 not stored by choice", 201, server.Config{}, []server.RouteOption{server.WithoutStoredAnswer()}, "secret", "false"},
		{"over the store's bound", 201, server.Config{Store: tightStore{}}, nil, large, "false"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			store := newStore(t)
			if tt.cfg.Store == nil {
				tt.cfg.Store = store
			} else {
				tt.cfg.Store = tightStore{store}
			}
			c := &counter{do: func(w http.ResponseWriter, _ *http.Request, _ int) {
				w.Header().Set("Location", "/orders/7")
				status(tt.status, tt.body)(w, nil, 0)
			}}
			seen := &events{}
			tt.cfg.Observer = seen
			h := newServer(t, tt.cfg).Handler(c, tt.opts...)
			wantAnswer(t, post(h, "k", "{}"), tt.status, tt.body, tt.marker)
			w := post(h, "k", "{}")
			c.want(t, 1)
			switch {
			case tt.name == "B106 at the bound":
				wantReplay(t, w, 201, tt.body)
			case tt.status >= 400:
				// Told as what it was: a refusal.
				want(t, w, tt.status, "response-not-retained")
				if w.Header().Get("Idempotent-Replayed") != "true" {
					t.Error("the replayed refusal has no marker")
				}
			default:
				want(t, w, 409, "response-not-retained")
				if w.Header().Get("Idempotent-Replayed") != "" {
					t.Error("409 response-not-retained is no replay")
				}
				if last := seen.take()[1]; last.Outcome != idem.OutcomeExecuted || last.Source != idem.SourceReplayed {
					t.Errorf("event %+v", last)
				}
			}
			if w.Header().Get("Location") != "/orders/7" {
				t.Errorf("Location %q", w.Header().Get("Location"))
			}
			want(t, post(h, "k", "[]"), 422, "key-reused")
			if tt.name == "B138 not stored by choice" {
				rec, _ := store.Records(t.Context(), keystore.Query{})
				if a, err := stored.Decode(rec[0].Result); err != nil || len(a.Body) != 0 {
					t.Errorf("the record has %+v, %v", a, err)
				}
			}
		})
	}
}

// tightStore has no room for more than a tombstone.
type tightStore struct{ keystore.Store }

func (s tightStore) Complete(ctx context.Context, o keystore.Owner, p keystore.CompleteParams) error {
	if a, err := stored.Decode(p.Result); err == nil && a.Kind != stored.Tombstone {
		return keystore.ErrTooLarge
	}
	return s.Store.Complete(ctx, o, p)
}
