package idemtest_test

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/idem-go/idem/idemtest"
	"github.com/idem-go/idem/internal/servertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(servertest.RedisTests(m)) }

// pipes is a listener whose connections are pipes, so that a server can run in
// a synctest bubble.
type pipes struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.done) })
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "unix"} }

func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case p.conns <- theirs:
		return ours, nil
	case <-p.done:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// servePipes serves h over pipes until the test ends, and returns the way to it.
func servePipes(t *testing.T, h http.Handler) *http.Transport {
	p := &pipes{conns: make(chan net.Conn), done: make(chan struct{})}
	srv := &http.Server{Handler: h}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = srv.Serve(p) // always ErrServerClosed
	}()
	base := &http.Transport{DialContext: p.dial}
	t.Cleanup(func() {
		base.CloseIdleConnections()
		if err := srv.Shutdown(context.Background()); err != nil {
			t.Errorf("shutdown: %v", err)
		}
		<-ended
	})
	return base
}

// newPost is a request with a body and, if it is not empty, a key.
func newPost(t *testing.T, url, key, body string) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
	return req
}

// roundTripFunc is a RoundTripper.
type roundTripFunc func(*http.Request) (*http.Response, error)

func (f roundTripFunc) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// answering is a base that answers each request with 200 and its own body.
var answering = roundTripFunc(func(req *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: req.Body, Request: req}, nil
})

// bodyOf reads a response to its end.
func bodyOf(resp *http.Response, err error) (string, error) {
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return string(b), err
}

// jsonOf encodes a charge.
func jsonOf(t *testing.T, c idemtest.Charge) []byte {
	b, err := json.Marshal(c)
	if err != nil {
		t.Error(err) // not Fatal: it runs on other goroutines too
	}
	return b
}
