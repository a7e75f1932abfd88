package idem_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/keystore/memstore"
)

func wireStore(t *testing.T) *memstore.Store {
	t.Helper()
	store, err := memstore.New(memstore.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return store
}

// wireHTTP sends through an http.Client, which follows redirects.
func (w wireTripper) follow(t *testing.T, req *http.Request) wireResult {
	t.Helper()
	w.RoundTripper = wireFunc((&http.Client{Transport: w.RoundTripper}).Do)
	return w.do(t, req)
}

func TestWireRedirectSameOrigin(t *testing.T) {
	for _, status := range []int{307, 308} {
		for _, stored := range []bool{false, true} {
			for _, named := range []bool{false, true} {
				srv := wireServe(t, wireReply(503, ""), wireReply(status, "", "Location: /moved"), wireReply(503, ""),
					wireReply(status, "", "Location: again?x=1"), wireReply(201, "charged"))
				cfg := idem.Config{Scope: "s"}
				if stored {
					cfg.Store = wireStore(t)
				}
				ctx := t.Context()
				if named {
					ctx = idem.WithIntent(ctx, idem.Intent{ID: "order-1"})
				}
				w := wireClient(t, cfg, wireBase(t))
				res := w.follow(t, wirePost(t, srv.URL+"/charges").WithContext(ctx))
				if res.body != "charged" || res.outcome() != idem.OutcomeExecuted {
					t.Fatalf("B014 %d, store %v, named %v: %v: %v", status, stored, named, res.outcome(), res.err)
				}
				key := srv.sameKey(t, 5, wireBody)
				if r := idem.ReportOf(res.resp); r.Key != key {
					t.Errorf("the report has the key %q, the wire %q", r.Key, key)
				}
				for i, path := range []string{"/charges", "/charges", "/moved", "/moved", "/again?x=1"} {
					if r := srv.requests()[i]; r.RequestURI != path || r.Method != http.MethodPost {
						t.Errorf("request %d went to %s %s, want %s", i+1, r.Method, r.RequestURI, path)
					}
				}
				if stored && named {
					// The record has gone with the redirect, and answers for it.
					res = w.follow(t, wirePost(t, srv.URL+"/charges").WithContext(idem.WithIntent(t.Context(), idem.Intent{ID: "order-1"})))
					if res.body != "charged" || idem.ReportOf(res.resp).Source != idem.SourceReplayed || len(srv.requests()) != 5 {
						t.Errorf("%v by %v after %d requests: %v", res.outcome(), idem.ReportOf(res.resp).Source, len(srv.requests()), res.err)
					}
				}
			}
		}
	}
	t.Run("the caller's own key", func(t *testing.T) {
		srv := wireServe(t, wireReply(307, "", "Location: /moved"), wireReply(201, ""))
		req := wirePost(t, srv.URL)
		req.Header["idempotency-key"] = []string{`"order 1"`}
		wireClient(t, idem.Config{}, wireBase(t)).follow(t, req)
		if key := srv.sameKey(t, 2, wireBody); key != `"order 1"` {
			t.Errorf("key %q", key)
		}
	})
	t.Run("an unknown before the redirect sticks", func(t *testing.T) {
		srv := wireServe(t, wireEOF, wireReply(307, "", "Location: /moved"), wireReply(422, ""))
		res := wireClient(t, idem.Config{}, wireBase(t)).follow(t, wirePost(t, srv.URL))
		if res.outcome() != idem.OutcomeUnknown || res.lastStatus() != 422 {
			t.Errorf("%v: %v", res.outcome(), res.err)
		}
		srv.sameKey(t, 3, wireBody)
	})
	t.Run("a refusal behind the redirect", func(t *testing.T) {
		srv := wireServe(t, wireReply(307, "", "Location: /moved"), wireReply(422, "no"))
		if res := wireClient(t, idem.Config{}, wireBase(t)).follow(t, wirePost(t, srv.URL)); res.outcome() != idem.OutcomeRejected || res.body != "no" {
			t.Errorf("%v: %v", res.outcome(), res.err)
		}
	})
	t.Run("an intent stays bound to its first request", func(t *testing.T) {
		srv := wireServe(t, wireReply(307, "", "Location: /moved"), wireReply(201, ""))
		ctx := idem.WithIntent(t.Context(), idem.Intent{Scope: "s", ID: "order-1"})
		w := wireClient(t, idem.Config{}, wireBase(t))
		w.follow(t, wirePost(t, srv.URL+"/a").WithContext(ctx))
		if res := w.follow(t, wirePost(t, srv.URL+"/moved").WithContext(ctx)); !res.is(idem.ErrPayloadMismatch) || len(srv.requests()) != 2 {
			t.Errorf("%v after %d requests", res.err, len(srv.requests()))
		}
	})
	t.Run("not followed", func(t *testing.T) {
		srv := wireServe(t, wireReply(307, "there", "Location: /moved"))
		res := wireClient(t, idem.Config{}, wireBase(t)).do(t, wirePost(t, srv.URL))
		if res.resp == nil || res.resp.StatusCode != 307 || res.body != "there" || res.outcome() != idem.OutcomeUnknown || res.attempts() != 1 {
			t.Errorf("%v after %d attempts: %v", res.outcome(), res.attempts(), res.err)
		}
	})
	t.Run("without a Location", func(t *testing.T) {
		srv := wireServe(t, wireReply(307, ""))
		if res := wireClient(t, idem.Config{}, wireBase(t)).do(t, wirePost(t, srv.URL)); res.outcome() != idem.OutcomeUnknown || res.lastStatus() != 307 || res.err == nil {
			t.Errorf("%v: %v", res.outcome(), res.err)
		}
	})
	t.Run("keyless", func(t *testing.T) {
		srv := wireServe(t, wireReply(308, "", "Location: /moved"), wireReply(201, "charged"))
		res := wireClient(t, idem.Config{Contract: idem.Keyless}, wireBase(t)).follow(t, wirePost(t, srv.URL))
		if seen := srv.requests(); res.body != "charged" || len(seen) != 2 || seen[1].Body != wireBody || len(seen[1].Keys) != 0 {
			t.Errorf("%q after %d requests: %v", res.body, len(seen), res.err)
		}
	})
}

// wireAstray sends every redirect elsewhere.
func wireAstray(elsewhere *wireServer) func(*http.Request, []*http.Request) error {
	return func(req *http.Request, _ []*http.Request) error {
		req.URL.Host = strings.TrimPrefix(elsewhere.URL, "http://")
		return nil
	}
}

// B015: neither key nor body go to another origin.
func TestWireRedirectOtherOrigin(t *testing.T) {
	elsewhere := wireServe(t, wireReply(200, "thank you"))
	for _, status := range []int{307, 308} {
		for _, contract := range []idem.Contract{idem.IETF, idem.Keyless} {
			for _, named := range []bool{false, true} {
				srv := wireServe(t, wireReply(status, "", "Location: "+elsewhere.URL+"/charges", "X-Should-Retry: true"))
				ctx := t.Context()
				if named {
					ctx = idem.WithIntent(ctx, idem.Intent{ID: "order-1"})
				}
				res := wireClient(t, idem.Config{Scope: "s", Store: wireStore(t), Contract: contract}, wireBase(t)).follow(t, wirePost(t, srv.URL).WithContext(ctx))
				if !res.is(idem.ErrCrossOrigin) || res.outcome() != idem.OutcomeUnknown || res.lastStatus() != status || res.attempts() != 1 {
					t.Errorf("%d, %s: %v after %d attempts: %v", status, contract.Name, res.outcome(), res.attempts(), res.err)
				}
				if !contract.Unkeyed && (res.err == nil || res.err.Key != srv.sameKey(t, 1, wireBody)) {
					t.Errorf("%d: %v has not got the key", status, res.err)
				}
			}
		}
	}
	t.Run("within Do", func(t *testing.T) {
		srv := wireServe(t, wireReply(307, "long", "Location: "+elsewhere.URL))
		d := wireDoClient(t, idem.Config{MaxResult: 3}, wireBase(t))
		_, err := idem.Do(t.Context(), d.Client, idem.Intent{ID: "1"}, wireCharge(d.hc, srv.URL))
		if !errors.Is(err, idem.ErrCrossOrigin) || !errors.Is(err, idem.ErrOutcomeUnknown) || len(srv.requests()) != 1 {
			t.Errorf("%v after %d requests", err, len(srv.requests()))
		}
	})
	t.Run("within Do, led astray", func(t *testing.T) {
		srv := wireServe(t, wireReply(307, "", "Location: /moved"))
		d := wireDoClient(t, idem.Config{}, wireBase(t))
		d.hc.CheckRedirect = wireAstray(elsewhere)
		if _, err := idem.Do(t.Context(), d.Client, idem.Intent{ID: "1"}, wireCharge(d.hc, srv.URL)); !errors.Is(err, idem.ErrCrossOrigin) || !errors.Is(err, idem.ErrOutcomeUnknown) {
			t.Errorf("%v", err)
		}
	})
	t.Run("another scheme, host or port", func(t *testing.T) {
		for to, same := range map[string]bool{
			"http://C.example:80/x": true, "/x": true, "//c.example/x": true, "?q": true,
			"https://c.example/x": false, "http://c.example:81/x": false, "http://d.example/x": false, "http://c.example.d.example/": false,
		} {
			w := wireClient(t, idem.Config{}, wireFunc(func(req *http.Request) (*http.Response, error) {
				return wireAnswer(req, 307, "", "Location: "+to), nil
			}))
			if res := w.do(t, wirePost(t, "http://c.example/charges")); same != (res.err == nil) || !same && !res.is(idem.ErrCrossOrigin) {
				t.Errorf("to %s: %v", to, res.err)
			}
		}
	})
	t.Run("a hop that was led astray", func(t *testing.T) {
		srv := wireServe(t, wireReply(307, "", "Location: /moved"))
		hc := &http.Client{Transport: wireClient(t, idem.Config{}, wireBase(t)), CheckRedirect: wireAstray(elsewhere)}
		resp, err := hc.Do(wirePost(t, srv.URL))
		if err == nil {
			resp.Body.Close()
		}
		var e *idem.Error
		if !errors.As(err, &e) || !errors.Is(err, idem.ErrCrossOrigin) || e.Outcome != idem.OutcomeUnknown || e.Key != srv.sameKey(t, 1, wireBody) {
			t.Errorf("%v", err)
		}
	})
	if n := len(elsewhere.requests()); n != 0 {
		t.Errorf("%d requests arrived elsewhere", n)
	}
}

// B014: a redirect that becomes a GET carries no key, wherever it goes.
func TestWireRedirectToGet(t *testing.T) {
	elsewhere := wireServe(t, wireReply(200, "receipt"))
	for _, status := range []int{301, 302, 303} {
		for _, own := range []string{"", "Idempotency-Key", "idempotency-key"} {
			for _, away := range []bool{false, true} {
				to, at := "/receipt", 1
				srv := wireServe(t, wireReply(status, "", "Location: /receipt"), wireReply(200, "receipt"))
				if away {
					to, at = elsewhere.URL, 0
					srv.next(wireReply(status, "", "Location: "+to))
				}
				req := wirePost(t, srv.URL)
				if own != "" {
					req.Header[own] = []string{"k"}
				}
				res := wireClient(t, idem.Config{}, wireBase(t)).follow(t, req)
				seen := srv.requests()
				if away {
					seen = elsewhere.requests()
					at = len(seen) - 1
				}
				if res.body != "receipt" || len(seen) <= at {
					t.Fatalf("%d: %q after %d requests: %v", status, res.body, len(seen), res.err)
				}
				if hop := seen[at]; hop.Method != http.MethodGet || len(hop.Keys) != 0 || hop.Body != "" {
					t.Errorf("%d: the hop is %s with the keys %q and the body %q", status, hop.Method, hop.Keys, hop.Body)
				}
				if first := idem.ReportOf(res.resp.Request.Response); first.Key == "" || first.Key == idem.ReportOf(res.resp).Key {
					t.Errorf("%d: reports %+v, then %+v", status, first, idem.ReportOf(res.resp))
				}
			}
		}
	}
	t.Run("unkeyed requests are redirected as ever", func(t *testing.T) {
		for _, status := range []int{301, 302, 303, 307, 308} {
			srv := wireServe(t, wireReply(503, ""), wireReply(status, "", "Location: /moved"), wireReply(503, ""), wireReply(200, "there"))
			res := wireClient(t, idem.Config{}, wireBase(t)).follow(t, wireRequestTo(t, http.MethodGet, srv.URL, ""))
			if res.body != "there" || len(srv.requests()) != 4 {
				t.Errorf("%d: %q after %d requests: %v", status, res.body, len(srv.requests()), res.err)
			}
		}
		srv := wireServe(t, wireReply(307, "", "Location: /moved"), wireReply(200, "there"))
		res := wireClient(t, idem.Config{}, wireBase(t)).follow(t, wireRequestTo(t, http.MethodPut, srv.URL, wireBody))
		if seen := srv.requests(); res.body != "there" || len(seen) != 2 || seen[1].Body != wireBody || len(seen[1].Keys) != 0 {
			t.Errorf("PUT: %q after %d requests: %v", res.body, len(seen), res.err)
		}
	})
	t.Run("a 303 settles the record", func(t *testing.T) {
		srv := wireServe(t, wireReply(303, "", "Location: /receipt"), wireReply(200, "receipt"))
		w := wireClient(t, idem.Config{Scope: "s", Store: wireStore(t)}, wireBase(t))
		for range 2 {
			ctx := idem.WithIntent(t.Context(), idem.Intent{ID: "order-1"})
			if res := w.follow(t, wirePost(t, srv.URL).WithContext(ctx)); res.body != "receipt" {
				t.Errorf("%v", res.err)
			}
		}
		posts := 0
		for _, r := range srv.requests() {
			if r.Method == http.MethodPost {
				posts++
			}
		}
		if posts != 1 {
			t.Errorf("%d POSTs, want 1", posts)
		}
	})
}
