package idem_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/idem-go/idem"
)

// A signer that loses the key, or has another, ends the call.
func TestWireSignKeepsKey(t *testing.T) {
	for name, sign := range map[string]func(*http.Request) error{
		"other headers": func(r *http.Request) error { r.Header = http.Header{"Signature": {"x"}}; return nil },
		"no headers":    func(r *http.Request) error { r.Header = nil; return nil },
		"another key":   func(r *http.Request) error { r.Header.Set("Idempotency-Key", "mine"); return nil },
		"a second key":  func(r *http.Request) error { r.Header.Add("Idempotency-Key", "mine"); return nil },
	} {
		base := &fieldBase{answers: []int{500}}
		r := wireClient(t, idem.Config{Sign: sign}, base).do(t, fieldRequest(t, t.Context(), asJSON, `{}`))
		if r.outcome() != idem.OutcomeRejected || !r.is(idem.ErrInvalidIntent) || len(base.headers) != 0 {
			t.Errorf("%s: %d sent; %v", name, len(base.headers), r.err)
		}
	}
}

// What net/http would refuse of a signer's headers was never sent.
func TestWireSignedHeader(t *testing.T) {
	srv := httptest.NewServer(http.NotFoundHandler())
	defer srv.Close()
	req, _ := http.NewRequest("POST", srv.URL, strings.NewReader(`{}`))
	r := wireClient(t, idem.Config{Sign: func(r *http.Request) error { r.Header.Set("Signature", "abc\ndef"); return nil }}, wireBase(t)).do(t, req)
	if r.outcome() != idem.OutcomeRejected || r.err.Attempts != 1 {
		t.Error(r.err)
	}
}

// A signer has the attempt's time, and has sent nothing.
func TestWireSignTimeout(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	began, p := time.Now(), idem.Policy{AttemptTimeout: 20 * time.Millisecond, Overall: 100 * time.Millisecond}
	r := wireClient(t, idem.Config{Policy: p, Sign: func(r *http.Request) error { <-r.Context().Done(); return r.Context().Err() }}, ans(200, "")).do(t, fieldRequest(t, ctx, asJSON, `{}`))
	if r.outcome() != idem.OutcomeNotExecuted {
		t.Errorf("after %v: %v", time.Since(began), r.err)
	}
}

// B015: neither a body nor a signature go to another origin.
func TestWireStrayedRequests(t *testing.T) {
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if b, _ := io.ReadAll(r.Body); len(b) > 0 || r.Header.Get("Authorization") != "" {
			t.Errorf("another origin got %s %q, %q", r.Method, b, r.Header.Get("Authorization"))
		}
	}))
	defer other.Close()
	for _, status := range []int{303, 307} {
		first := httptest.NewServer(http.RedirectHandler(strings.Replace(other.URL, "127.0.0.1", "localhost", 1), status))
		defer first.Close()
		c := newClient(t, idem.Config{Contract: asField, Sign: func(r *http.Request) error { r.Header.Set("Authorization", "secret"); return nil }})
		if resp, err := (&http.Client{Transport: c.Transport(wireBase(t))}).Post(first.URL, "text/plain", strings.NewReader("card")); err == nil {
			resp.Body.Close()
		}
	}
}

// A side request is signed like the others.
func TestWireSignAside(t *testing.T) {
	c, base := newClient(t, idem.Config{Scope: "s", Sign: func(r *http.Request) error { r.Header.Set("Signature", "x"); return nil }}), &fieldBase{answers: []int{200}}
	_, _ = idem.Do(t.Context(), c, idem.Intent{ID: "o"}, func(ctx context.Context, _ idem.Key) (int, error) {
		req, _ := http.NewRequestWithContext(ctx, "GET", "http://example.com/", http.NoBody)
		_, err := c.Transport(base).RoundTrip(req)
		return 0, err
	})
	if base.headers[0].Get("Signature") == "" {
		t.Error("not signed")
	}
}

// A signer may read the body by GetBody.
func TestWireSignReadsGetBody(t *testing.T) {
	if r := wireClient(t, idem.Config{Sign: func(r *http.Request) error { _, err := r.GetBody(); return err }}, ans(200, "")).do(t, fieldRequest(t, t.Context(), asJSON, `{}`)); r.err != nil {
		t.Error(r.err)
	}
}
