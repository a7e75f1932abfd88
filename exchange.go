package idem

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/idem-go/idem/internal/keyctx"
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

// exchange is one HTTP exchange: a request as it goes out, and what is seen of
// it. It is the context of its request too, all in one piece because every call
// needs one.
type exchange struct {
	context.Context
	key  Key
	req  http.Request
	url  url.URL
	body bytes.Reader

	waits wait
	late  timeoutError
	trace httptrace.ClientTrace
	// How often net/http looked for a connection and how often it got one. A
	// request is proven never to have been sent when it looked and never got
	// one; nothing else proves it.
	getConn, gotConn atomic.Int32

	in    gapReader
	reply reply
}

// sent is what was seen of an exchange that is over. There is a reply or an error.
type sent struct {
	reply            *reply
	err              error
	getConn, gotConn int
}

// newExchange prepares to send what is like the template, within ctx. The
// request has no body, and headers of its own: what the base does to them does
// not reach the next attempt.
func newExchange(ctx context.Context, template *http.Request, key Key) *exchange {
	x := &exchange{Context: ctx, key: key, url: *template.URL}
	x.req = *template.WithContext(x)
	x.req.URL, x.req.Header = &x.url, template.Header.Clone()
	if x.req.Header == nil {
		x.req.Header = make(http.Header)
	}
	x.req.Trailer = template.Trailer.Clone()
	x.req.GetBody, x.req.Response, x.req.TransferEncoding = nil, nil, nil
	//lint:ignore SA1019 it is cleared, not used: the context has superseded it
	x.req.Cancel = nil
	x.setBody(nil)
	return x
}

// Value adds to ctx what attempts are known by.
func (x *exchange) Value(k any) any {
	switch k {
	case carriedKey{}:
		return true
	case keyctx.Key{}:
		return string(x.key)
	}
	return x.Context.Value(k)
}

// setBody gives the request the frozen body.
func (x *exchange) setBody(body []byte) {
	x.body.Reset(body)
	setBody(&x.req, &x.body)
}

// send sends the request once through base and reads the reply; the end of the
// context is the caller's. timeout bounds the wait for the header, and then
// each gap in the body. A body over limit bytes, or one that ahead does not
// want, is left to be read by the caller; a nil ahead wants all.
func (x *exchange) send(base http.RoundTripper, timeout time.Duration, limit int, ahead func(status int) bool) (s sent) {
	ctx, cancel := context.WithCancelCause(x.Context)
	x.late.after = timeout
	x.waits = wait{limit: timeout, late: &x.late, cancel: cancel}
	x.waits.begin()
	x.trace.GetConn = func(string) { x.getConn.Add(1) }
	x.trace.GotConn = func(httptrace.GotConnInfo) { x.gotConn.Add(1) }
	x.Context = httptrace.WithClientTrace(ctx, &x.trace)
	defer func() {
		s.getConn, s.gotConn = int(x.getConn.Load()), int(x.gotConn.Load())
		if s.err != nil {
			x.waits.stop()
			if context.Cause(ctx) == error(&x.late) {
				s.err = fmt.Errorf("%w: %w", &x.late, s.err)
			}
			cancel(nil)
		}
	}()
	resp, err := base.RoundTrip(&x.req)
	if err != nil {
		return sent{err: err}
	}
	if resp == nil {
		return sent{err: errors.New("idem: the base RoundTripper returned neither a response nor an error")}
	}
	if resp.Body == nil { // as http.Client takes it
		resp.Body = http.NoBody
	}
	x.waits.end()
	x.in = gapReader{body: resp.Body, waits: &x.waits}
	x.reply = reply{resp: *resp, whole: resp}
	x.reply.resp.Body, x.reply.resp.Request = nil, nil
	s.reply = &x.reply
	if resp.StatusCode == http.StatusSwitchingProtocols {
		s.reply.stream = resp.Body // its reader is also a writer
		return s
	}
	if ahead != nil && !ahead(resp.StatusCode) {
		s.reply.stream, s.reply.flow = &x.in, &x.in
		return s
	}
	head, err := readUpTo(&x.in, int64(limit)+1, resp.ContentLength)
	switch {
	case err != nil:
		_ = x.in.Close()
		s.err = fmt.Errorf("idem: the body of the answer (%d) broke off: %w", resp.StatusCode, err)
	case len(head) > limit:
		s.reply.body, s.reply.flow = head[:limit], &x.in
		s.reply.stream = struct {
			io.Reader
			io.Closer
		}{io.MultiReader(bytes.NewReader(head), &x.in), &x.in}
	default:
		_ = x.in.Close()
		s.reply.body = head
		// Trailers arrive with the end of the body.
		s.reply.resp.Trailer = resp.Trailer
	}
	return s
}

// gapReader reads a body, each read within the time of a wait.
type gapReader struct {
	body  io.ReadCloser
	waits *wait
	// unfollow undoes what ends it together with the caller who has it.
	unfollow func() bool
	// ends are what the contexts around the exchange are freed by.
	ends []context.CancelCauseFunc
}

// end frees the exchange.
func (g *gapReader) end() {
	g.waits.stop()
	if g.unfollow != nil {
		g.unfollow()
	}
	g.waits.cancel(nil)
	for _, free := range g.ends {
		free(nil)
	}
}

func (g *gapReader) Read(p []byte) (int, error) {
	g.waits.begin()
	n, err := g.body.Read(p)
	g.waits.end()
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

// after frees a context that the call was made in: now, or when the stream that
// is left to the caller has come to its end.
func (e ending) after(free context.CancelCauseFunc) {
	if r, ok := e.value.(*reply); ok && r.stream != nil {
		if r.flow != nil { // else it has been switched to another protocol, and has no end
			r.flow.ends = append(r.flow.ends, free)
		}
		return
	}
	free(nil)
}

// reply is a response as it was read. It does not change, and every caller who
// shares in it gets a response of its own.
type reply struct {
	resp http.Response // without body and request
	body []byte
	// stream is a body that is not kept; one caller gets it, within the whole
	// response, whose trailers come with its end. body is what was read of it
	// already, and flow what it is read from.
	stream io.ReadCloser
	whole  *http.Response
	flow   *gapReader
	taken  atomic.Bool
	// from is the URL that it comes from, nil if no redirect may be followed.
	from *url.URL
}

// given is what a caller gets of a reply: a response of its own, and its
// request, whose context leads back to how it was obtained.
type given struct {
	trail
	req  http.Request
	resp http.Response
	body bytes.Reader
}

// response returns a response to req, or false if the body was a stream that
// another caller has. Unless the caller is alone, it is a copy.
func (r *reply) response(req *http.Request, from trail, alone bool) (*http.Response, bool) {
	g := &given{trail: from}
	g.trail.Context = req.Context()
	g.req = *req.WithContext(&g.trail)
	if r.stream != nil {
		if !r.taken.CompareAndSwap(false, true) {
			return nil, false
		}
		if r.flow != nil {
			r.flow.unfollow = context.AfterFunc(req.Context(), func() { r.flow.waits.cancel(context.Cause(req.Context())) })
		}
		r.whole.Body, r.whole.Request = r.stream, &g.req
		return r.whole, true
	}
	g.resp = r.resp
	resp := &g.resp
	if !alone {
		resp.Header = r.resp.Header.Clone()
		resp.Trailer = r.resp.Trailer.Clone()
		resp.TransferEncoding = append([]string(nil), r.resp.TransferEncoding...)
	}
	g.body.Reset(r.body)
	resp.Request, resp.Body = &g.req, io.NopCloser(&g.body)
	if req.Method != http.MethodHead {
		resp.ContentLength = int64(len(r.body))
	}
	return resp, true
}

// discard closes a stream that nobody takes.
func (r *reply) discard() {
	if r.stream != nil && r.taken.CompareAndSwap(false, true) {
		_ = r.stream.Close()
	}
}

// discard frees the reply of an attempt, if there is one that nobody takes.
func (v verdict) discard() {
	if r, ok := v.value.(*reply); ok {
		r.discard()
	}
}

// text is the body as its server wrote it. A caller who has asked for gzip by
// itself, as some SDKs do, gets it so; the answer's code is in there all the
// same.
func (r *reply) text() []byte {
	body := r.body
	if strings.EqualFold(r.resp.Header.Get("Content-Encoding"), "gzip") {
		z, err := gzip.NewReader(bytes.NewReader(body))
		if err != nil {
			return nil
		}
		if body, err = io.ReadAll(io.LimitReader(z, maxText)); err != nil {
			return nil
		}
	}
	return bytes.TrimPrefix(body, []byte("\ufeff")) // RFC 8259 8.1 lets parsers ignore it
}

// maxText is how much of an answer is unpacked to find its code.
const maxText = 256 << 10

// failure is the reply as an error, for a caller who gets no response.
func (r *reply) failure() *ResponseError {
	return &ResponseError{StatusCode: r.resp.StatusCode, Header: r.resp.Header, Body: r.body}
}

// replies are the stored form of requests' results.
type replies struct{}

func (replies) encode(value any) stored.Answer {
	r := value.(*reply)
	if r.stream != nil {
		return tombstone("the response is over the bound")
	}
	return stored.Answer{Kind: stored.Response, Status: r.resp.StatusCode, Header: r.resp.Header, Body: r.body}
}

func (replies) decode(a stored.Answer) (any, error) {
	if a.Kind != stored.Response {
		return nil, errors.New("the record holds no HTTP response")
	}
	if a.Header == nil {
		a.Header = make(http.Header) // as net/http has it
	}
	return &reply{body: a.Body, resp: http.Response{
		Status: fmt.Sprintf("%d %s", a.Status, http.StatusText(a.Status)), StatusCode: a.Status,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: a.Header,
	}}, nil
}
