package server_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/idem-go/idem/server"
)

// endless is a body that does not end, and counts what is read of it.
type endless struct{ read int }

func (e *endless) Read(p []byte) (int, error) { e.read += len(p); return len(p), nil }

func TestB010IncompleteBody(t *testing.T) {
	t.Run("on the wire", func(t *testing.T) {
		c := &counter{}
		seen := make(chan string, 1)
		h := newServer(t, server.Config{}).Handler(c)
		ts := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			rec := httptest.NewRecorder()
			h.ServeHTTP(rec, r)
			seen <- code(rec)
		}))
		defer ts.Close()
		conn, err := net.Dial("tcp", ts.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		_, _ = fmt.Fprintf(conn, "POST / HTTP/1.1\r\nHost: x\r\nIdempotency-Key: k\r\nContent-Length: 100\r\n\r\n%s", strings.Repeat("x", 40))
		_ = conn.Close()
		if got := <-seen; got != "body-incomplete" {
			t.Errorf("got problem %q", got)
		}
		c.want(t, 0)
	})
	t.Run("an error of the reader", func(t *testing.T) {
		c := &counter{}
		h := newServer(t, server.Config{}).Handler(c)
		r := request("k", "")
		r.Body = io.NopCloser(io.MultiReader(strings.NewReader("{"), iotest.ErrReader(errors.New("cut"))))
		want(t, serve(h, r), 400, "body-incomplete")
		c.want(t, 0)
		// Nothing was claimed.
		wantFirst(t, post(h, "k", "another payload"), 201, "made")
	})
	t.Run("less than declared", func(t *testing.T) {
		c := &counter{}
		r := request("k", "{}")
		r.ContentLength = 100
		want(t, serve(newServer(t, server.Config{}).Handler(c), r), 400, "body-incomplete")
		c.want(t, 0)
	})
}

func TestB129LargeBody(t *testing.T) {
	const limit = 1 << 10
	c := &counter{do: func(w http.ResponseWriter, r *http.Request, _ int) {
		n, _ := io.Copy(io.Discard, r.Body)
		_, _ = fmt.Fprint(w, n, r.ContentLength)
	}}
	h := newServer(t, server.Config{MaxRequest: limit}).Handler(c)
	t.Run("chunked without end", func(t *testing.T) {
		body := &endless{}
		r := request("k", "")
		r.Body, r.ContentLength = io.NopCloser(body), -1
		want(t, serve(h, r), 413, "body-too-large")
		if body.read > 8*limit {
			t.Errorf("%d bytes were read", body.read)
		}
		c.want(t, 0)
	})
	t.Run("declared", func(t *testing.T) {
		body := &endless{}
		r := request("k", "")
		r.Body, r.ContentLength = io.NopCloser(body), limit+1
		want(t, serve(h, r), 413, "body-too-large")
		if body.read != 0 {
			t.Errorf("%d bytes were read", body.read)
		}
	})
	t.Run("at the limit", func(t *testing.T) {
		wantFirst(t, post(h, "k", strings.Repeat("x", limit)), 200, fmt.Sprint(limit, limit))
		want(t, post(h, "k2", strings.Repeat("x", limit+1)), 413, "body-too-large")
	})
	t.Run("chunked stays chunked", func(t *testing.T) {
		r := request("k3", strings.Repeat("x", 7))
		r.ContentLength = -1
		wantFirst(t, serve(h, r), 200, fmt.Sprint(7, -1))
	})
}

func TestB129Trailers(t *testing.T) {
	c := &counter{do: func(w http.ResponseWriter, r *http.Request, _ int) {
		body, _ := io.ReadAll(r.Body)
		_, _ = fmt.Fprintf(w, "%s %s", body, r.Trailer.Get("X-Sum"))
	}}
	ts := httptest.NewServer(newServer(t, server.Config{}).Handler(c))
	defer ts.Close()
	conn, err := net.Dial("tcp", ts.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	replies := bufio.NewReader(conn)
	for key, announced := range []string{"Trailer: X-Sum\r\n", ""} {
		_, _ = fmt.Fprintf(conn, "POST / HTTP/1.1\r\nHost: x\r\nIdempotency-Key: %d\r\nTransfer-Encoding: chunked\r\n%s\r\n"+
			"3\r\nabc\r\n0\r\nX-Sum: 42\r\n\r\n", key, announced)
		resp, err := http.ReadResponse(replies, nil)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if string(body) != "abc 42" {
			t.Errorf("announced %q: the handler saw %q", announced, body)
		}
	}
}

// B011: a refusal before the body was read leaves the connection usable.
func TestB011EarlyRefusal(t *testing.T) {
	c := &counter{}
	ts := httptest.NewServer(newServer(t, server.Config{}).Handler(c))
	defer ts.Close()
	conn, err := net.Dial("tcp", ts.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	replies := bufio.NewReader(conn)
	for _, tt := range []struct {
		key, body string
		status    int
	}{{"", "12345", 400}, {"Idempotency-Key: a, b\r\n", "12345", 400}, {"Idempotency-Key: k\r\n", "12345", 201}, {"Idempotency-Key: k\r\n", "54321", 422}, {"Idempotency-Key: k\r\n", "12345", 201}} {
		_, _ = fmt.Fprintf(conn, "POST / HTTP/1.1\r\nHost: x\r\n%sContent-Length: 5\r\n\r\n%s", tt.key, tt.body)
		resp, err := http.ReadResponse(replies, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		if resp.StatusCode != tt.status {
			t.Errorf("key %q, body %q: %d, want %d", tt.key, tt.body, resp.StatusCode, tt.status)
		}
	}
	c.want(t, 1)
}

func TestFingerprint(t *testing.T) {
	c := &counter{}
	h := newServer(t, server.Config{}).Handler(c)
	wantFirst(t, post(h, "k", `{"amount":9007199254740993,"to":"x"}`), 201, "made")
	t.Run("B121 equal JSON", func(t *testing.T) {
		wantReplay(t, post(h, "k", `{ "to":"x", "amount":9007199254740993 }`), 201, "made")
	})
	t.Run("B122 numbers are exact", func(t *testing.T) {
		want(t, post(h, "k", `{"amount":9007199254740992,"to":"x"}`), 422, "key-reused")
	})
	t.Run("another media type", func(t *testing.T) {
		r := request("k", `{"amount":9007199254740993,"to":"x"}`)
		r.Header.Set("Content-Type", "text/plain")
		want(t, serve(h, r), 422, "key-reused")
	})
	t.Run("nothing of the answer leaks", func(t *testing.T) {
		w := post(h, "k", `{}`)
		if strings.Contains(w.Body.String(), "made") || w.Header().Get("Idempotent-Replayed") != "" {
			t.Errorf("got %s %v", w.Body, w.Header())
		}
	})
	c.want(t, 1)

	t.Run("the application's own", func(t *testing.T) {
		c := &counter{do: func(w http.ResponseWriter, r *http.Request, _ int) { _, _ = io.Copy(w, r.Body) }}
		h := newServer(t, server.Config{Fingerprint: func(r *http.Request, body []byte) (any, error) {
			if again, err := io.ReadAll(r.Body); err != nil || !bytes.Equal(again, body) {
				t.Errorf("the request's body is %q, %v", again, err)
			}
			word, _, found := bytes.Cut(body, []byte(" "))
			if !found {
				return nil, errors.New("one word only")
			}
			return string(word), nil
		}}).Handler(c)
		wantFirst(t, post(h, "k", "pay now"), 200, "pay now")
		wantReplay(t, post(h, "k", "pay later"), 200, "pay now")
		want(t, post(h, "k", "ship now"), 422, "key-reused")
		want(t, post(h, "k", "pay"), 400, "body-invalid")
		c.want(t, 1)
		invalid := newServer(t, server.Config{Fingerprint: func(*http.Request, []byte) (any, error) { return func() {}, nil }}).Handler(c)
		want(t, post(invalid, "k", "pay"), 400, "body-invalid")
	})
}
