package idem_test

import (
	"context"
	"io"
	"maps"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idem-go/idem"
)

// B013: the caller's request is the caller's.
func TestWireRequestUntouched(t *testing.T) {
	const calls = 50
	var late sync.WaitGroup
	base := wireFunc(func(req *http.Request) (*http.Response, error) {
		if req.Header.Get("Idempotency-Key") == "" {
			t.Error("no key")
		}
		late.Go(func() { // a RoundTripper that is not done with the request yet
			for range req.Header {
				_ = req.URL.String()
			}
		})
		return wireAnswer(req, 503, ""), nil
	})
	req := wirePost(t, "http://charges.example/charges?x=1")
	req.Header.Set("Authorization", "Bearer x")
	req.Trailer = http.Header{"X-Sum": {"1"}}
	//lint:ignore SA1019 that it is deprecated does not keep callers from it
	req.Cancel = make(chan struct{})
	before, trailer, u := req.Header.Clone(), req.Trailer.Clone(), *req.URL
	w := wireClient(t, idem.Config{Policy: idem.Policy{Attempts: 2, BaseDelay: 1, RetryBudget: 1000}}, base)
	for range calls {
		req.Body = io.NopCloser(strings.NewReader(wireBody))
		if res := w.do(t, req); res.lastStatus() != 503 {
			t.Fatal(res.err)
		}
		req.Header.Set("X-Between", "calls")
		req.Header.Del("X-Between")
	}
	late.Wait()
	same := func(a, b []string) bool { return strings.Join(a, "\n") == strings.Join(b, "\n") }
	if !maps.EqualFunc(before, req.Header, same) || !maps.EqualFunc(trailer, req.Trailer, same) || *req.URL != u || req.ContentLength != int64(len(wireBody)) {
		t.Errorf("the request has become %v %v", req.URL, req.Header)
	}
	t.Run("a caller who has left may change it", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var got []string
			ended := make(chan struct{})
			base, _ := wireSteps(wireHang, func(req *http.Request) (*http.Response, error) {
				got = append(got, req.Header.Get("X-Own"), req.URL.Path)
				defer close(ended)
				return wireAnswer(req, 200, ""), nil
			})
			w := wireClient(t, idem.Config{FlightGrace: time.Minute}, base)
			ctx, cancel := context.WithCancel(idem.WithIntent(t.Context(), idem.Intent{Scope: "s", ID: "1"}))
			time.AfterFunc(time.Second, cancel)
			req := wirePost(t, "http://charges.example/charges").WithContext(ctx)
			req.Header.Set("X-Own", "1")
			w.do(t, req)
			req.Header.Set("X-Own", "2")
			req.URL.Path = "/else"
			<-ended
			if len(got) != 2 || got[0] != "1" || got[1] != "/charges" {
				t.Errorf("the next attempt had %q", got)
			}
		})
	})
	t.Run("no header map", func(t *testing.T) {
		for _, method := range []string{http.MethodPost, http.MethodGet} {
			srv := wireServe(t, wireReply(200, ""))
			req := &http.Request{Method: method, URL: wirePost(t, srv.URL).URL}
			if res := wireClient(t, idem.Config{}, wireBase(t)).do(t, req); res.outcome() != idem.OutcomeExecuted {
				t.Errorf("%s: %v", method, res.err)
			}
			if req.Header != nil {
				t.Errorf("the request got the header %v", req.Header)
			}
		}
	})
}

// What a base does to an attempt's request does not reach the next attempt, nor
// the caller.
func TestWireAttemptsIndependent(t *testing.T) {
	for _, in := range []idem.Intent{{}, {Scope: "s", ID: "order-1"}} {
		var urls, own []string
		base, n := wireSteps(func(req *http.Request) (*http.Response, error) {
			urls, own = append(urls, req.URL.String()), append(own, req.Header.Get("X-Own")+req.Trailer.Get("X-Sum"))
			req.URL.Host, req.URL.Path = "other.example", "/other"
			req.Header.Add("X-Own", "base")
			req.Header.Del("Idempotency-Key")
			req.Trailer.Set("X-Sum", "base")
			return wireAnswer(req, 503, ""), nil
		})
		req := wirePost(t, "http://charges.example/charges")
		req.Header.Set("X-Own", "caller")
		req.Trailer = http.Header{"X-Sum": {"1"}}
		w := wireClient(t, idem.Config{Policy: idem.Policy{Attempts: 3, BaseDelay: 1}}, base)
		w.do(t, req.WithContext(idem.WithIntent(t.Context(), in)))
		for i := range urls {
			if urls[i] != "http://charges.example/charges" || own[i] != "caller1" {
				t.Errorf("intent %q: attempt %d went to %s with %q", in.ID, i+1, urls[i], own[i])
			}
		}
		if n.Load() != 3 || req.URL.Host != "charges.example" || req.Header.Get("X-Own") != "caller" || req.Trailer.Get("X-Sum") != "1" {
			t.Errorf("intent %q: after %d attempts the caller's request is %v %v", in.ID, n.Load(), req.URL, req.Header)
		}
	}
}

// A base that panics, or ends its goroutine, leaves the intent unknown, whatever
// the attempt before has proven.
func TestWireBaseDoesNotReturn(t *testing.T) {
	for name, ends := range map[string]func(){"panic": func() { panic("base") }, "Goexit": runtime.Goexit} {
		t.Run(name, func(t *testing.T) {
			base, n := wireSteps(func(req *http.Request) (*http.Response, error) { return wireAnswer(req, 429, ""), nil }, func(*http.Request) (*http.Response, error) { ends(); return nil, nil })
			store := wireStore(t)
			w := wireClient(t, idem.Config{Store: store, Policy: idem.Policy{BaseDelay: 1}}, base)
			res := w.do(t, wirePost(t, "http://charges.example/").WithContext(
				idem.WithIntent(t.Context(), idem.Intent{Scope: "s", ID: "order-1"})))
			if res.outcome() != idem.OutcomeUnknown || n.Load() != 2 {
				t.Errorf("%v after %d requests: %v", res.outcome(), n.Load(), res.err)
			}
			if rec := record(t, store); !rec.Unresolved() {
				t.Errorf("the record is %v, lease %v", rec.State, rec.LeaseLeft)
			}
		})
	}
}
