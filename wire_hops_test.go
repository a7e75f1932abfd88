package idem_test

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/keystore"
)

// An Unknown of the record's generation sticks, also over a redirect.
func TestWireUnknownRecordOverHop(t *testing.T) {
	srv := wireServe(t, wireEOF, wireReply(307, "", "Location: /moved"), wireReply(404, ""))
	w := wireClient(t, idem.Config{Scope: "s", Store: wireStore(t), Policy: idem.Policy{Attempts: 1}}, wireBase(t))
	send := func() wireResult {
		return w.follow(t, wirePost(t, srv.URL).WithContext(idem.WithIntent(t.Context(), idem.Intent{ID: "1"})))
	}
	if res := send(); res.outcome() != idem.OutcomeUnknown {
		t.Fatalf("first: %v", res.err)
	}
	res := send()
	if res.outcome() != idem.OutcomeUnknown {
		t.Errorf("take-over of an unresolved record, 307, 404: told %v; want unknown", res.outcome())
	}
	send() // which key does the next call use?
	seen := srv.requests()
	if len(seen) > 3 && seen[3].Keys[0] != seen[0].Keys[0] {
		t.Errorf("the next call sends a NEW key %s, the unresolved one was %s: a second effect", seen[3].Keys[0], seen[0].Keys[0])
	}
}

// The same within one call: unknown, then two redirects, each in one attempt.
func TestWireUnknownOverTwoHops(t *testing.T) {
	srv := wireServe(t, wireEOF, wireReply(307, "", "Location: /a"), wireReply(307, "", "Location: /b"), wireReply(422, ""))
	res := wireClient(t, idem.Config{}, wireBase(t)).follow(t, wirePost(t, srv.URL))
	if res.outcome() != idem.OutcomeUnknown {
		t.Errorf("EOF, 307, 307, 422: told %v; want unknown", res.outcome())
	}
}

// The caller stops between two hops, after an Unknown.
func TestWireStopBetweenHops(t *testing.T) {
	srv := wireServe(t, wireEOF, wireReply(307, "", "Location: /a"), wireReply(201, ""))
	w := wireClient(t, idem.Config{}, wireBase(t))
	ctx, cancel := context.WithCancel(t.Context())
	hc := &http.Client{Transport: w.RoundTripper, CheckRedirect: func(*http.Request, []*http.Request) error { cancel(); return nil }}
	_, err := hc.Do(wirePost(t, srv.URL).WithContext(ctx))
	var e *idem.Error
	if !errors.As(err, &e) {
		t.Fatalf("%v", err)
	}
	if e.Outcome != idem.OutcomeUnknown || e.Key == "" {
		t.Errorf("an attempt was unknown, then 307, then the caller stopped: told %v with key %q", e.Outcome, e.Key)
	}
}

// Shutdown between two hops, after an Unknown.
func TestWireShutdownBetweenHops(t *testing.T) {
	for _, named := range []bool{false, true} {
		srv := wireServe(t, wireEOF, wireReply(307, "", "Location: /a"), wireReply(201, ""))
		c := newClient(t, idem.Config{Scope: "s", Policy: wirePolicy})
		hc := &http.Client{Transport: c.Transport(wireBase(t)), CheckRedirect: func(*http.Request, []*http.Request) error { return c.Shutdown(context.Background()) }}
		ctx := t.Context()
		if named {
			ctx = idem.WithIntent(ctx, idem.Intent{ID: "1"})
		}
		_, err := hc.Do(wirePost(t, srv.URL).WithContext(ctx))
		var e *idem.Error
		if !errors.As(err, &e) {
			t.Fatalf("%v", err)
		}
		if e.Outcome != idem.OutcomeUnknown || e.Key == "" {
			t.Errorf("named %v: unknown, 307, shutdown: told %v with key %q: %v", named, e.Outcome, e.Key, e)
		}
	}
}

// The store goes down between two hops, after an Unknown.
func TestWireStoreDownBetweenHops(t *testing.T) {
	srv := wireServe(t, wireEOF, wireReply(307, "", "Location: /a"), wireReply(201, ""))
	down := false
	store := &hookStore{Store: newStore(t), hook: func(_ string, call func() error) error {
		if down {
			return errBoom
		}
		return call()
	}}
	c := newClient(t, idem.Config{Scope: "s", Policy: wirePolicy, Store: store})
	hc := &http.Client{Transport: c.Transport(wireBase(t)), CheckRedirect: func(*http.Request, []*http.Request) error { down = true; return nil }}
	_, err := hc.Do(wirePost(t, srv.URL).WithContext(idem.WithIntent(t.Context(), idem.Intent{ID: "1"})))
	var e *idem.Error
	if !errors.As(err, &e) {
		t.Fatalf("%v", err)
	}
	if e.Outcome != idem.OutcomeUnknown {
		t.Errorf("unknown, 307, store down: told %v: %v", e.Outcome, e)
	}
}

// A replay marker on a redirect switches the cross-origin stop off.
func TestWireReplayedRedirectOtherOrigin(t *testing.T) {
	for _, own := range []bool{false, true} {
		elsewhere := wireServe(t, wireReply(200, "thank you"))
		srv := wireServe(t, wireReply(307, "", "Location: "+elsewhere.URL+"/x", wireReplayed))
		req := wirePost(t, srv.URL)
		if own {
			req.Header.Set("Idempotency-Key", "mine")
		}
		res := wireClient(t, idem.Config{}, wireBase(t)).follow(t, req)
		for _, r := range elsewhere.requests() {
			t.Errorf("own key %v: the other origin got key %q and body %q; told %v", own, r.Keys, r.Body, res.outcome())
		}
	}
}

// A replay marker on a same-origin redirect: the hop has another key, and the
// record is done without any effect.
func TestWireReplayedRedirectSameOrigin(t *testing.T) {
	srv := wireServe(t, wireEOF, wireReply(307, "", "Location: /moved", wireReplayed), wireReply(201, "charged"))
	res := wireClient(t, idem.Config{}, wireBase(t)).follow(t, wirePost(t, srv.URL))
	t.Log(res.outcome(), res.err)
	srv.sameKey(t, 3, wireBody)

	srv = wireServe(t, wireEOF, wireReply(307, "", "Location: /moved", wireReplayed), wireReply(201, "charged"))
	store := newStore(t)
	res = wireClient(t, idem.Config{Scope: "s", Store: store}, wireBase(t)).follow(t, wirePost(t, srv.URL).WithContext(idem.WithIntent(t.Context(), idem.Intent{ID: "1"})))
	if res.outcome() != idem.OutcomeExecuted {
		t.Errorf("%v: %v", res.outcome(), res.err)
	}
	if rec := record(t, store); rec.State == keystore.Done && len(srv.requests()) < 3 {
		t.Errorf("the record is done after %d requests: executed without an effect", len(srv.requests()))
	}
}

// Somebody else asks for the same intent while http.Client is between two hops.
// The hop does not wait for the lease that its own call has left.
func TestWireNewcomerBetweenHops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sends atomic.Int32
		base := wireFunc(func(req *http.Request) (*http.Response, error) {
			if sends.Add(1) == 1 {
				return wireAnswer(req, 307, "", "Location: /moved"), nil
			}
			return wireAnswer(req, 201, "charged"), nil
		})
		const lease = 4 * time.Second
		c := newClient(t, idem.Config{Scope: "s", Store: newStore(t), Lease: lease})
		tr := c.Transport(base)
		post := func(rt func(*http.Request) (*http.Response, error)) error {
			resp, err := rt(wirePost(t, "http://c.example/").WithContext(idem.WithIntent(t.Context(), idem.Intent{ID: "1"})))
			if err == nil {
				resp.Body.Close()
			}
			return err
		}
		newcomer := make(chan error, 1)
		hc := &http.Client{Transport: tr, CheckRedirect: func(*http.Request, []*http.Request) error {
			go func() { newcomer <- post(tr.RoundTrip) }()
			synctest.Wait()
			return nil
		}}
		start := time.Now()
		err := post(hc.Do)
		if took := time.Since(start); took >= lease || err != nil || sends.Load() != 2 {
			t.Errorf("the hop took %v, %d requests: %v", took, sends.Load(), err)
		}
		if err := <-newcomer; err != nil {
			t.Errorf("the newcomer: %v", err)
		}
	})
}
