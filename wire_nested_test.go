package idem_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/server"
)

// One client's Transport on top of itself.
func TestWireNested(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t, idem.Config{})
		sends := 0
		tr := c.Transport(c.Transport(wireFunc(func(req *http.Request) (*http.Response, error) {
			sends++
			return wireAnswer(req, 201, "ok"), nil
		})))
		req, _ := http.NewRequest("POST", "http://shop.test/", strings.NewReader("{}"))
		req.Header.Set("Idempotency-Key", "k")
		start := time.Now()
		_, err := tr.RoundTrip(req)
		if took := time.Since(start); took > time.Second {
			t.Errorf("took %v, %d sends: %v", took, sends, err)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t, idem.Config{})
		sends := 0
		tr := c.Transport(c.Transport(wireFunc(func(req *http.Request) (*http.Response, error) {
			sends++
			return wireAnswer(req, 503, ""), nil
		})))
		req, _ := http.NewRequest("POST", "http://shop.test/", strings.NewReader("{}"))
		_, err := tr.RoundTrip(req)
		t.Log(sends)
		if sends > 4 {
			t.Errorf("B051: %d sends of a policy of 4 attempts: %v", sends, err)
		}
	})
}

func TestWireNestedMultiplies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t, idem.Config{})
		sends := 0
		tr := c.Transport(c.Transport(wireFunc(func(req *http.Request) (*http.Response, error) {
			sends++
			return wireAnswer(req, 503, ""), nil
		})))
		req, _ := http.NewRequest("POST", "http://shop.test/", strings.NewReader("{}"))
		_, err := tr.RoundTrip(req)
		if sends > 4 {
			t.Errorf("B051: %d sends of a policy of 4 attempts: %v", sends, err)
		}
	})
}

// A function of one client uses another client's Transport for another service.
func TestWireAnotherClientsTransport(t *testing.T) {
	audit := wireServe(t, wireReply(503, ""), wireReply(201, ""))
	pay := wireServe(t, wireReply(201, "charged"))
	auditor := &http.Client{Transport: newClient(t, idem.Config{Policy: wirePolicy}).Transport(wireBase(t))}
	c := newClient(t, idem.Config{Scope: "s", Policy: wirePolicy})
	payer := &http.Client{Transport: c.Transport(wireBase(t))}
	var key idem.Key
	_, err := idem.Do(t.Context(), c, intent, func(ctx context.Context, k idem.Key) (receipt, error) {
		key = k
		for _, x := range []struct {
			hc  *http.Client
			url string
		}{{auditor, audit.URL + "/audit"}, {payer, pay.URL + "/charges"}} {
			req, _ := http.NewRequestWithContext(ctx, "POST", x.url, strings.NewReader(wireBody))
			resp, err := x.hc.Do(req)
			if err != nil {
				return receipt{}, err
			}
			io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
		}
		return receipt{}, nil
	})
	if len(audit.requests()) > 0 && audit.requests()[0].Keys[0] == string(key) {
		t.Errorf("the other client's service was sent this intent's key")
	}
	if err != nil {
		t.Errorf("the payment: %v", err)
	}
}

// Re-entering one's own intent through Transport.
func TestWireReentrantTransport(t *testing.T) {
	c := newClient(t, idem.Config{Scope: "s", Policy: wirePolicy})
	hc := &http.Client{Transport: c.Transport(replies(201))}
	_, err := idem.Do(t.Context(), c, idem.Intent{ID: "1"}, func(ctx context.Context, _ idem.Key) (receipt, error) {
		req, _ := http.NewRequestWithContext(idem.WithIntent(ctx, idem.Intent{ID: "1"}), "POST", "http://shop.test/", nil)
		_, err := hc.Do(req)
		return receipt{}, err
	})
	if !errors.Is(err, idem.ErrReentrant) {
		t.Errorf("%v", err)
	}
}

// The module's own two halves: a handler that answers 307, its reply lost.
func TestWireServerReplaysRedirect(t *testing.T) {
	srv, err := server.New(server.Config{Store: newStore(t), Effects: server.Opaque, Scope: server.SingleTenant})
	if err != nil {
		t.Fatal(err)
	}
	defer srv.Shutdown(context.Background())
	var keys []string
	mux := http.NewServeMux()
	mux.Handle("POST /a", srv.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "/b", http.StatusTemporaryRedirect)
	})))
	mux.Handle("POST /b", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(201) }))
	ts := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		keys = append(keys, r.URL.Path+" "+r.Header.Get("Idempotency-Key"))
		mux.ServeHTTP(w, r)
	}))
	defer ts.Close()
	base := wireBase(t)
	lost := false
	w := wireClient(t, idem.Config{}, wireFunc(func(req *http.Request) (*http.Response, error) {
		resp, err := base.RoundTrip(req)
		if err == nil && !lost {
			lost = true
			resp.Body.Close()
			return nil, io.ErrUnexpectedEOF
		}
		return resp, err
	}))
	res := w.follow(t, wirePost(t, ts.URL+"/a"))
	t.Log(res.outcome(), res.err)
	for _, k := range keys {
		if strings.Fields(k)[1] != strings.Fields(keys[0])[1] {
			t.Fatalf("B014: one POST, two keys: %q", keys)
		}
	}
}

// Keyless: an Unknown is never repeated, by no later call either.
func TestWireKeylessUnresolvedIsRedriven(t *testing.T) {
	t.Run("Do", func(t *testing.T) {
		store := newStore(t)
		c := newClient(t, idem.Config{Store: store, Contract: idem.Keyless})
		effects := 0
		for range 2 {
			_, err := idem.Do(t.Context(), c, intent, func(context.Context, idem.Key) (receipt, error) {
				effects++
				return receipt{}, io.ErrUnexpectedEOF // the reply is lost
			})
			wantOutcome(t, err, idem.OutcomeUnknown)
		}
		if effects != 1 {
			t.Errorf("%d effects on a server without keys", effects)
		}
	})
	t.Run("Transport", func(t *testing.T) {
		srv := wireServe(t, wireEOF)
		w := wireClient(t, idem.Config{Scope: "s", Store: wireStore(t), Contract: idem.Keyless}, wireBase(t))
		for range 2 {
			w.do(t, wirePost(t, srv.URL).WithContext(idem.WithIntent(t.Context(), idem.Intent{ID: "1"})))
		}
		if n := len(srv.requests()); n != 1 {
			t.Errorf("%d sends to a server without keys", n)
		}
	})
}
