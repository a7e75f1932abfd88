package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemtest"
)

var scenes = []scene{
	{"naive", []string{
		"For contrast: a caller without keys. The card is charged, the reply is",
		"lost, and the caller tries again, since it heard nothing.",
	}, naive},
	{"lost-reply", []string{
		"The same, with one key for the payment.",
	}, lostReply},
	{"concurrent", []string{
		"Five callers want the same payment at once: three in process A, which",
		"become one call, and two in process B, for whom the server waits.",
	}, concurrent},
	{"changed", []string{
		"The payload changes under one key: first in the process that knows it,",
		"then in one that does not, where the server refuses.",
	}, changed},
	{"declined", []string{
		"The card is declined, so the customer takes another one. A definite",
		"refusal ends the first operation; the next one has its own key.",
	}, declined},
	{"down", []string{
		"Nobody takes the call: it is proven that nothing was sent. Later the",
		"payment is made, under the same key.",
	}, down},
	{"stalled", []string{
		"Server A claims the key and stalls. Its lease runs out, server B takes",
		"the claim over and charges. Then A wakes up, about to charge.",
	}, stalled},
}

// order is the payment that the scenes are about.
func order(n int) idemtest.Charge {
	return idemtest.Charge{Reference: fmt.Sprint("order-", n), Amount: 1200, Currency: "EUR", Card: "4242424242424242"}
}

func naive(s *stage) error {
	_, url, err := s.serveProvider(idemtest.ProviderConfig{Optional: true})
	if err != nil {
		return err
	}
	base := &http.Transport{}
	s.atEnd(func() error { base.CloseIdleConnections(); return nil })
	p := &process{wire: idemtest.NewTransport(base, idemtest.LoseReply)}
	a := answer{err: errors.New("not tried")}
	for try := 0; a.err != nil && try < 3; try++ {
		resp, err := post(context.Background(), &http.Client{Transport: p.wire}, url, order(1))
		if a = (answer{err: err}); err == nil {
			a.status, a.outcome, a.source = resp.StatusCode, idem.OutcomeExecuted, idem.SourceExecuted
			a.charge, a.err = decode(resp)
		}
	}
	s.showAttempts(p)
	s.told("told", a)
	s.showLedger(2)
	return nil
}

func lostReply(s *stage) error {
	_, url, err := s.serveProvider(idemtest.ProviderConfig{})
	if err != nil {
		return err
	}
	store, err := s.clientStore()
	if err != nil {
		return err
	}
	p, err := s.process("", url, idem.Config{Store: store}, idemtest.LoseReply)
	if err != nil {
		return err
	}
	if s.seed != 0 {
		// A held reply would hold up the scene for seconds.
		p.wire.Plan = idemtest.Random(s.seed, 0.6, idemtest.Drop, idemtest.LoseReply, idemtest.ResetAfterSend, idemtest.Duplicate,
			idemtest.CutBody(9), idemtest.StatusBefore(503), idemtest.StatusAfter(502))
	}
	a := p.pay(order(2))
	for calls := 1; a.err != nil && calls < 50; calls++ {
		s.showAttempts(p)
		s.told("told", a)
		s.printf("   so it is asked again, under the same key\n")
		a = p.pay(order(2))
	}
	s.showAttempts(p)
	s.told("told", a)
	s.showLedger(1)
	s.expect(a.status == http.StatusCreated && a.charge.Amount == 1200, "the caller gets the answer")
	return nil
}

func concurrent(s *stage) error {
	provider, url, err := s.serveProvider(idemtest.ProviderConfig{})
	if err != nil {
		return err
	}
	provider.SetDelay(50 * time.Millisecond)
	var processes []*process
	for _, name := range []string{"A", "B"} {
		p, err := s.process(name, url, idem.Config{})
		if err != nil {
			return err
		}
		processes = append(processes, p)
	}
	answers := make([]answer, 5)
	var wg sync.WaitGroup
	for i := range answers {
		wg.Go(func() { answers[i] = processes[i/3].pay(order(3)) })
	}
	wg.Wait()
	s.showAttempts(processes...)
	for i, a := range answers {
		s.told("told "+processes[i/3].name, a)
	}
	s.showLedger(1)
	s.expect(same(answers), "all five callers get the same answer")
	return nil
}

// same tells whether all callers got the same charge.
func same(answers []answer) bool {
	return !slices.ContainsFunc(answers, func(a answer) bool {
		return a.err != nil || a.charge != answers[0].charge
	})
}
