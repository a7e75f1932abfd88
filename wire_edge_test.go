package idem_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"net/http"
	"testing"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/provider"
)

var asField = idem.Contract{Name: "t", Field: "key"}

func named(t *testing.T) context.Context {
	return idem.WithIntent(t.Context(), idem.Intent{Scope: "s", ID: "o"})
}
func ans(status int, body string, lines ...string) wireFunc {
	return func(r *http.Request) (*http.Response, error) { return wireAnswer(r, status, body, lines...), nil }
}
func gz(s string) string {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	z.Write([]byte(s))
	z.Close()
	return b.String()
}

// B132: a key in the body is one tenant's too.
func TestWireFieldKeyScope(t *testing.T) {
	base := wireFunc(func(r *http.Request) (*http.Response, error) {
		return wireAnswer(r, 200, r.Header.Get("X-Tenant")), nil
	})
	w := wireClient(t, idem.Config{Contract: asField, Store: newStore(t), ScopeOf: func(r *http.Request) (string, error) { return r.Header.Get("X-Tenant"), nil }}, base)
	for _, tenant := range []string{"a", "b"} {
		req := fieldRequest(t, t.Context(), asJSON, `{"key":"invoice-1"}`)
		req.Header.Set("X-Tenant", tenant)
		if r := w.do(t, req); r.body != tenant {
			t.Errorf("tenant %s got the answer of %q", tenant, r.body)
		}
	}
}

// GraphQL has its error codes in extensions, with status 200.
func TestWireCodesInExtensions(t *testing.T) {
	for _, class := range []string{"VALIDATION", "AUTHENTICATION", "INTERNAL"} {
		base := ans(200, `{"errors":[{"message":"…","extensions":{"errorClass":"`+class+`","legacyCode":"93107"}}],"data":{"chargePaymentMethod":null}}`)
		r := wireClient(t, idem.Config{Contract: provider.Braintree}, base).do(t, fieldRequest(t, named(t), asJSON, `{"query":"","variables":{"input":{}}}`))
		if r.err == nil {
			t.Errorf("%s: told executed", class)
		}
	}
}

// What the transport refuses of a function's request was never sent.
func TestWireRefusedWithin(t *testing.T) {
	runs, c := 0, newClient(t, idem.Config{Scope: "s", MaxRequest: 1, Policy: wirePolicy})
	res, _ := idem.Do(t.Context(), c, idem.Intent{ID: "o"}, func(ctx context.Context, _ idem.Key) (int, error) {
		runs++
		_, err := (&http.Client{Transport: c.Transport(ans(200, ""))}).Do(fieldRequest(t, ctx, asJSON, "{}"))
		return 0, err
	})
	if res.Outcome != idem.OutcomeRejected || runs != 1 {
		t.Errorf("%v after %d runs", res.Outcome, runs)
	}
}

// The key that is told is the one that was sent, so that it can be asked about,
// and given back.
func TestWireFormIsTheKey(t *testing.T) {
	base := &fieldBase{answers: []int{500}}
	w := wireClient(t, idem.Config{Contract: provider.Wise, Policy: idem.Policy{Attempts: 1}}, base)
	parked := w.do(t, fieldRequest(t, named(t), asJSON, `{}`)).err.Key
	w.do(t, fieldRequest(t, idem.WithIntent(t.Context(), idem.Intent{Key: parked}), asJSON, `{}`))
	a, b := base.headers[0].Get("X-Idempotence-Uuid"), base.headers[1].Get("X-Idempotence-Uuid")
	if a != b || string(parked) != a {
		t.Errorf("parked %s, sent %s and then %s", parked, a, b)
	}
}

// A caller who asks for gzip by itself gets it, and is told the same.
func TestWireCodesInGzip(t *testing.T) {
	req := fieldRequest(t, named(t), asJSON, `{}`)
	req.Header.Set("Accept-Encoding", "gzip") // net/http leaves the answer encoded
	r := wireClient(t, idem.Config{}, ans(422, gz(`{"code":"key-reused"}`), "Content-Encoding: gzip")).do(t, req)
	if r.err == nil || !r.is(idem.ErrPayloadMismatch) {
		t.Errorf("%v, %v", r.outcome(), r.err)
	}
}

// An encoded body has no place for a key.
func TestWireFieldOfGzip(t *testing.T) {
	base, req := &fieldBase{answers: []int{200}}, fieldRequest(t, named(t), asForm, gz("amount=100"))
	req.Header.Set("Content-Encoding", "gzip")
	if r := wireClient(t, idem.Config{Contract: asField}, base).do(t, req); r.err == nil {
		t.Errorf("sent %q", base.bodies)
	}
}

// B051: a request without a place for a key is sent once by another client's
// call, which repeats it.
func TestWireNoPlaceWithin(t *testing.T) {
	base, outer := &fieldBase{answers: []int{429}}, newClient(t, idem.Config{Scope: "s", Policy: wirePolicy})
	inner := newClient(t, idem.Config{Contract: asField, Policy: wirePolicy}).Transport(base)
	_, _ = idem.Do(t.Context(), outer, idem.Intent{ID: "o"}, func(ctx context.Context, _ idem.Key) (int, error) {
		_, _ = inner.RoundTrip(fieldRequest(t, ctx, "text/plain", "x"))
		return 0, idem.NotExecuted(errBoom)
	})
	if len(base.bodies) != 4 {
		t.Errorf("%d requests", len(base.bodies))
	}
}

// Of a key that the caller gives, only its own length counts.
func TestWireShortFieldKey(t *testing.T) {
	c := asField
	c.MaxKeyLen = 20
	if r := wireClient(t, idem.Config{Contract: c}, ans(200, "")).do(t, fieldRequest(t, t.Context(), asJSON, `{"key":"invoice-1"}`)); r.err != nil {
		t.Error(r.err)
	}
}

// A given key with characters that the server does not take is not sent.
func TestWireKeyChars(t *testing.T) {
	for key, good := range map[idem.Key]bool{"order-1": true, "order_1": true, "order 1": false, "order.1": false, "ord\"er": false} {
		base := &fieldBase{answers: []int{200}}
		r := wireClient(t, idem.Config{Contract: provider.AmazonPay}, base).do(t, fieldRequest(t, idem.WithIntent(t.Context(), idem.Intent{Key: key}), asJSON, `{}`))
		if (r.err == nil) != good || len(base.headers) > 0 != good || !good && !r.is(idem.ErrInvalidKey) {
			t.Errorf("%s: %d sent, %v", key, len(base.headers), r.err)
		}
	}
}
