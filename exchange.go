package idem

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
	"time"

	"github.com/idem-go/idem/internal/stored"
)

// errResend is what net/http gets instead of a second copy of the body. It
// re-sends a keyed request by itself, below every counter and timer; so every
// re-send of a body is ours.
var errResend = errors.New("idem: net/http asked to send the request again")

// timeoutError ends an attempt whose time is up.
type timeoutError struct{ after time.Duration }

func (e *timeoutError) Error() string { return fmt.Sprintf("idem: no answer within %v", e.after) }
func (e *timeoutError) Timeout() bool { return true }

// sent is what was seen of one HTTP exchange.
type sent struct {
	reply *reply
	err   error
	// How often net/http looked for a connection and how often it got one. A
	// request is proven never to have been sent when it looked and never got
	// one; nothing else proves it.
	getConn, gotConn int
}

// exchange sends req once through base and reads the reply; the end of req's
// context is the caller's. timeout bounds the
// wait for the header, and then each gap in the body. A body over limit bytes,
// or any body if ahead says so, is left to be read by the caller.
func exchange(req *http.Request, base http.RoundTripper, timeout time.Duration, limit int, ahead func(status int) bool) (s sent) {
	ctx, cancel := context.WithCancelCause(req.Context())
	late := &timeoutError{timeout}
	timer := time.AfterFunc(timeout, func() { cancel(late) })
	var getConn, gotConn atomic.Int32
	trace := &httptrace.ClientTrace{
		GetConn: func(string) { getConn.Add(1) },
		GotConn: func(httptrace.GotConnInfo) { gotConn.Add(1) },
	}
	defer func() {
		s.getConn, s.gotConn = int(getConn.Load()), int(gotConn.Load())
		if s.err != nil {
			timer.Stop()
			if context.Cause(ctx) == error(late) {
				s.err = fmt.Errorf("%w: %w", late, s.err)
			}
			cancel(nil)
		}
	}()
	resp, err := base.RoundTrip(req.WithContext(httptrace.WithClientTrace(ctx, trace)))
	if err != nil {
		return sent{err: err}
	}
	if resp == nil || resp.Body == nil {
		return sent{err: errors.New("idem: the base RoundTripper returned neither a response nor an error")}
	}
	timer.Stop()
	body := &gapReader{body: resp.Body, timer: timer, gap: timeout, end: func() { timer.Stop(); cancel(nil) }}
	s.reply = &reply{resp: *resp}
	s.reply.resp.Body, s.reply.resp.Request = nil, nil
	if resp.StatusCode == http.StatusSwitchingProtocols {
		s.reply.stream = resp.Body // its reader is also a writer
		return s
	}
	if !ahead(resp.StatusCode) {
		s.reply.stream = body
		return s
	}
	head, err := io.ReadAll(io.LimitReader(body, int64(limit)+1))
	switch {
	case err != nil:
		_ = body.Close()
		s.err = fmt.Errorf("idem: the body of the answer (%d) broke off: %w", resp.StatusCode, err)
	case len(head) > limit:
		s.reply.stream = struct {
			io.Reader
			io.Closer
		}{io.MultiReader(bytes.NewReader(head), body), body}
	default:
		_ = body.Close()
		s.reply.body = head
		// Trailers arrive with the end of the body.
		s.reply.resp.Trailer = resp.Trailer
	}
	return s
}

// gapReader reads a body whose every read may take gap at most.
type gapReader struct {
	body  io.ReadCloser
	timer *time.Timer // cancels the exchange
	gap   time.Duration
	end   func()
}

func (g *gapReader) Read(p []byte) (int, error) {
	g.timer.Reset(g.gap)
	n, err := g.body.Read(p)
	g.timer.Stop()
	if err != nil {
		g.end()
	}
	return n, err
}

func (g *gapReader) Close() error {
	err := g.body.Close()
	g.end()
	return err
}

// reply is a response as it was read. It does not change, and every caller who
// shares in it gets a response of its own.
type reply struct {
	resp http.Response // without body and request
	body []byte
	// stream is a body that is not kept; one caller gets it.
	stream io.ReadCloser
	taken  atomic.Bool
	trail  *trail
}

// response returns an independent response to req, or false if the body was a
// stream that another caller has.
func (r *reply) response(req *http.Request) (*http.Response, bool) {
	resp := r.resp
	resp.Header = r.resp.Header.Clone()
	resp.Trailer = r.resp.Trailer.Clone()
	resp.TransferEncoding = append([]string(nil), r.resp.TransferEncoding...)
	resp.Request = req
	if r.stream != nil {
		resp.Body = r.stream
		return &resp, r.taken.CompareAndSwap(false, true)
	}
	resp.Body = io.NopCloser(bytes.NewReader(r.body))
	if req.Method != http.MethodHead {
		resp.ContentLength = int64(len(r.body))
	}
	return &resp, true
}

// discard closes a stream that nobody takes.
func (r *reply) discard() {
	if r.stream != nil && r.taken.CompareAndSwap(false, true) {
		_ = r.stream.Close()
	}
}

// failure is the reply as an error, for a caller who gets no response.
func (r *reply) failure() *ResponseError {
	return &ResponseError{StatusCode: r.resp.StatusCode, Header: r.resp.Header, Body: r.body}
}

// encodeReply is a reply's stored form.
func encodeReply(value any) stored.Answer {
	r := value.(*reply)
	if r.stream != nil {
		return tombstone("the response is over the bound")
	}
	return stored.Answer{Kind: stored.Response, Status: r.resp.StatusCode, Header: r.resp.Header, Body: r.body}
}

// decodeReply is the inverse of encodeReply.
func decodeReply(a stored.Answer) (any, error) {
	if a.Kind != stored.Response {
		return nil, errors.New("the record holds no HTTP response")
	}
	return &reply{body: a.Body, resp: http.Response{
		Status: fmt.Sprintf("%d %s", a.Status, http.StatusText(a.Status)), StatusCode: a.Status,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: a.Header,
	}}, nil
}
