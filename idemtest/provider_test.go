package idemtest_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemtest"
	"github.com/idem-go/idem/keystore/memstore"
)

const chargesURL = "http://provider.test/charges"

// newProvider serves a provider until the test ends, and returns the way to it.
func newProvider(t *testing.T, cfg idemtest.ProviderConfig) (*idemtest.Provider, *http.Transport) {
	t.Helper()
	p, err := idemtest.NewProvider(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Shutdown(context.Background()); err != nil {
			t.Errorf("shutdown: %v", err)
		}
	})
	return p, servePipes(t, p)
}

func TestProviderAnswers(t *testing.T) {
	for name, tc := range map[string]struct {
		body    string
		down    bool
		status  int
		answer  string
		effects int
	}{
		"charge":      {body: `{"reference": "order-1", "amount": 1200, "currency": "EUR", "card": "4242"}`, status: 201, answer: `"id":"ch_000001"`, effects: 1},
		"card":        {body: `{"reference": "order-1", "amount": 1200, "card": "` + idemtest.DeclinedCard + `"}`, status: 402, answer: "card_declined"},
		"amount":      {body: `{"reference": "order-1", "amount": 1000001}`, status: 402, answer: "amount_too_large"},
		"negative":    {body: `{"reference": "order-1", "amount": -1}`, status: 400, answer: "invalid_charge"},
		"no name":     {body: `{"amount": 1200}`, status: 400, answer: "invalid_charge"},
		"no JSON":     {body: `amount=1200`, status: 400, answer: "invalid_charge"},
		"it is down":  {body: `{"reference": "order-1", "amount": 1200}`, down: true, status: 503, answer: "down"},
		"it was down": {body: `{"reference": "order-1", "amount": 1200}`, status: 201, answer: `"id":"ch_000001"`, effects: 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, base := newProvider(t, idemtest.ProviderConfig{})
				p.SetDown(true)
				p.SetDown(tc.down)
				// The second one is a retry: it brings the same answer again.
				for _, replayed := range []string{"false", "true"} {
					resp, err := base.RoundTrip(newPost(t, chargesURL, "k1", tc.body))
					body, err := bodyOf(resp, err)
					if err != nil {
						t.Fatal(err)
					}
					if tc.down {
						replayed = ""
					}
					if resp.StatusCode != tc.status || !strings.Contains(body, tc.answer) || resp.Header.Get("Idempotent-Replayed") != replayed {
						t.Errorf("got %d %v %s", resp.StatusCode, resp.Header, body)
					}
					if strings.Contains(body, "4242") {
						t.Errorf("the card was answered: %s", body)
					}
				}
				if n := p.Ledger().Count("order-1"); n != tc.effects {
					t.Errorf("%d charges, want %d", n, tc.effects)
				}
			})
		})
	}
}

func TestProviderDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, base := newProvider(t, idemtest.ProviderConfig{})
		p.SetDelay(3 * time.Second)
		start := time.Now()
		if _, err := bodyOf(base.RoundTrip(newPost(t, chargesURL, "k1", `{"reference": "order-1", "amount": 1}`))); err != nil {
			t.Fatal(err)
		}
		if d := time.Since(start); d != 3*time.Second {
			t.Errorf("it took %v", d)
		}
		p.Ledger().Once(t, "order-1")
	})
}

// A charge whose claim is lost before its effect is not made.
func TestProviderFencesItsEffect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, err := memstore.New(memstore.Config{})
		if err != nil {
			t.Fatal(err)
		}
		held := make(chan context.Context)
		p, base := newProvider(t, idemtest.ProviderConfig{Store: store, BeforeEffect: func(ctx context.Context, c idemtest.Charge) {
			if c.Reference != "order-1" || c.Amount != 1 {
				t.Errorf("the hook got %+v", c)
			}
			held <- ctx
			<-ctx.Done()
		}})
		answered := make(chan string)
		go func() {
			body, _ := bodyOf(base.RoundTrip(newPost(t, chargesURL, "k1", `{"reference": "order-1", "amount": 1}`)))
			answered <- body
		}()
		ctx := <-held
		expired, cancel := context.WithCancel(t.Context())
		cancel()
		if err := p.Shutdown(expired); err == nil {
			t.Error("Shutdown did not notice the charge that was running")
		}
		if err := context.Cause(ctx); !errors.Is(err, idem.ErrShutdown) {
			t.Errorf("the charge ended with %v", err)
		}
		if body := <-answered; !strings.Contains(body, "not_charged") {
			t.Errorf("answered %q", body)
		}
		if n := p.Ledger().Total(); n != 0 {
			t.Errorf("%d charges", n)
		}
	})
}

// Two providers that share a store and a ledger are one.
func TestProviderReplicas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, err := memstore.New(memstore.Config{})
		if err != nil {
			t.Fatal(err)
		}
		var ledger idemtest.Ledger
		var answers []string
		for range 2 {
			_, base := newProvider(t, idemtest.ProviderConfig{Store: store, Ledger: &ledger})
			body, err := bodyOf(base.RoundTrip(newPost(t, chargesURL, "k1", `{"reference": "order-1", "amount": 1}`)))
			if err != nil {
				t.Fatal(err)
			}
			answers = append(answers, body)
		}
		ledger.Once(t, "order-1")
		if answers[0] != answers[1] {
			t.Errorf("the replicas answered %q and %q", answers[0], answers[1])
		}
	})
}

// Without a key a retry is another charge, where the provider allows it.
func TestProviderWithoutKey(t *testing.T) {
	for optional, charges := range map[bool]int{false: 0, true: 2} {
		synctest.Test(t, func(t *testing.T) {
			p, base := newProvider(t, idemtest.ProviderConfig{Optional: optional})
			for range 2 {
				if _, err := bodyOf(base.RoundTrip(newPost(t, chargesURL, "", `{"reference": "order-1", "amount": 1}`))); err != nil {
					t.Fatal(err)
				}
			}
			if n := p.Ledger().Total(); n != charges {
				t.Errorf("optional %v: %d charges, want %d", optional, n, charges)
			}
		})
	}
}

func TestProviderConfig(t *testing.T) {
	for _, cfg := range []idemtest.ProviderConfig{{Limit: -1}, {Lease: -1}, {Wait: -7}} {
		if p, err := idemtest.NewProvider(cfg); !errors.Is(err, idem.ErrConfig) || p != nil {
			t.Errorf("%+v: got %v, %v", cfg, p, err)
		}
	}
}
