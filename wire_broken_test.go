package idem_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"syscall"
	"testing"
	"time"

	"github.com/idem-go/idem"
)

// Whatever happens once the request is out, nobody knows what the server did
// with it.
func TestWireBrokenExchange(t *testing.T) {
	for _, row := range []struct {
		name string
		step wireStep
		slow bool // ends by the attempt timeout
		is   func(error) bool
		head bool // the header arrives whole, so that an unkeyed caller gets it
	}{
		{name: "EOF instead of an answer", step: wireEOF, is: func(err error) bool { return errors.Is(err, io.EOF) }},
		{name: "reset instead of an answer", step: wireReset, is: func(err error) bool { return errors.Is(err, syscall.ECONNRESET) }},
		{name: "no answer within the attempt timeout", step: wireStall, slow: true, is: wireTimeout},
		{name: "header breaks off", step: wireRaw("HTTP/1.1 200 OK\r\nContent-Le")},
		{name: "header stalls", step: wireThen(wireRaw("HTTP/1.1 200 OK\r\nContent-Le"), wireStall), slow: true, is: wireTimeout},
		{name: "malformed status line", step: wireRaw("HTTP/x.y 200\r\n\r\n")},
		{name: "malformed header", step: wireRaw("HTTP/1.1 200 OK\r\nno colon here\r\n\r\n")},
		{name: "no HTTP at all", step: wireRaw("SSH-2.0-OpenSSH_9.9\r\n")},
		{name: "B031 body breaks off", head: true, step: wireRaw("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n12345"),
			is: func(err error) bool { return errors.Is(err, io.ErrUnexpectedEOF) }},
		{name: "B031 chunks break off", head: true, step: wireRaw("HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n12345\r\n"),
			is: func(err error) bool { return errors.Is(err, io.ErrUnexpectedEOF) }},
		{name: "B031 malformed chunk", head: true, step: wireRaw("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n12345\r\n")},
		{name: "B031 body stalls", head: true, slow: true, is: wireTimeout,
			step: wireThen(wireRaw("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n12345"), wireStall)},
		{name: "body of an error breaks off", head: true, step: wireRaw("HTTP/1.1 400 Bad Request\r\nContent-Length: 9\r\n\r\n12345")},
	} {
		config := func(t *testing.T, c idem.Contract) idem.Config {
			cfg := idem.Config{Contract: c, Policy: wirePolicy}
			if row.slow {
				t.Parallel()
				cfg.Policy.AttemptTimeout = wireMoment
			}
			return cfg
		}
		t.Run(row.name+"/with key, once", func(t *testing.T) {
			srv := wireServe(t, row.step, wireReply(201, "charged"))
			res := wireClient(t, config(t, idem.Contract{}), wireBase(t)).do(t, wirePost(t, srv.URL))
			// On a busy machine a good answer may be late as well.
			if n := res.attempts(); res.outcome() != idem.OutcomeExecuted || res.body != "charged" || n != 2 && (!row.slow || n < 2) {
				t.Fatalf("%v after %d attempts with the body %q, want executed, 2, charged: %v", res.outcome(), n, res.body, res.err)
			}
			r := idem.ReportOf(res.resp)
			if key := srv.sameKey(t, r.Attempts, wireBody); r.Key != key || r.WireSends != r.Attempts || r.Source != idem.SourceExecuted {
				t.Errorf("report %+v, want the key %q and as many sends as attempts", r, key)
			}
			if first := res.event.Attempts[0]; first.Outcome != idem.OutcomeUnknown || first.Err == nil {
				t.Errorf("first attempt %+v, want unknown with its error", first)
			}
		})
		t.Run(row.name+"/with key, for ever", func(t *testing.T) {
			srv := wireServe(t, row.step)
			res := wireClient(t, config(t, idem.Contract{}), wireBase(t)).do(t, wirePost(t, srv.URL))
			if res.err == nil || res.err.Outcome != idem.OutcomeUnknown || res.err.Attempts != wireTries || res.event.WireSends != wireTries {
				t.Fatalf("%v after %d attempts, want unknown after %d: %v", res.outcome(), res.attempts(), wireTries, res.err)
			}
			if key := srv.sameKey(t, wireTries, wireBody); res.err.Key != key {
				t.Errorf("the error has the key %q, the wire %q", res.err.Key, key)
			}
			if row.is != nil && !row.is(res.err) {
				t.Errorf("the caller can't tell from %v", res.err)
			}
		})
		t.Run(row.name+"/POST without key", func(t *testing.T) {
			srv := wireServe(t, row.step)
			res := wireClient(t, config(t, idem.Keyless), wireBase(t)).do(t, wirePost(t, srv.URL))
			if res.err == nil || res.err.Outcome != idem.OutcomeUnknown || res.err.Attempts != 1 {
				t.Fatalf("%v after %d attempts, want unknown after 1", res.outcome(), res.attempts())
			}
			if seen := srv.requests(); len(seen) != 1 || len(seen[0].Keys) != 0 {
				t.Errorf("%d requests, the keys of the first are %q; want one without", len(seen), seen[0].Keys)
			}
		})
		if row.head {
			continue
		}
		t.Run(row.name+"/PUT without key", func(t *testing.T) {
			srv := wireServe(t, row.step, wireReply(200, "stored"))
			res := wireClient(t, config(t, idem.Contract{}), wireBase(t)).do(t, wireRequestTo(t, http.MethodPut, srv.URL, wireBody))
			seen := srv.requests()
			if res.outcome() != idem.OutcomeExecuted || res.body != "stored" || len(seen) != 2 && !row.slow {
				t.Fatalf("%v with %d requests, want executed with 2: %v", res.outcome(), len(seen), res.err)
			}
			if seen[0].Body != wireBody || seen[1].Body != wireBody || len(seen[1].Keys) != 0 {
				t.Errorf("bodies %q and %q, keys %q; want the body twice and no key", seen[0].Body, seen[1].Body, seen[1].Keys)
			}
		})
	}
}

// An unkeyed caller reads for himself.
func TestWireBrokenStream(t *testing.T) {
	head := wireRaw("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n12345")
	for _, row := range []struct {
		name string
		step wireStep
		is   func(error) bool
	}{
		{"broken", head, func(err error) bool { return errors.Is(err, io.ErrUnexpectedEOF) }},
		{"stalled", wireThen(head, wireStall), func(err error) bool {
			var t interface{ Timeout() bool }
			return errors.As(err, &t) && t.Timeout()
		}},
	} {
		policy := wirePolicy
		if row.name == "stalled" {
			policy.AttemptTimeout = wireMoment
		}
		srv := wireServe(t, row.step)
		resp, err := wireClient(t, idem.Config{Policy: policy}, wireBase(t)).RoundTrip(wireRequestTo(t, http.MethodGet, srv.URL, ""))
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if string(body) != "12345" || !row.is(err) {
			t.Errorf("%s: %q, %v", row.name, body, err)
		}
	}
}

// A caller who stops is told at once, with the key, what is known.
func TestWireCallerStops(t *testing.T) {
	why := errors.New("enough")
	for _, in := range []idem.Intent{{}, {Scope: "s", ID: "order-1"}} {
		ctx, cancel := context.WithCancelCause(idem.WithIntent(t.Context(), in))
		srv := wireServe(t, func(c net.Conn) bool { cancel(why); return wireStall(c) })
		res := wireClient(t, idem.Config{FlightGrace: time.Millisecond}, wireBase(t)).do(t, wirePost(t, srv.URL).WithContext(ctx))
		if res.outcome() != idem.OutcomeUnknown || !res.is(why) || !res.is(context.Canceled) || res.err.Key != srv.sameKey(t, 1, wireBody) {
			t.Errorf("after the send: %v", res.err)
		}
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	base := wireBase(t)
	base.DialContext = func(context.Context, string, string) (net.Conn, error) {
		cancel(why)
		<-t.Context().Done()
		return nil, io.EOF
	}
	if res := wireClient(t, idem.Config{}, base).do(t, wirePost(t, "http://c.example/").WithContext(ctx)); res.outcome() != idem.OutcomeNotExecuted || !res.is(why) || res.attempts() != 1 {
		t.Errorf("before the send: %v", res.err)
	}
}

// A dial error proves nothing if a connection was got before: net/http had sent
// the request, and dialled to send it again.
func TestWireDialErrorAfterSend(t *testing.T) {
	srv := wireServe(t, wireReply(200, ""), wireEOF)
	base := wireBase(t)
	var refuse bool // between the two calls only
	dialer := &net.Dialer{}
	base.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if refuse {
			return nil, wireOpError(syscall.ECONNREFUSED)
		}
		return dialer.DialContext(ctx, network, addr)
	}
	w := wireClient(t, idem.Config{}, base)
	w.do(t, wireRequestTo(t, http.MethodPost, srv.URL, "")) // warms the connection
	refuse = true
	// Without a body net/http sends again by itself.
	res := w.do(t, wireRequestTo(t, http.MethodPost, srv.URL, ""))
	if len(srv.requests()) != 2 {
		t.Fatalf("%d requests arrived, want 2", len(srv.requests()))
	}
	if res.err == nil || res.err.Outcome != idem.OutcomeUnknown || res.err.Attempts != wireTries || !res.is(syscall.ECONNREFUSED) {
		t.Fatalf("%v, want unknown after %d attempts, with the dial error", res.err, wireTries)
	}
	for i, a := range res.event.Attempts {
		want := idem.OutcomeNotExecuted
		if i == 0 {
			want = idem.OutcomeUnknown
		}
		if a.Outcome != want {
			t.Errorf("attempt %d: %v, want %v (%v)", a.Number, a.Outcome, want, a.Err)
		}
	}
}

func TestWireHiddenResend(t *testing.T) {
	t.Run("B001 a body is not sent again on a stale connection behind our back", func(t *testing.T) {
		// The server drops the second request's connection after reading it.
		srv := wireServe(t, wireReply(200, ""), wireEOF, wireReply(201, "charged"))
		w := wireClient(t, idem.Config{}, wireBase(t))
		w.do(t, wirePost(t, srv.URL))
		res := w.do(t, wirePost(t, srv.URL))
		seen := srv.requests()
		if res.outcome() != idem.OutcomeExecuted || len(seen) != 3 || seen[0].Conn != seen[1].Conn {
			t.Fatalf("%v with %d requests, want executed with 3, of which two on one connection: %v", res.outcome(), len(seen), res.err)
		}
		if seen[1].Keys[0] != seen[2].Keys[0] || seen[2].Body != wireBody {
			t.Errorf("keys %q and %q, body %q; want one key and the whole body", seen[1].Keys, seen[2].Keys, seen[2].Body)
		}
		if r := idem.ReportOf(res.resp); r.Attempts != 2 || r.WireSends != 2 {
			t.Errorf("report %+v, want 2 attempts and 2 sends", r)
		}
		if a := res.event.Attempts; a[0].Outcome != idem.OutcomeUnknown || a[1].Wait != 0 {
			t.Errorf("attempts %+v, want unknown first and no wait before the second", a)
		}
	})
	t.Run("B001 at once only the first time", func(t *testing.T) {
		srv := wireServe(t, wireReply(200, ""), wireReply(200, ""), wireEOF)
		base := wireBase(t)
		w := wireClient(t, idem.Config{}, base)
		// Two warm connections, both of which turn out to be stale.
		resp, err := w.RoundTrip(wireRequestTo(t, http.MethodGet, srv.URL, ""))
		if err != nil {
			t.Fatal(err)
		}
		w.do(t, wirePost(t, srv.URL))
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		res := w.do(t, wirePost(t, srv.URL))
		if res.outcome() != idem.OutcomeUnknown || len(res.event.Attempts) != wireTries {
			t.Fatalf("%v, want unknown after %d attempts", res.err, wireTries)
		}
		for i, a := range res.event.Attempts {
			if (i > 1) != (a.Wait > 0) {
				t.Errorf("attempt %d waited %v", a.Number, a.Wait)
			}
		}
	})
	t.Run("B001 without a key it is one attempt", func(t *testing.T) {
		srv := wireServe(t, wireEOF)
		w := wireClient(t, idem.Config{Contract: idem.Keyless}, wireBase(t))
		for _, header := range []http.Header{nil, {"Idempotency-Key": {}}, {"X-Idempotency-Key": {}}, {"X-Idempotency-Key": {"x"}}} {
			before := len(srv.requests())
			srv.next(wireReply(200, ""), wireEOF)
			w.do(t, wirePost(t, srv.URL))
			req := wirePost(t, srv.URL)
			if header != nil {
				req.Header = header
			}
			res := w.do(t, req)
			if res.outcome() != idem.OutcomeUnknown || res.attempts() != 1 || len(srv.requests()) != before+2 {
				t.Errorf("header %v: %v after %d attempts, %d requests; want unknown, 1 and 2", header, res.outcome(), res.attempts(), len(srv.requests())-before)
			}
		}
	})
	t.Run("B001 an empty key slice is no key", func(t *testing.T) {
		srv := wireServe(t, wireReply(200, ""))
		req := wirePost(t, srv.URL)
		req.Header["Idempotency-Key"] = []string{}
		wireClient(t, idem.Config{}, wireBase(t)).do(t, req)
		srv.sameKey(t, 1, wireBody)
	})
	t.Run("what is sent again without a body is counted", func(t *testing.T) {
		srv := wireServe(t, wireReply(200, ""), wireEOF, wireReply(200, "done"))
		w := wireClient(t, idem.Config{}, wireBase(t))
		w.do(t, wireRequestTo(t, http.MethodPost, srv.URL, ""))
		res := w.do(t, wireRequestTo(t, http.MethodPost, srv.URL, ""))
		if r := idem.ReportOf(res.resp); r.Attempts != 1 || r.WireSends != 2 || len(srv.requests()) != 3 {
			t.Errorf("report %+v and %d requests, want 1 attempt, 2 sends, 3 requests", r, len(srv.requests()))
		}
		if seen := srv.requests(); seen[1].Keys[0] != seen[2].Keys[0] {
			t.Errorf("sent again with the keys %q and %q", seen[1].Keys, seen[2].Keys)
		}
	})
	t.Run("sent twice and refused is not proven to be refused", func(t *testing.T) {
		srv := wireServe(t, wireReply(200, ""), wireEOF, wireReply(422, "no"))
		w := wireClient(t, idem.Config{}, wireBase(t))
		w.do(t, wireRequestTo(t, http.MethodPost, srv.URL, ""))
		if res := w.do(t, wireRequestTo(t, http.MethodPost, srv.URL, "")); res.outcome() != idem.OutcomeUnknown {
			t.Errorf("%v, want unknown: the first sending may have been executed", res.outcome())
		}
	})
}
