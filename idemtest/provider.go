package idemtest

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/keystore"
	"github.com/idem-go/idem/keystore/memstore"
	"github.com/idem-go/idem/server"
)

// DeclinedCard is the card that a Provider declines.
const DeclinedCard = "4000000000000002"

// Charge is what a Provider is asked for, and what it answers.
type Charge struct {
	// ID is the provider's own name for a charge that was made, by its number
	// in the ledger.
	ID string `json:"id,omitempty"`
	// Reference is the caller's name for it, such as an order number. The
	// ledger counts by it.
	Reference string `json:"reference"`
	// Amount is in the currency's smallest unit, and positive.
	Amount   int64  `json:"amount"`
	Currency string `json:"currency"`
	// Card is never answered.
	Card string `json:"card,omitempty"`
}

// ProviderConfig configures a Provider. The zero value is usable.
type ProviderConfig struct {
	// Store holds the records of keys; nil means a memory store of its own.
	// Providers that share a Store and a Ledger are replicas of one.
	Store keystore.Store
	// Ledger gets the charges; nil means one of its own.
	Ledger *Ledger
	// Limit is the largest amount that is not declined; 0 means 1,000,000.
	Limit int64
	// Lease and Wait are those of server.Config, with its defaults.
	Lease, Wait time.Duration
	// Optional lets requests without a key through, unprotected, as many
	// providers do.
	Optional bool
	// Observer is told of every request that reaches the key layer.
	Observer idem.Observer
	// BeforeEffect is called right before a charge is announced and made, on
	// the request's goroutine: a test can hold a charge here. Nil does nothing.
	BeforeEffect func(context.Context, Charge)
}

// Provider is a small payment provider, for tests and demonstrations: an HTTP
// handler with one route, POST /charges, behind the server half of idem. It
// takes and answers a Charge as JSON:
//
//	201  charged; the charge is in the ledger
//	400  no JSON, no reference, or no positive amount
//	402  declined: by its card (DeclinedCard), or by its amount
//	503  down (see SetDown)
//
// A 402 is stored under the key like a 201 is. What else the key layer answers,
// package server says.
type Provider struct {
	cfg    ProviderConfig
	server *server.Server
	mux    *http.ServeMux
	down   atomic.Bool
	delay  atomic.Int64
}

// NewProvider returns a provider, to be served with httptest.NewServer or
// net/http. It starts nothing; the error is idem.ErrConfig and names the field.
func NewProvider(cfg ProviderConfig) (*Provider, error) {
	if cfg.Limit < 0 {
		return nil, fmt.Errorf("%w: ProviderConfig.Limit is %d; use 0 for 1,000,000, or a positive amount", idem.ErrConfig, cfg.Limit)
	}
	if cfg.Limit == 0 {
		cfg.Limit = 1_000_000
	}
	if cfg.Ledger == nil {
		cfg.Ledger = new(Ledger)
	}
	if cfg.Store == nil {
		store, err := memstore.New(memstore.Config{})
		if err != nil {
			return nil, err
		}
		cfg.Store = store
	}
	srv, err := server.New(server.Config{
		Store: cfg.Store, Effects: server.Marked, Scope: server.SingleTenant,
		Lease: cfg.Lease, Wait: cfg.Wait, Optional: cfg.Optional, Observer: cfg.Observer,
	})
	if err != nil {
		return nil, err
	}
	p := &Provider{cfg: cfg, server: srv, mux: http.NewServeMux()}
	p.mux.Handle("POST /charges", srv.Handler(http.HandlerFunc(p.charge)))
	return p, nil
}

// ServeHTTP implements http.Handler.
func (p *Provider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if p.down.Load() {
		answerProblem(w, http.StatusServiceUnavailable, "down")
		return
	}
	p.mux.ServeHTTP(w, r)
}

// Ledger returns the charges that were made.
func (p *Provider) Ledger() *Ledger { return p.cfg.Ledger }

// SetDown makes the provider answer 503 to everything, before any work, or
// brings it back.
func (p *Provider) SetDown(down bool) { p.down.Store(down) }

// SetDelay makes every charge take that long before its effect.
func (p *Provider) SetDelay(d time.Duration) { p.delay.Store(int64(d)) }

// Shutdown refuses new charges and waits for those under way, as
// server.Server.Shutdown does.
func (p *Provider) Shutdown(ctx context.Context) error { return p.server.Shutdown(ctx) }

// charge handles a request that the key layer has let through.
func (p *Provider) charge(w http.ResponseWriter, r *http.Request) {
	var c Charge
	if err := json.NewDecoder(r.Body).Decode(&c); err != nil || c.Reference == "" || c.Amount <= 0 {
		answerProblem(w, http.StatusBadRequest, "invalid_charge")
		return
	}
	switch {
	case c.Card == DeclinedCard:
		answerProblem(w, http.StatusPaymentRequired, "card_declined")
		return
	case c.Amount > p.cfg.Limit:
		answerProblem(w, http.StatusPaymentRequired, "amount_too_large")
		return
	}
	p.wait(r.Context())
	if p.cfg.BeforeEffect != nil {
		p.cfg.BeforeEffect(r.Context(), c)
	}
	if err := server.BeginEffect(r.Context()); err != nil {
		answerProblem(w, http.StatusServiceUnavailable, "not_charged")
		return
	}
	n := p.cfg.Ledger.Record(c.Reference, c.Amount, c.Currency)
	c.ID, c.Card = fmt.Sprintf("ch_%06d", n), ""
	w.Header().Set("Location", "/charges/"+c.ID)
	answerJSON(w, http.StatusCreated, c)
}

// wait is the delay, unless ctx ends first.
func (p *Provider) wait(ctx context.Context) {
	timer := time.NewTimer(time.Duration(p.delay.Load()))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

func answerProblem(w http.ResponseWriter, status int, code string) {
	answerJSON(w, status, map[string]string{"code": code})
}

func answerJSON(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // who does not read it, asks again
}
