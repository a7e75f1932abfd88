package idem_test

import (
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/idem-go/idem"
)

// wirePolicy waits 1 ms before every retry, and for another owner five times.
var wirePolicy = idem.Policy{BaseDelay: time.Millisecond, MaxDelay: time.Millisecond, InFlightWait: 5 * time.Millisecond}

const (
	wireTries = 4 // attempts of wirePolicy
	wireWaits = 6 // requests of a call that waits for another owner until it gives up
)

const wireBody = `{"amount":4200,"currency":"eur"}`

// wireBase is a transport of the test's own.
func wireBase(t *testing.T) *http.Transport {
	base := &http.Transport{}
	t.Cleanup(base.CloseIdleConnections)
	return base
}

// wireFunc is a RoundTripper in memory.
type wireFunc func(*http.Request) (*http.Response, error)

func (f wireFunc) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// wireAnswer is a response in memory.
func wireAnswer(req *http.Request, status int, body string, headers ...string) *http.Response {
	if req.Body != nil {
		_, _ = io.Copy(io.Discard, req.Body)
		req.Body.Close()
	}
	h := make(http.Header)
	for _, line := range headers {
		name, value, _ := strings.Cut(line, ": ")
		h.Add(name, value)
	}
	return &http.Response{StatusCode: status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: h,
		ContentLength: int64(len(body)), Body: io.NopCloser(strings.NewReader(body)), Request: req}
}

// wireObserver keeps the events.
type wireObserver struct {
	mu     sync.Mutex
	events []idem.Event
}

func (o *wireObserver) Observe(_ context.Context, e idem.Event) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.events = append(o.events, e)
}

func (o *wireObserver) last() idem.Event {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.events) == 0 {
		return idem.Event{}
	}
	return o.events[len(o.events)-1]
}

// wireTripper is a Transport over base, and what its observer saw.
type wireTripper struct {
	http.RoundTripper
	seen *wireObserver
}

// wireClient makes a client; a zero Policy is wirePolicy.
func wireClient(t *testing.T, cfg idem.Config, base http.RoundTripper) wireTripper {
	t.Helper()
	o := &wireObserver{}
	cfg.Observer = o
	if cfg.Policy == (idem.Policy{}) {
		cfg.Policy = wirePolicy
	}
	c, err := idem.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return wireTripper{c.Transport(base), o}
}

// wireResult is what RoundTrip returned: a response and its body, or an error.
type wireResult struct {
	resp  *http.Response
	body  string
	err   *idem.Error
	event idem.Event
}

// do sends a request and reads what comes back.
func (w wireTripper) do(t *testing.T, req *http.Request) wireResult {
	t.Helper()
	resp, err := w.RoundTrip(req)
	res := wireResult{resp: resp, event: w.seen.last()}
	if err != nil {
		if resp != nil {
			t.Error("both a response and an error were returned")
		}
		if !errors.As(err, &res.err) {
			t.Fatalf("error %v (%T) is no *Error", err, err)
		}
		return res
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Errorf("body: %v", err)
	}
	resp.Body.Close()
	res.body = string(body)
	return res
}

// is tells whether there is an error that matches.
func (r wireResult) is(target error) bool { return r.err != nil && errors.Is(r.err, target) }

// outcome is what the caller was told, by the error or by the response.
func (r wireResult) outcome() idem.Outcome {
	if r.err != nil {
		return r.err.Outcome
	}
	return idem.ReportOf(r.resp).Outcome
}

// attempts is how many attempts the caller was told of.
func (r wireResult) attempts() int {
	if r.err != nil {
		return r.err.Attempts
	}
	return idem.ReportOf(r.resp).Attempts
}

// lastStatus is the status of the reply, returned or kept in the error.
func (r wireResult) lastStatus() int {
	var reply *idem.ResponseError
	switch {
	case r.resp != nil:
		return r.resp.StatusCode
	case errors.As(r.err.Last, &reply):
		return reply.StatusCode
	}
	return 0
}

func wireRequestTo(t *testing.T, method, url, body string) *http.Request {
	t.Helper()
	var r io.Reader
	if body != "" {
		r = strings.NewReader(body)
	}
	req, err := http.NewRequestWithContext(t.Context(), method, url, r)
	if err != nil {
		t.Fatal(err)
	}
	return req
}

func wirePost(t *testing.T, url string) *http.Request {
	t.Helper()
	return wireRequestTo(t, http.MethodPost, url, wireBody)
}

// wireQuiet swallows what net/http's servers log about broken connections.
var wireQuiet = log.New(io.Discard, "", 0)

// wireMoment is an attempt timeout for what never comes.
const wireMoment = 60 * time.Millisecond

// wireRefuse is a dialer that finds nobody.
func wireRefuse(context.Context, string, string) (net.Conn, error) {
	return nil, wireOpError(syscall.ECONNREFUSED)
}
