package idemtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// Fault is something that happens to one attempt between client and server.
// The zero Fault is Pass. Write your own as a literal.
type Fault struct {
	// Name is what the fault is counted under.
	Name string
	// RoundTrip carries the attempt out by way of base, with the contract of
	// http.RoundTripper; it may read req.Body. Nil passes the request on.
	RoundTrip func(base http.RoundTripper, req *http.Request) (*http.Response, error)
}

// String returns the fault's name.
func (f Fault) String() string {
	if f.Name == "" {
		return Pass.Name
	}
	return f.Name
}

func (f Fault) apply(base http.RoundTripper, req *http.Request) (*http.Response, error) {
	if f.RoundTrip == nil {
		return base.RoundTrip(req)
	}
	return f.RoundTrip(base, req)
}

// The faults that need no parameter.
var (
	// Pass is no fault.
	Pass = Fault{Name: "pass"}
	// Drop refuses the connection: the request is not sent, and a client can
	// know that, as with a real refusal: net/http/httptrace reports GetConn
	// and no GotConn.
	Drop = Fault{"drop", drop}
	// LoseReply lets the server do its work, and then ends the connection
	// instead of replying. The error is io.EOF.
	LoseReply = Fault{"lose-reply", loseReply}
	// ResetAfterSend sends the whole request and resets the connection a
	// millisecond later: whether the server does the work is up to it. The
	// error is syscall.ECONNRESET.
	ResetAfterSend = Fault{"reset-after-send", resetAfterSend}
	// HoldReply lets the server do its work, and holds the reply back until
	// the attempt's context ends, which it must do some time.
	HoldReply = Fault{"hold-reply", holdReply}
	// Duplicate delivers the request twice at the same time. The caller gets
	// the reply to one of the two, when both have been answered.
	Duplicate = Fault{"duplicate", duplicate}
)

// Faults returns one of each kind, with parameters that suit most tests.
func Faults() []Fault {
	return []Fault{
		Drop, LoseReply, ResetAfterSend, HoldReply, Duplicate, CutBody(1), TooManyRequests(time.Millisecond),
		StatusBefore(http.StatusBadGateway), StatusBefore(http.StatusServiceUnavailable), StatusBefore(http.StatusGatewayTimeout),
		StatusAfter(http.StatusBadGateway), StatusAfter(http.StatusServiceUnavailable), StatusAfter(http.StatusGatewayTimeout),
	}
}

// CutBody lets n bytes of the reply's body through, at most, and then breaks it
// off with io.ErrUnexpectedEOF.
func CutBody(n int64) Fault {
	return Fault{fmt.Sprintf("cut-body(%d)", n), func(base http.RoundTripper, req *http.Request) (*http.Response, error) {
		resp, err := base.RoundTrip(req)
		if err == nil {
			resp.Body = &cutBody{resp.Body, n}
		}
		return resp, err
	}}
}

// StatusBefore is a proxy that answers with the status and does not pass the
// request on.
func StatusBefore(status int) Fault {
	return Fault{fmt.Sprintf("%d-before", status), func(_ http.RoundTripper, req *http.Request) (*http.Response, error) {
		return proxyReply(req, status, nil), nil
	}}
}

// StatusAfter is a proxy that answers with the status after the server has
// done its work.
func StatusAfter(status int) Fault {
	return Fault{fmt.Sprintf("%d-after", status), func(base http.RoundTripper, req *http.Request) (*http.Response, error) {
		if err := drain(base.RoundTrip(req)); err != nil {
			return nil, err
		}
		return proxyReply(req, status, nil), nil
	}}
}

// TooManyRequests is a proxy that answers 429 and does not pass the request on.
// It asks to wait: in Retry-After, or in Retry-After-Ms if wait is not in whole
// seconds.
func TooManyRequests(wait time.Duration) Fault {
	h := http.Header{"Retry-After": {strconv.FormatInt(int64(wait/time.Second), 10)}}
	if wait%time.Second != 0 {
		h = http.Header{"Retry-After-Ms": {strconv.FormatInt(wait.Milliseconds(), 10)}}
	}
	return Fault{"429", func(_ http.RoundTripper, req *http.Request) (*http.Response, error) {
		return proxyReply(req, http.StatusTooManyRequests, h), nil
	}}
}

func drop(_ http.RoundTripper, req *http.Request) (*http.Response, error) {
	if trace := httptrace.ContextClientTrace(req.Context()); trace != nil && trace.GetConn != nil {
		trace.GetConn(req.URL.Host)
	}
	return nil, &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
}

func loseReply(base http.RoundTripper, req *http.Request) (*http.Response, error) {
	if err := drain(base.RoundTrip(req)); err != nil {
		return nil, err
	}
	return nil, io.EOF
}

// resetDelay is the time between the report that a request was written and the
// reset: net/http reports it right before it flushes its buffer.
const resetDelay = time.Millisecond

func resetAfterSend(base http.RoundTripper, req *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancel(req.Context())
	defer cancel()
	var sent atomic.Bool
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteRequest: func(info httptrace.WroteRequestInfo) {
		if info.Err == nil {
			sent.Store(true)
			time.AfterFunc(resetDelay, cancel)
		}
	}})
	// A base that reports nothing is waited for instead.
	if err := drain(base.RoundTrip(req.WithContext(ctx))); err != nil && !sent.Load() {
		return nil, err
	}
	return nil, &net.OpError{Op: "read", Net: "tcp", Err: os.NewSyscallError("read", syscall.ECONNRESET)}
}

var errEndless = errors.New("idemtest: HoldReply needs an attempt that ends: give the request a timeout or a deadline")

func holdReply(base http.RoundTripper, req *http.Request) (*http.Response, error) {
	ctx := req.Context()
	if ctx.Done() == nil {
		return nil, errEndless
	}
	if err := drain(base.RoundTrip(req)); err != nil {
		return nil, err
	}
	<-ctx.Done()
	return nil, context.Cause(ctx)
}

func duplicate(base http.RoundTripper, req *http.Request) (*http.Response, error) {
	body, err := readBody(req)
	if err != nil {
		return nil, err
	}
	// The copy is made on the way: the caller's trace does not see it.
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	defer context.AfterFunc(req.Context(), cancel)()
	second := withBody(req, body).WithContext(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		// What becomes of the copy, nobody learns.
		_ = drain(base.RoundTrip(second))
	}()
	resp, err := base.RoundTrip(withBody(req, body))
	<-done
	return resp, err
}

// drain reads a reply to its end, and closes it.
func drain(resp *http.Response, err error) error {
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}

// proxyReply is a reply that did not come from the server.
func proxyReply(req *http.Request, status int, h http.Header) *http.Response {
	text := fmt.Sprintf("%d %s", status, http.StatusText(status))
	body := "<html><body><h1>" + text + "</h1></body></html>\n"
	resp := &http.Response{
		Status: text, StatusCode: status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: h.Clone(), Body: io.NopCloser(strings.NewReader(body)), ContentLength: int64(len(body)), Request: req,
	}
	if resp.Header == nil {
		resp.Header = http.Header{}
	}
	resp.Header.Set("Content-Type", "text/html")
	return resp
}

// cutBody is a body that breaks off after n bytes, if it does not end before.
type cutBody struct {
	io.ReadCloser
	left int64
}

func (c *cutBody) Read(p []byte) (int, error) {
	if c.left <= 0 {
		return 0, io.ErrUnexpectedEOF
	}
	n, err := c.ReadCloser.Read(p[:min(int64(len(p)), c.left)])
	c.left -= int64(n)
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}
