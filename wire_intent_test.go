package idem_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/idem-go/idem"
)

func TestWireWhichRequests(t *testing.T) {
	const own = "own-key"
	for _, row := range []struct {
		name   string
		method string
		header http.Header
		intent *idem.Intent
		cfg    idem.Config
		keys   []string // on the wire; "*" is any
	}{
		{name: "POST", method: "POST", keys: []string{"*"}},
		{name: "PATCH", method: "PATCH", keys: []string{"*"}},
		{name: "GET", method: "GET"},
		{name: "PUT", method: "PUT"},
		{name: "DELETE", method: "DELETE"},
		{name: "PURGE", method: "PURGE"},
		{name: "B052 PUT with a key", method: "PUT", header: http.Header{"Idempotency-Key": {own}}, keys: []string{own}},
		{name: "PURGE with a key", method: "PURGE", header: http.Header{"Idempotency-Key": {own}}, keys: []string{own}},
		{name: "PUT with an intent", method: "PUT", intent: &idem.Intent{Scope: "s", ID: "1"}, keys: []string{string(idem.DeriveKey("intent", "s", "1"))}},
		{name: "GET with an intent, which asks for no effect", method: "GET", intent: &idem.Intent{Scope: "s", ID: "1"}},
		{name: "DELETE with an intent that is for it", method: "DELETE", keys: []string{string(idem.DeriveKey("intent", "s", "1"))},
			intent: &idem.Intent{Scope: "s", ID: "1", Match: func(r *http.Request) bool { return r.Method == "DELETE" }}},
		{name: "POST with an intent that is not for it", method: "POST", keys: []string{"*"},
			intent: &idem.Intent{Scope: "s", ID: "1", Match: func(r *http.Request) bool { return false }}},
		{name: "B052 own key", method: "POST", header: http.Header{"Idempotency-Key": {own}}, keys: []string{own}},
		{name: "B054 own key, another spelling", method: "POST", header: http.Header{"idempotency-KEY": {own}}, keys: []string{own}},
		{name: "B067 own key as it was written", method: "POST", header: http.Header{"Idempotency-Key": {`"a b"`}}, keys: []string{`"a b"`}},
		{name: "B001 no value", method: "POST", header: http.Header{"Idempotency-Key": {}}, keys: []string{"*"}},
		{name: "PUT, no value", method: "PUT", header: http.Header{"Idempotency-Key": {}}},
		{name: "an intent's key", method: "POST", intent: &idem.Intent{Key: "order-7"}, keys: []string{"order-7"}},
		{name: "an intent's key that needs quotes", method: "POST", intent: &idem.Intent{Key: `order "7", b`}, keys: []string{`"order \"7\", b"`}},
		{name: "an intent's ID", method: "POST", intent: &idem.Intent{Scope: "s", ID: "1"}, keys: []string{string(idem.DeriveKey("intent", "s", "1"))}},
		{name: "an intent without a name", method: "POST", intent: &idem.Intent{}, keys: []string{"*"}},
		{name: "the intent outranks an SDK's header", method: "POST", intent: &idem.Intent{Key: "order-7"},
			header: http.Header{"Idempotency-Key": {own}, "idempotency-key": {"x"}}, keys: []string{"order-7"}},
		{name: "the intent's scope outranks the config's", method: "POST", intent: &idem.Intent{Scope: "s", ID: "1"}, cfg: idem.Config{Scope: "t"},
			keys: []string{string(idem.DeriveKey("intent", "s", "1"))}},
		{name: "the config's scope", method: "POST", intent: &idem.Intent{ID: "1"}, cfg: idem.Config{Scope: "t"}, keys: []string{string(idem.DeriveKey("intent", "t", "1"))}},
		{name: "the request's scope", method: "POST", intent: &idem.Intent{ID: "1"}, header: http.Header{"X-Tenant": {"u"}},
			cfg:  idem.Config{Scope: "t", ScopeOf: func(r *http.Request) (string, error) { return r.Header.Get("X-Tenant"), nil }},
			keys: []string{string(idem.DeriveKey("intent", "u", "1"))}},
		{name: "quoted", method: "POST", intent: &idem.Intent{Key: "order-7"}, cfg: idem.Config{Contract: idem.Contract{Quoted: true}}, keys: []string{`"order-7"`}},
		{name: "keyless", method: "POST", intent: &idem.Intent{Key: "order-7"}, header: http.Header{"idempotency-key": {own}}, cfg: idem.Config{Contract: idem.Keyless}},
	} {
		t.Run(row.name, func(t *testing.T) {
			srv := wireServe(t, wireReply(503, ""), wireReply(200, ""))
			ctx := t.Context()
			if row.intent != nil {
				ctx = idem.WithIntent(ctx, *row.intent)
			}
			req := wireRequestTo(t, row.method, srv.URL, "").WithContext(ctx)
			if row.header != nil {
				req.Header = row.header
			}
			res := wireClient(t, row.cfg, wireBase(t)).do(t, req)
			seen := srv.requests()
			for i, r := range seen {
				if len(r.Keys) != len(row.keys) || len(row.keys) == 1 && r.Keys[0] != row.keys[0] && row.keys[0] != "*" || len(row.keys) == 1 && r.Keys[0] != seen[0].Keys[0] {
					t.Errorf("request %d has the keys %q, want %q: %v", i+1, r.Keys, row.keys, res.err)
				}
			}
			if len(seen) == 0 || row.keys != nil && len(seen) != 2 {
				t.Errorf("%d requests: %v", len(seen), res.err)
			}
		})
	}
	t.Run("the contract's header", func(t *testing.T) {
		srv := wireServe(t, wireReply(200, ""))
		w := wireClient(t, idem.Config{Contract: idem.Contract{Header: "X-Request-Key"}}, wireBase(t))
		req := wirePost(t, srv.URL)
		req.Header["x-request-key"] = []string{"k"}
		w.do(t, req)
		if h := srv.requests()[0].Header; len(h["X-Request-Key"]) != 1 || h.Get("X-Request-Key") != "k" || h["Idempotency-Key"] != nil {
			t.Errorf("header %v", h)
		}
	})
	t.Run("a scope that can't be told", func(t *testing.T) {
		for _, scopeOf := range []func(*http.Request) (string, error){
			func(*http.Request) (string, error) { return "", nil },
			func(*http.Request) (string, error) { return "s", errors.New("no such tenant") },
		} {
			base, n := wireSteps(wireStatusOf(200))
			req := wirePost(t, "http://c.example/").WithContext(idem.WithIntent(t.Context(), idem.Intent{ID: "1"}))
			if res := wireClient(t, idem.Config{Scope: "t", ScopeOf: scopeOf}, base).do(t, req); !res.is(idem.ErrInvalidIntent) || n.Load() != 0 {
				t.Errorf("%v after %d requests", res.err, n.Load())
			}
		}
	})
	t.Run("a key that is too long for the server", func(t *testing.T) {
		for _, in := range []idem.Intent{{Key: "order-12345"}, {ID: "1"}, {}} {
			base, n := wireSteps(wireStatusOf(200))
			req := wirePost(t, "http://c.example/").WithContext(idem.WithIntent(t.Context(), in))
			if res := wireClient(t, idem.Config{Scope: "t", Contract: idem.Contract{MaxKeyLen: 10}}, base).do(t, req); !res.is(idem.ErrInvalidKey) || n.Load() != 0 {
				t.Errorf("%+v: %v after %d requests", in, res.err, n.Load())
			}
		}
	})
}

func TestWireIntentBinds(t *testing.T) {
	const url = "http://c.example/charges"
	in := idem.Intent{Scope: "s", ID: "order-1"}
	do := func(t *testing.T, w wireTripper, ctx context.Context, method, url, body string) wireResult {
		return w.do(t, wireRequestTo(t, method, url, body).WithContext(ctx))
	}
	t.Run("B053 to its first request", func(t *testing.T) {
		base, n := wireSteps(wireStatusOf(200))
		w := wireClient(t, idem.Config{}, base)
		ctx := idem.WithIntent(t.Context(), in)
		do(t, w, ctx, "POST", url, wireBody)
		for _, other := range [][3]string{{"POST", url + "/1/capture", wireBody}, {"POST", url + "?x", wireBody}, {"PATCH", url, wireBody}, {"POST", url, wireBody + " "}} {
			if res := do(t, w, ctx, other[0], other[1], other[2]); !res.is(idem.ErrPayloadMismatch) || res.outcome() != idem.OutcomeRejected || res.event.Name != idem.EventMismatch {
				t.Errorf("%q: %v, event %q", other, res.err, res.event.Name)
			}
		}
		if n.Load() != 1 {
			t.Errorf("%d requests", n.Load())
		}
		if res := do(t, w, ctx, "POST", url, wireBody); res.err != nil || n.Load() != 2 {
			t.Errorf("the same again: %v", res.err)
		}
	})
	t.Run("and is released by a refusal", func(t *testing.T) {
		for status, released := range map[int]bool{422: true, 401: false, 503: false} {
			base, _ := wireSteps(wireStatusOf(status))
			w := wireClient(t, idem.Config{}, base)
			ctx := idem.WithIntent(t.Context(), in)
			do(t, w, ctx, "POST", url, wireBody)
			if res := do(t, w, ctx, "POST", url, "another"); res.is(idem.ErrPayloadMismatch) == released {
				t.Errorf("%d: %v", status, res.err)
			}
		}
	})
	t.Run("side requests are kept out by Match", func(t *testing.T) {
		srv := wireServe(t, wireReply(200, ""))
		in := in
		in.Match = func(r *http.Request) bool { return strings.HasPrefix(r.URL.Path, "/charges") }
		ctx := idem.WithIntent(t.Context(), in)
		w := wireClient(t, idem.Config{}, wireBase(t))
		for _, path := range []string{"/token", "/charges", "/token"} {
			if res := do(t, w, ctx, "POST", srv.URL+path, wireBody); res.err != nil {
				t.Error(res.err)
			}
		}
		seen := srv.requests()
		if want := string(idem.DeriveKey("intent", "s", "order-1")); seen[1].Keys[0] != want || seen[0].Keys[0] == want || seen[2].Keys[0] == seen[0].Keys[0] {
			t.Errorf("keys %q, %q, %q", seen[0].Keys, seen[1].Keys, seen[2].Keys)
		}
	})
	t.Run("a payload beside the request is a part of it", func(t *testing.T) {
		release := make(chan struct{})
		arrived := make(chan struct{}, 1)
		base := wireFunc(func(req *http.Request) (*http.Response, error) {
			arrived <- struct{}{}
			<-release
			return wireAnswer(req, 200, ""), nil
		})
		w := wireClient(t, idem.Config{}, base)
		in := in
		in.Payload = "v1"
		done := make(chan wireResult)
		go func() { done <- do(t, w, idem.WithIntent(t.Context(), in), "POST", url, wireBody) }()
		<-arrived
		in.Payload = "v2"
		if res := do(t, w, idem.WithIntent(t.Context(), in), "POST", url, wireBody); !res.is(idem.ErrPayloadMismatch) {
			t.Errorf("%v", res.err)
		}
		close(release)
		<-done
	})
}

// Who may share in a running call.
func TestWireWhoJoins(t *testing.T) {
	key := http.Header{"Idempotency-Key": {"order-1"}}
	with := func(name, value string) http.Header {
		h := key.Clone()
		h.Set(name, value)
		return h
	}
	for _, row := range []struct {
		name   string
		second http.Header
		body   string
		is     error
	}{
		{name: "the same", second: key, body: wireBody},
		{name: "another trace", second: with("Traceparent", "00-1"), body: wireBody},
		{name: "another member order", second: key, body: `{"currency":"eur","amount":4200}`},
		{name: "B080 other credentials", second: with("Authorization", "Bearer b"), body: wireBody, is: idem.ErrScope},
		{name: "B080 another cookie", second: with("Cookie", "session=b"), body: wireBody, is: idem.ErrScope},
		{name: "B080 a credential of the contract", second: with("X-Account", "b"), body: wireBody, is: idem.ErrScope},
		{name: "another body", second: key, body: `{"amount":4201}`, is: idem.ErrPayloadMismatch},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				release := make(chan struct{})
				base, n := wireSteps(func(req *http.Request) (*http.Response, error) {
					<-release
					return wireAnswer(req, 201, "charged"), nil
				})
				w := wireClient(t, idem.Config{Contract: idem.Contract{Credentials: []string{"X-Account"}}}, base)
				results := make(chan wireResult, 2)
				for i, header := range []http.Header{key, row.second} {
					req := wireRequestTo(t, http.MethodPost, "http://c.example/charges", []string{wireBody, row.body}[i])
					req.Header = header.Clone()
					req.Header.Set("Content-Type", "application/json")
					go func() { results <- w.do(t, req) }()
					synctest.Wait()
				}
				close(release)
				first, second := <-results, <-results
				if row.is != nil {
					if !first.is(row.is) || first.outcome() != idem.OutcomeRejected || second.body != "charged" {
						t.Errorf("%v and %v", first.err, second.err)
					}
				} else if first.body != "charged" || second.body != "charged" {
					t.Errorf("%v and %v", first.err, second.err)
				}
				if n.Load() != 1 {
					t.Errorf("%d requests", n.Load())
				}
			})
		})
	}
	t.Run("B080 two users without an intent are two", func(t *testing.T) {
		srv := wireServe(t, wireReply(201, ""))
		w := wireClient(t, idem.Config{}, wireBase(t))
		for _, user := range []string{"a", "b"} {
			req := wirePost(t, srv.URL)
			req.Header.Set("Authorization", "Bearer "+user)
			w.do(t, req)
		}
		if seen := srv.requests(); len(seen) != 2 || seen[0].Keys[0] == seen[1].Keys[0] {
			t.Errorf("%d requests", len(seen))
		}
	})
}
