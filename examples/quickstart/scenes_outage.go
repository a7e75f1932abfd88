package main

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemtest"
)

func down(s *stage) error {
	_, url, err := s.serveProvider(idemtest.ProviderConfig{})
	if err != nil {
		return err
	}
	store, err := s.clientStore()
	if err != nil {
		return err
	}
	outage := slices.Repeat([]idemtest.Fault{idemtest.Drop}, s.attempts)
	p, err := s.process("", url, idem.Config{Store: store}, outage...)
	if err != nil {
		return err
	}
	first := p.pay(order(6))
	s.showAttempts(p)
	s.told("told", first)
	s.showLedger(0)
	s.expect(first.outcome == idem.OutcomeNotExecuted, "the caller is told that nothing happened")

	later := p.pay(order(6))
	s.showAttempts(p)
	s.told("told", later)
	s.showLedger(1)
	s.expect(later.status == http.StatusCreated && later.key == first.key, "the payment is made, under the same key")
	return nil
}

func stalled(s *stage) error {
	lease := s.lease()
	shared, err := s.store()
	if err != nil {
		return err
	}
	resume := make(chan struct{})
	var a, b serverLog
	wakeUp := sync.OnceFunc(func() { close(resume) })
	stalls := func(context.Context, idemtest.Charge) { <-resume }
	serverA, err := s.provider(idemtest.ProviderConfig{Store: stalling{shared, resume}, Lease: lease, Observer: &a, BeforeEffect: stalls})
	if err != nil {
		return err
	}
	serverB, err := s.provider(idemtest.ProviderConfig{Store: shared, Lease: lease, Observer: &b})
	if err != nil {
		return err
	}
	// The balancer sends the first request to A, and the retries to B.
	var requests atomic.Int64
	aDone := make(chan struct{})
	url, err := s.serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if requests.Add(1) > 1 {
			serverB.ServeHTTP(w, r)
			return
		}
		defer close(aDone)
		serverA.ServeHTTP(w, r)
	}))
	if err != nil {
		return err
	}
	s.atEnd(func() error { wakeUp(); return nil })
	p, err := s.process("", url, idem.Config{Policy: idem.Policy{AttemptTimeout: 150 * time.Millisecond}})
	if err != nil {
		return err
	}
	paid := p.pay(order(7))
	for calls := 1; paid.err != nil && calls < 10; calls++ {
		paid = p.pay(order(7))
	}
	wakeUp()
	<-aDone
	s.showAttempts(p)
	s.told("told", paid)
	s.printf("   %-9s %s\n", "server A", a.last())
	s.showLedger(1)
	s.expect(paid.status == http.StatusCreated, "the caller gets B's answer")
	s.expect(a.last() == idem.EventFenced, "A is refused before its effect")
	return nil
}

// serverLog keeps the names of a server's events.
type serverLog struct {
	mu     sync.Mutex // guards events
	events []string
}

// Observe implements idem.Observer.
func (l *serverLog) Observe(_ context.Context, e idem.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events = append(l.events, e.Name)
}

func (l *serverLog) last() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.events) == 0 {
		return "nothing"
	}
	return l.events[len(l.events)-1]
}
