package sim

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"strings"
	"syscall"
	"time"
)

// Headers that only the simulation reads.
const (
	scopeHeader = "X-Scope" // who asks; the server's Config.Scope
	callHeader  = "X-Call"  // which call of the application the request is of
)

type callKey struct{}

// withCall names the call that is made with ctx; the requests of whoever joins
// it go out under the name of the one that started it.
func withCall(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, callKey{}, name)
}

// wire is the network as one client reaches the servers: a http.RoundTripper.
type wire struct{ p *process }

// reply is what came back.
type reply struct {
	resp *http.Response
	err  error
}

// RoundTrip implements http.RoundTripper.
func (n wire) RoundTrip(req *http.Request) (*http.Response, error) {
	p, w := n.p, n.p.w
	ctx := req.Context()
	m := message{header: req.Header.Clone(), method: req.Method, path: req.URL.Path}
	if req.Body != nil {
		m.body, _ = io.ReadAll(req.Body)
		_ = req.Body.Close()
	}
	name, _ := ctx.Value(callKey{}).(string)
	m.header.Set(callHeader, name)
	m.about = p.name + " " + strings.TrimPrefix(m.path, "/") + " of " + m.header.Get(scopeHeader)
	number := w.nth(m.about)
	m.about += " #" + count(number)
	r := w.dice(m.about, number)
	trace := httptrace.ContextClientTrace(ctx)

	if trace != nil && trace.GetConn != nil {
		trace.GetConn(req.URL.Host)
	}
	to := w.hosts[r.IntN(len(w.hosts))]
	if err := p.pause(ctx, between(r, 100*time.Microsecond, time.Millisecond)); err != nil {
		return nil, err
	}
	if chance := r.IntN(50); to.current() == nil || chance == 0 && !w.calm() {
		w.note(m.about, "finds %s closed", to.name)
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	}
	if trace != nil && trace.GotConn != nil {
		trace.GotConn(httptrace.GotConnInfo{})
	}
	f := w.fate(r, 0, w.shape.netTrouble, w.shape.netUsual, w.shape.netWorst)
	came := make(chan reply, 2)
	hangUp, stop := context.WithCancel(context.Background())
	defer stop()
	if guard := r.IntN(40); guard < 2 && !w.calm() {
		status := []int{http.StatusTooManyRequests, http.StatusUnauthorized}[guard]
		w.note(m.about, "is refused by the guard: %d", status)
		time.AfterFunc(f.there+f.back, func() { came <- reply{resp: m.response(status, http.Header{}, nil)} })
	} else {
		n.send(hangUp, m, to, f, r.IntN(len(w.hosts)), r.IntN(30), came)
	}
	var broken <-chan time.Time
	if f.breaks > 0 {
		timer := time.NewTimer(f.breaks)
		defer timer.Stop()
		broken = timer.C
	}
	select {
	case got := <-came:
		if got.resp != nil {
			got.resp.Request = req
		}
		return got.resp, got.err
	case <-broken:
		return nil, errBroken
	case <-p.ctx.Done():
		return nil, errDead
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// send has the message arrive, once, twice or never.
func (n wire) send(hangUp context.Context, m message, to *host, f fate, other, cut int, came chan<- reply) {
	w := n.p.w
	arrive := func(to *host, copied string) func() {
		return func() {
			got := to.serve(hangUp, m, copied+f.words())
			if f.deaf {
				return
			}
			if cut == 0 && got.resp != nil && !w.calm() {
				w.note(m.about, "gets half an answer")
				b, _ := io.ReadAll(got.resp.Body)
				got.resp.Body = io.NopCloser(io.MultiReader(bytes.NewReader(b[:len(b)/2]), broken{}))
			}
			time.AfterFunc(f.back, func() { came <- got })
		}
	}
	if f.lost {
		w.note(m.about, "to %s%s", to.name, f.words())
		return
	}
	time.AfterFunc(f.there, arrive(to, ""))
	if f.again > 0 {
		time.AfterFunc(f.there+f.again, arrive(w.hosts[other], " copy"))
	}
}

// broken is the rest of a body that never comes.
type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// message is a request on its way.
type message struct {
	about        string
	method, path string
	header       http.Header
	body         []byte
}

func (m message) request(ctx context.Context) *http.Request {
	req := httptest.NewRequest(m.method, m.path, bytes.NewReader(m.body)).WithContext(ctx)
	req.Header = m.header.Clone()
	return req
}

func (m message) response(status int, h http.Header, body []byte) *http.Response {
	return &http.Response{
		StatusCode: status, Status: http.StatusText(status), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: h, Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body)),
	}
}

// serve has the host's process answer a message that has arrived.
func (h *host) serve(hangUp context.Context, m message, how string) (got reply) {
	w := h.w
	up := h.current()
	if up == nil {
		w.note(m.about, "finds %s gone%s", h.name, how)
		return reply{err: errBroken}
	}
	w.note(m.about, "arrives at %s%s", up.name, how)
	rec := httptest.NewRecorder()
	panicked := true
	func() {
		defer func() {
			if panicked {
				_ = recover() // as net/http does
			}
		}()
		up.handler.ServeHTTP(rec, m.request(hangUp))
		panicked = false
	}()
	if up.dead() || panicked {
		w.note(m.about, "is not answered by %s", up.name)
		return reply{err: errBroken}
	}
	if !w.shape.unsteady {
		rec.Header().Del("Retry-After") // whose wait is spread
	}
	w.note(m.about, "is answered %d by %s", rec.Code, up.name)
	return reply{resp: m.response(rec.Code, rec.Header(), rec.Body.Bytes())}
}
