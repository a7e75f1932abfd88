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
	"strings"
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
// context is the caller's. timeout bounds the wait for the header, and then
// each gap in the body. A body over limit bytes, or one that ahead does not
// want, is left to be read by the caller.
func exchange(req *http.Request, base http.RoundTripper, timeout time.Duration, limit int, ahead func(status int) bool) (s sent) {
	// What is left to the caller must not end with the call, so it follows the
	// call's context only until there is a reply to give.
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(req.Context()))
	unfollow := follow(req.Context(), cancel)
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
		unfollow()
	}()
	resp, err := base.RoundTrip(req.WithContext(httptrace.WithClientTrace(ctx, trace)))
	if err != nil {
		return sent{err: err}
	}
	if resp == nil {
		return sent{err: errors.New("idem: the base RoundTripper returned neither a response nor an error")}
	}
	if resp.Body == nil { // as http.Client takes it
		resp.Body = http.NoBody
	}
	timer.Stop()
	body := &gapReader{body: resp.Body, timer: timer, gap: timeout, cancel: cancel}
	s.reply = &reply{resp: *resp, whole: resp}
	s.reply.resp.Body, s.reply.resp.Request = nil, nil
	if resp.StatusCode == http.StatusSwitchingProtocols {
		s.reply.stream = resp.Body // its reader is also a writer
		return s
	}
	if !ahead(resp.StatusCode) {
		s.reply.stream, s.reply.flow = body, body
		return s
	}
	head, err := readUpTo(body, int64(limit)+1, resp.ContentLength)
	switch {
	case err != nil:
		_ = body.Close()
		s.err = fmt.Errorf("idem: the body of the answer (%d) broke off: %w", resp.StatusCode, err)
	case len(head) > limit:
		s.reply.body, s.reply.flow = head[:limit], body
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

	cancel   context.CancelCauseFunc
	unfollow func() bool // set once a caller has it
}

// follow ends what cancel ends together with ctx, until it is undone.
func follow(ctx context.Context, cancel context.CancelCauseFunc) (undo func() bool) {
	return context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })
}

// end frees the exchange.
func (g *gapReader) end() {
	g.timer.Stop()
	if g.unfollow != nil {
		g.unfollow()
	}
	g.cancel(nil)
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
	// stream is a body that is not kept; one caller gets it, within the whole
	// response, whose trailers come with its end. body is what was read of it
	// already, and flow what it is read from.
	stream io.ReadCloser
	whole  *http.Response
	flow   *gapReader
	taken  atomic.Bool
	trail  *trail
}

// response returns an independent response to req, or false if the body was a
// stream that another caller has.
func (r *reply) response(req *http.Request) (*http.Response, bool) {
	if r.stream != nil {
		if !r.taken.CompareAndSwap(false, true) {
			return nil, false
		}
		if r.flow != nil {
			r.flow.unfollow = follow(req.Context(), r.flow.cancel)
		}
		r.whole.Body, r.whole.Request = r.stream, req
		return r.whole, true
	}
	resp := r.resp
	resp.Header = r.resp.Header.Clone()
	resp.Trailer = r.resp.Trailer.Clone()
	resp.TransferEncoding = append([]string(nil), r.resp.TransferEncoding...)
	resp.Request = req
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
	if a.Header == nil {
		a.Header = make(http.Header) // as net/http has it
	}
	return &reply{body: a.Body, resp: http.Response{
		Status: fmt.Sprintf("%d %s", a.Status, http.StatusText(a.Status)), StatusCode: a.Status,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: a.Header,
	}}, nil
}
