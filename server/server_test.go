package server_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/keystore"
	"github.com/idem-go/idem/server"
)

func TestNewRefuses(t *testing.T) {
	tests := []struct {
		field  string
		change func(*server.Config)
		says   []string
	}{
		{"Store", func(c *server.Config) { c.Store = nil }, []string{"memstore.New"}},
		{"Scope", func(c *server.Config) { c.Scope = nil }, []string{"server.SingleTenant"}}, // B132
		{"Effects", func(c *server.Config) { c.Effects = 0 }, []string{"Opaque", "Marked", "Idempotent", "Transaction"}},
		{"Effects", func(c *server.Config) { c.Effects = 77 }, []string{"Effects(77)"}},
		{"Effects", func(c *server.Config) { c.Effects = server.Transaction }, []string{"the store has no transactions"}},
		{"Wait", func(c *server.Config) { c.Wait = -2 }, []string{"NoWait"}},
		{"MaxRun", func(c *server.Config) { c.MaxRun = -1 }, nil},
		{"Lease", func(c *server.Config) { c.Lease = -1 }, nil},
		{"Lease", func(c *server.Config) { c.Lease = time.Millisecond }, nil},
		{"Retention", func(c *server.Config) { c.Retention = -1 }, nil},
		{"Retention", func(c *server.Config) { c.Retention, c.Wait = time.Minute, time.Minute }, []string{"Wait"}},
		{"MaxRequest", func(c *server.Config) { c.MaxRequest = -1 }, nil},
		{"MaxResponse", func(c *server.Config) { c.MaxResponse = -1 }, nil},
		{"MaxResponse", func(c *server.Config) { c.MaxResponse = keystore.MaxResult }, nil},
		{"Describe", func(c *server.Config) { c.Describe = "/docs" }, nil},
		{"Describe", func(c *server.Config) { c.Describe = "https://x/>; evil" }, nil},
	}
	for _, tt := range tests {
		cfg := server.Config{Store: newStore(t), Effects: server.Marked, Scope: server.SingleTenant}
		tt.change(&cfg)
		s, err := server.New(cfg)
		if s != nil || !errors.Is(err, idem.ErrConfig) || !strings.Contains(err.Error(), tt.field) {
			t.Errorf("%s: %v", tt.field, err)
			continue
		}
		for _, word := range tt.says {
			if !strings.Contains(err.Error(), word) {
				t.Errorf("%s: %v does not say %s", tt.field, err, word)
			}
		}
	}
}

// B140: no zero means "none".
func TestB140ZeroValues(t *testing.T) {
	store := &hooked{Store: newStore(t)}
	store.claim = func(p keystore.ClaimParams, next func() (keystore.Claim, error)) (keystore.Claim, error) {
		if p.Lease != 30*time.Second || p.Keep != 24*time.Hour || !p.Begun {
			t.Errorf("claim %+v", p)
		}
		return next()
	}
	store.complete = func(p keystore.CompleteParams, next func() error) error {
		if p.Retention != 24*time.Hour {
			t.Errorf("retention %v", p.Retention)
		}
		return next()
	}
	s := newServer(t, server.Config{Store: store})
	c := &counter{do: func(_ http.ResponseWriter, r *http.Request, _ int) {
		if deadline, ok := r.Context().Deadline(); !ok || time.Until(deadline) > 5*time.Minute {
			t.Errorf("the handler's deadline: %v %v", deadline, ok)
		}
	}}
	want(t, post(s.Handler(c, server.WithMaxRun(0), server.WithRetention(0), server.WithWait(0)), "k", "{}"), 200, "")
	c.want(t, 1)
}

func TestHandlerRefuses(t *testing.T) {
	s := newServer(t, server.Config{})
	for name, call := range map[string]func(){
		"nil handler":  func() { s.Handler(nil) },
		"wrong option": func() { s.Handler(&counter{}, server.WithWait(-5)) },
		"no effects":   func() { s.Handler(&counter{}, server.WithEffects(0)) },
	} {
		func() {
			defer func() {
				if p, _ := recover().(string); !strings.HasPrefix(p, "idem: server: Handler") {
					t.Errorf("%s: recovered %q", name, p)
				}
			}()
			call()
		}()
	}
}

func TestRouteOptions(t *testing.T) {
	runs := 0
	h := newServer(t, server.Config{}).Handler(&counter{do: func(w http.ResponseWriter, _ *http.Request, run int) {
		runs = run
		w.WriteHeader(503)
	}}, server.WithEffects(server.Idempotent))
	want(t, post(h, "k", "{}"), 503, "")
	want(t, post(h, "k", "{}"), 503, "")
	if runs != 2 {
		t.Errorf("ran %d times", runs)
	}
}
