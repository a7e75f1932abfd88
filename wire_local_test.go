package idem_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idem-go/idem"
)

// A body that never comes: the caller's end ends the call, and nothing was sent.
func TestWireStalledBody(t *testing.T) {
	for _, method := range []string{"POST", "PUT"} {
		synctest.Test(t, func(t *testing.T) {
			r, w := io.Pipe()
			defer w.Close()
			c := newClient(t, idem.Config{})
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			req, _ := http.NewRequestWithContext(ctx, method, "http://shop.test/", r)
			start := time.Now()
			_, err := c.Transport(replies(201)).RoundTrip(req)
			wantOutcome(t, err, idem.OutcomeNotExecuted, context.DeadlineExceeded)
			if took := time.Since(start); took != time.Second {
				t.Errorf("%s ended after %v, want 1s", method, took)
			}
		})
	}
}

// Credentials under another spelling are credentials (they go out like that).
func TestWireCredentialsSpelling(t *testing.T) {
	for _, change := range []func(*http.Request, string){
		func(r *http.Request, v string) { r.Header["authorization"] = []string{"Bearer " + v} },
		func(r *http.Request, v string) { r.Host = v + ".shop.test" },
	} {
		release := make(chan struct{})
		var sends atomic.Int32
		base := wireFunc(func(req *http.Request) (*http.Response, error) {
			sends.Add(1)
			<-release
			//lint:ignore SA1008 a spelling of the caller's own is what is tested
			return wireAnswer(req, 201, "answer for "+fmt.Sprint(req.Header["authorization"], req.Host)), nil
		})
		tr := newClient(t, idem.Config{}).Transport(base)
		type res struct{ user, body string }
		out := make(chan res)
		for _, user := range []string{"alice", "bob"} {
			go func() {
				req, _ := http.NewRequest("POST", "http://shop.test/", strings.NewReader("{}"))
				req.Header.Set("Idempotency-Key", "k")
				change(req, user)
				resp, err := tr.RoundTrip(req)
				if err != nil {
					out <- res{user, "error " + err.Error()}
					return
				}
				b, _ := io.ReadAll(resp.Body)
				out <- res{user, string(b)}
			}()
			time.Sleep(50 * time.Millisecond)
		}
		close(release)
		for range 2 {
			if r := <-out; !strings.Contains(r.body, r.user) && !strings.HasPrefix(r.body, "error") {
				t.Errorf("%s got: %s", r.user, r.body)
			}
		}
	}
}

// Local faults are Rejected, nothing is sent.
func TestWireLocalFaults(t *testing.T) {
	srv := wireServe(t, wireReply(201, ""))
	for name, change := range map[string]func(*http.Request){
		"trailer":                  func(r *http.Request) { r.Trailer = http.Header{"Bad Name": {"x"}} },
		"forbidden trailer":        func(r *http.Request) { r.Trailer = http.Header{"Content-Length": {"1"}} },
		"ContentLength, nil body":  func(r *http.Request) { r.Body, r.ContentLength = nil, 5 },
		"ContentLength, NoBody":    func(r *http.Request) { r.Body, r.ContentLength = http.NoBody, 5 },
		"query with control bytes": func(r *http.Request) { r.URL.RawQuery = "a=\r\nX: y" },
		"opaque with CRLF":         func(r *http.Request) { r.URL.Opaque = "/a\r\nX: y" },
	} {
		before := len(srv.requests())
		req := wirePost(t, srv.URL)
		change(req)
		res := wireClient(t, idem.Config{}, wireBase(t)).do(t, req)
		if res.outcome() != idem.OutcomeRejected || len(srv.requests()) != before {
			t.Errorf("%s: told %v after %d attempts, %d sent: %v", name, res.outcome(), res.attempts(), len(srv.requests())-before, res.err)
		}
	}
}

// The key in an error is the one that the attempts carry or would carry.
func TestWireKeyInErrors(t *testing.T) {
	for _, random := range []bool{false, true} {
		store := newStore(t)
		c := newClient(t, idem.Config{Store: store, RandomKeys: random})
		_, err := idem.Do(t.Context(), c, intent, answers(rejected).call)
		wantOutcome(t, err, idem.OutcomeRejected)
		var sent idem.Key
		started, release := make(chan struct{}), make(chan struct{})
		done := make(chan struct{})
		go func() {
			defer close(done)
			idem.Do(context.Background(), c, intent, func(_ context.Context, k idem.Key) (receipt, error) {
				sent = k
				close(started)
				<-release
				return receipt{}, nil
			})
		}()
		<-started
		other := intent
		other.Payload = order{"o1", 43}
		_, err = idem.Do(t.Context(), c, other, answers(nil).call)
		if e := wantOutcome(t, err, idem.OutcomeRejected, idem.ErrPayloadMismatch); e.Key != sent {
			t.Errorf("random %v: mismatch error names key %q, running is %q", random, e.Key, sent)
		}
		go c.Shutdown(context.Background())
		for err = nil; !errors.Is(err, idem.ErrShutdown); {
			_, err = idem.Do(t.Context(), c, idem.Intent{}, func(context.Context, idem.Key) (receipt, error) { return receipt{}, nil })
		}
		_, err = idem.Do(t.Context(), c, intent, answers(nil).call)
		if e := failure(t, err); e.Key != sent {
			t.Errorf("random %v: shutdown error (%v) names key %q, running is %q", random, e.Outcome, e.Key, sent)
		}
		close(release)
		<-done
	}
}

// Over-bound refusal, shared by two callers.
func TestWireOverBoundRefusal(t *testing.T) {
	release := make(chan struct{})
	var n atomic.Int32
	tr := newClient(t, idem.Config{MaxResult: 8}).Transport(wireFunc(func(req *http.Request) (*http.Response, error) {
		n.Add(1)
		<-release
		return wireAnswer(req, 400, strings.Repeat("x", 100)), nil
	}))
	out := make(chan error, 2)
	for range 2 {
		go func() {
			req, _ := http.NewRequest("POST", "http://shop.test/", strings.NewReader("{}"))
			req.Header.Set("Idempotency-Key", "k")
			resp, err := tr.RoundTrip(req)
			if err == nil {
				io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			}
			out <- err
		}()
		time.Sleep(30 * time.Millisecond)
	}
	close(release)
	for range 2 {
		if err := <-out; err != nil && errors.Is(err, idem.ErrResultNotRetained) && errors.Is(err, idem.ErrRejected) {
			t.Errorf("one error is both 'rejected' and 'executed, but not retained': %v", err)
		}
	}
}

// B043: the cap itself stops, where the deadline would still allow the wait.
func TestWireRetryAfterCap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t, idem.Config{Policy: idem.Policy{RetryAfterCap: time.Second, Overall: time.Minute}})
		req, _ := http.NewRequest("POST", "http://shop.test/", nil)
		start := time.Now()
		_, err := c.Transport(replies(429, "Retry-After", "5")).RoundTrip(req)
		e := wantOutcome(t, err, idem.OutcomeNotExecuted, idem.ErrRetryAfterTooLong)
		if e.RetryAfter != 5*time.Second || e.Attempts != 1 || time.Since(start) > 0 || e.Key == "" {
			t.Errorf("%d attempts in %v, asked for %v", e.Attempts, time.Since(start), e.RetryAfter)
		}
	})
}

// One caller: a call after a finished one is a call of its own.
func TestWireNoFlightAfterDelivery(t *testing.T) {
	c := newClient(t, idem.Config{})
	for i := range 20000 {
		in := intent
		in.Payload = i
		res, err := idem.Do(t.Context(), c, in, answers(nil).call)
		if err != nil || res.Source != idem.SourceExecuted {
			t.Fatalf("call %d: %v, %v", i, res.Source, err)
		}
	}
}
