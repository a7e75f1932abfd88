package server_test

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/idem-go/idem/server"
)

// onTheWire serves h over TCP, and posts to it with a key.
func onTheWire(t *testing.T, h http.Handler) func(trace *httptrace.ClientTrace) *http.Response {
	ts := httptest.NewServer(h)
	t.Cleanup(ts.Close)
	return func(trace *httptrace.ClientTrace) *http.Response {
		t.Helper()
		r, _ := http.NewRequest("POST", ts.URL, strings.NewReader("{}"))
		r.Header.Set("Idempotency-Key", "k")
		if trace != nil {
			r = r.WithContext(httptrace.WithClientTrace(r.Context(), trace))
		}
		resp, err := ts.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { resp.Body.Close() })
		return resp
	}
}

func wantNotRetained(t *testing.T, resp *http.Response, c *counter) {
	t.Helper()
	body, _ := io.ReadAll(resp.Body)
	if resp.StatusCode != 409 || !strings.Contains(string(body), `"response-not-retained"`) {
		t.Errorf("the retry got %d %s", resp.StatusCode, body)
	}
	c.want(t, 1)
}

func TestB113EventStream(t *testing.T) {
	for _, flush := range []bool{true, false} {
		next := make(chan struct{})
		c := &counter{do: func(w http.ResponseWriter, _ *http.Request, _ int) {
			w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
			_, _ = io.WriteString(w, "data: 1\n\n")
			if flush {
				w.(http.Flusher).Flush()
				<-next // the first event must be there before the second is written
			}
			_, _ = io.WriteString(w, "data: 2\n\n")
		}}
		do := onTheWire(t, newServer(t, server.Config{}).Handler(c))
		resp := do(nil)
		events := bufio.NewReader(resp.Body)
		if line, _ := events.ReadString('\n'); line != "data: 1\n" {
			t.Errorf("first event: %q", line)
		}
		close(next)
		if rest, _ := io.ReadAll(events); string(rest) != "\ndata: 2\n\n" {
			t.Errorf("the rest: %q", rest)
		}
		if _, ok := resp.Header["Idempotent-Replayed"]; ok {
			t.Error("what is not stored yet has the marker")
		}
		wantNotRetained(t, do(nil), c)
	}
}

func TestFlushPassesThrough(t *testing.T) {
	c := &counter{do: func(w http.ResponseWriter, _ *http.Request, _ int) {
		w.Header().Set("Location", "/jobs/1")
		w.Header().Set("Trailer", "X-Sum")
		w.WriteHeader(202)
		if err := http.NewResponseController(w).Flush(); err != nil {
			panic(err)
		}
		w.Header().Set("X-Sum", "42")
	}}
	do := onTheWire(t, newServer(t, server.Config{}).Handler(c))
	resp := do(nil)
	_, _ = io.ReadAll(resp.Body)
	if resp.StatusCode != 202 || resp.Trailer.Get("X-Sum") != "42" {
		t.Errorf("got %d, trailers %v", resp.StatusCode, resp.Trailer)
	}
	resp = do(nil)
	if resp.Header.Get("Location") != "/jobs/1" {
		t.Errorf("Location %q", resp.Header.Get("Location"))
	}
	wantNotRetained(t, resp, c)
}

func TestB110Informational(t *testing.T) {
	sent := make(chan struct{})
	c := &counter{do: func(w http.ResponseWriter, _ *http.Request, _ int) {
		w.Header().Set("Link", "</style.css>; rel=preload")
		w.WriteHeader(http.StatusEarlyHints)
		w.Header().Del("Link")
		<-sent // it must pass before the answer is there
		w.WriteHeader(http.StatusCreated)
	}}
	do := onTheWire(t, newServer(t, server.Config{}).Handler(c))
	resp := do(&httptrace.ClientTrace{Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
		if code != 103 || h.Get("Link") == "" {
			t.Errorf("got %d %v", code, h)
		}
		close(sent)
		return nil
	}})
	if resp.StatusCode != 201 || resp.Header.Get("Link") != "" {
		t.Errorf("got %d %v", resp.StatusCode, resp.Header)
	}
	again := do(&httptrace.ClientTrace{Got1xxResponse: func(code int, _ textproto.MIMEHeader) error {
		t.Errorf("the replay sent %d", code)
		return nil
	}})
	if again.StatusCode != 201 || again.Header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("got %d %v", again.StatusCode, again.Header)
	}
	c.want(t, 1)
}

// What a 1xx answer had in its header is not left there for others.
func TestInformationalThenPanic(t *testing.T) {
	c := &counter{do: func(w http.ResponseWriter, _ *http.Request, _ int) {
		w.Header().Set("Link", "</style.css>; rel=preload")
		w.WriteHeader(http.StatusEarlyHints)
		panic("boom")
	}}
	h := newServer(t, server.Config{}).Handler(c)
	w := &discard{header: http.Header{"X-Outer": {"1"}}}
	func() {
		defer func() { _ = recover() }()
		h.ServeHTTP(w, request("k", "{}"))
	}()
	if len(w.header) != 1 || w.header.Get("X-Outer") != "1" {
		t.Errorf("left behind: %v", w.header)
	}
}

func TestB090Hijack(t *testing.T) {
	c := &counter{do: func(w http.ResponseWriter, _ *http.Request, _ int) {
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			panic(err)
		}
		defer conn.Close()
		if _, err := w.Write([]byte("x")); !errors.Is(err, http.ErrHijacked) {
			t.Errorf("Write after Hijack: %v", err)
		}
		w.WriteHeader(500)
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi")
	}}
	do := onTheWire(t, newServer(t, server.Config{}).Handler(c))
	if body, _ := io.ReadAll(do(nil).Body); string(body) != "hi" {
		t.Errorf("got %q", body)
	}
	wantNotRetained(t, do(nil), c)
}

func TestReaderFrom(t *testing.T) {
	const limit = 64 << 10
	for _, size := range []int{100, limit, limit + 1, 10 * limit} {
		c := &counter{do: func(w http.ResponseWriter, _ *http.Request, _ int) {
			n, err := w.(io.ReaderFrom).ReadFrom(io.LimitReader(zeros{}, int64(size)))
			if n != int64(size) || err != nil {
				t.Errorf("ReadFrom: %d, %v; want %d", n, err, size)
			}
		}}
		do := onTheWire(t, newServer(t, server.Config{MaxResponse: limit}).Handler(c))
		for range 2 {
			resp := do(nil)
			body, _ := io.ReadAll(resp.Body)
			if resp.StatusCode == 409 && size > limit {
				continue
			}
			if !bytes.Equal(body, make([]byte, size)) {
				t.Errorf("got %d %d bytes, want %d", resp.StatusCode, len(body), size)
			}
		}
		c.want(t, 1)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// discard is a ResponseWriter without any optional method.
type discard struct {
	header http.Header
	n      int64
}

func (d *discard) Header() http.Header         { return d.header }
func (d *discard) WriteHeader(int)             {}
func (d *discard) Write(p []byte) (int, error) { d.n += int64(len(p)); return len(p), nil }

func TestB114LongStream(t *testing.T) {
	const size, chunk, limit = 1 << 30, 1 << 20, 1 << 20
	c := &counter{do: func(w http.ResponseWriter, _ *http.Request, _ int) {
		p := make([]byte, chunk)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range size / chunk {
			_, _ = w.Write(p)
		}
		runtime.ReadMemStats(&after)
		if got := after.TotalAlloc - before.TotalAlloc; got > 4*limit {
			t.Errorf("the recorder allocated %d bytes", got)
		}
	}}
	h := newServer(t, server.Config{MaxResponse: limit}).Handler(c)
	w := &discard{header: http.Header{}}
	h.ServeHTTP(w, request("k", "{}"))
	if w.n != size {
		t.Errorf("%d bytes passed, want %d", w.n, size)
	}
	want(t, post(h, "k", "{}"), 409, "response-not-retained")
}

// The optional methods of a ResponseWriter, one by one.
type (
	canFlush      struct{ flushed *bool }
	canFlushError struct{ flushed *bool }
	canHijack     struct{}
	canRead       struct{}
	canDeadline   struct{}
	wrapped       struct{ http.ResponseWriter }
)

func (c canFlush) Flush()                                      { *c.flushed = true }
func (c canFlushError) FlushError() error                      { *c.flushed = true; return nil }
func (canHijack) Hijack() (net.Conn, *bufio.ReadWriter, error) { return nil, nil, io.ErrClosedPipe }
func (canRead) ReadFrom(r io.Reader) (int64, error)            { return io.Copy(io.Discard, r) }
func (canDeadline) SetReadDeadline(time.Time) error            { return nil }
func (canDeadline) SetWriteDeadline(time.Time) error           { return nil }
func (canDeadline) EnableFullDuplex() error                    { return nil }
func (w wrapped) Unwrap() http.ResponseWriter                  { return w.ResponseWriter }

func TestB111OptionalMethods(t *testing.T) {
	var flushed bool
	d, f, h, r := &discard{header: http.Header{}}, canFlush{&flushed}, canHijack{}, canRead{}
	bases := map[string]http.ResponseWriter{
		"": d,
		"F": struct {
			*discard
			canFlush
		}{d, f},
		"H": struct {
			*discard
			canHijack
		}{d, h},
		"R": struct {
			*discard
			canRead
		}{d, r},
		"FH": struct {
			*discard
			canFlush
			canHijack
		}{d, f, h},
		"FR": struct {
			*discard
			canFlush
			canRead
		}{d, f, r},
		"HR": struct {
			*discard
			canHijack
			canRead
		}{d, h, r},
		"FHRD": struct {
			*discard
			canFlush
			canHijack
			canRead
			canDeadline
		}{d, f, h, r, canDeadline{}},
		"FD behind Unwrap": wrapped{struct {
			*discard
			canFlushError
			canDeadline
		}{d, canFlushError{&flushed}, canDeadline{}}},
	}
	for name, base := range bases {
		t.Run(name, func(t *testing.T) {
			flushed = false
			has := func(letter string) bool { return strings.Contains(name, letter) }
			check := func(what string, got, want bool) {
				if got != want {
					t.Errorf("%s: %v, want %v", what, got, want)
				}
			}
			works := func(err error) bool { return !errors.Is(err, http.ErrNotSupported) }
			c := &counter{do: func(w http.ResponseWriter, _ *http.Request, _ int) {
				rc := http.NewResponseController(w)
				_, ok := w.(interface{ Unwrap() http.ResponseWriter })
				check("Unwrap", ok, false)
				_, ok = w.(io.ReaderFrom)
				check("ReaderFrom", ok, has("R"))
				_, ok = w.(http.Hijacker)
				check("Hijacker", ok, has("H"))
				_, _, err := rc.Hijack()
				check("Hijack", works(err), has("H"))
				check("SetReadDeadline", works(rc.SetReadDeadline(time.Time{})), has("D"))
				check("SetWriteDeadline", works(rc.SetWriteDeadline(time.Time{})), has("D"))
				check("EnableFullDuplex", works(rc.EnableFullDuplex()), has("D"))
				_, ok = w.(http.Flusher)
				check("Flusher", ok, has("F"))
				check("Flush", works(rc.Flush()), has("F"))
				check("flushed", flushed, has("F"))
			}}
			handler := newServer(t, server.Config{}).Handler(c)
			handler.ServeHTTP(base, request("k", "{}"))
			// What was not flushed after all is stored.
			if has("F") {
				want(t, post(handler, "k", "{}"), 409, "response-not-retained")
			} else {
				wantReplay(t, post(handler, "k", "{}"), 200, "")
			}
		})
	}
}
