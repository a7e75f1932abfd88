package idem_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/idem-go/idem"
)

// wireListen accepts TCP connections and closes all of them when the test ends.
func wireListen(t *testing.T, serve func(net.Conn)) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var (
		mu    sync.Mutex
		conns []net.Conn
		wg    sync.WaitGroup
	)
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			conns = append(conns, c)
			mu.Unlock()
			wg.Go(func() {
				defer c.Close()
				serve(c)
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		mu.Lock()
		for _, c := range conns {
			c.Close()
		}
		mu.Unlock()
		wg.Wait()
	})
	return l.Addr().String()
}

// wireServer speaks HTTP/1 by hand, so that it can break every rule of it.
type wireServer struct {
	URL string

	mu    sync.Mutex
	steps []wireStep
	seen  []wireRequest
	conns int
}

// wireStep answers one request, and tells whether the connection stays open.
type wireStep func(net.Conn) (open bool)

// wireRequest is a request as it was on the wire.
type wireRequest struct {
	*http.Request
	Keys []string // the lines of Idempotency-Key
	Body string
	Conn int
}

// wireServe answers the n-th request by the n-th step, further ones by the
// last.
func wireServe(t *testing.T, steps ...wireStep) *wireServer {
	t.Helper()
	s := &wireServer{steps: steps}
	s.URL = "http://" + wireListen(t, s.serve)
	return s
}

func (s *wireServer) serve(c net.Conn) {
	s.mu.Lock()
	s.conns++
	conn := s.conns
	s.mu.Unlock()
	r := bufio.NewReader(c)
	for {
		req, err := http.ReadRequest(r)
		if err != nil {
			return
		}
		body, err := io.ReadAll(req.Body)
		if err != nil {
			return
		}
		s.mu.Lock()
		s.seen = append(s.seen, wireRequest{Request: req, Keys: req.Header["Idempotency-Key"], Body: string(body), Conn: conn})
		step := s.steps[min(len(s.seen), len(s.steps))-1]
		s.mu.Unlock()
		if !step(c) {
			return
		}
	}
}

// next sets the steps for the requests to come.
func (s *wireServer) next(steps ...wireStep) {
	s.mu.Lock()
	defer s.mu.Unlock()
	past := make([]wireStep, len(s.seen))
	s.steps = append(past, steps...)
}

func (s *wireServer) requests() []wireRequest {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]wireRequest(nil), s.seen...)
}

// sameKey checks that n requests came, all with one line of one key and with
// the body, and returns the key.
func (s *wireServer) sameKey(t *testing.T, n int, body string) idem.Key {
	t.Helper()
	seen := s.requests()
	if len(seen) != n {
		t.Fatalf("%d requests on the wire, want %d", len(seen), n)
	}
	for i, r := range seen {
		if len(r.Keys) != 1 || r.Keys[0] == "" || r.Keys[0] != seen[0].Keys[0] {
			t.Errorf("request %d has the key lines %q, the first has %q", i+1, r.Keys, seen[0].Keys)
		}
		if r.Body != body || r.ContentLength != int64(len(body)) {
			t.Errorf("request %d has the body %q (Content-Length %d), want %q", i+1, r.Body, r.ContentLength, body)
		}
	}
	return idem.Key(seen[0].Keys[0])
}

// wireReply answers with a status, headers ("Name: value") and a body.
func wireReply(status int, body string, headers ...string) wireStep {
	return func(c net.Conn) bool {
		if status >= 200 && status != http.StatusNoContent && status != http.StatusNotModified {
			headers = append(headers[:len(headers):len(headers)], fmt.Sprintf("Content-Length: %d", len(body)))
		}
		_, err := fmt.Fprintf(c, "HTTP/1.1 %d %s\r\n%s\r\n%s", status, http.StatusText(status), wireLines(headers), body)
		return err == nil
	}
}

// wireRaw answers with the bytes as they are, and closes.
func wireRaw(text string) wireStep {
	return func(c net.Conn) bool {
		_, _ = io.WriteString(c, text)
		return false
	}
}

func wireLines(headers []string) string {
	var b strings.Builder
	for _, h := range headers {
		b.WriteString(h + "\r\n")
	}
	return b.String()
}

// wireEOF closes in an orderly way, without an answer.
func wireEOF(net.Conn) bool { return false }

// wireReset closes with a TCP reset, after what has been written.
func wireReset(c net.Conn) bool {
	_ = c.(*net.TCPConn).SetLinger(0)
	return false
}

// wireStall says nothing until the client has gone.
func wireStall(c net.Conn) bool {
	_, _ = io.Copy(io.Discard, c)
	return false
}

// wireThen does one thing after the other.
func wireThen(steps ...wireStep) wireStep {
	return func(c net.Conn) (open bool) {
		for _, s := range steps {
			open = s(c)
		}
		return open
	}
}
