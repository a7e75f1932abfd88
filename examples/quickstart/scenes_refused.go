package main

import (
	"errors"
	"net/http"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemtest"
)

func changed(s *stage) error {
	_, url, err := s.serveProvider(idemtest.ProviderConfig{})
	if err != nil {
		return err
	}
	store, err := s.clientStore()
	if err != nil {
		return err
	}
	knowing, err := s.process("A", url, idem.Config{Store: store})
	if err != nil {
		return err
	}
	other, err := s.process("B", url, idem.Config{})
	if err != nil {
		return err
	}
	dearer := order(4)
	dearer.Amount = 9900

	first := knowing.pay(order(4))
	local := knowing.pay(dearer)
	sent := len(knowing.wire.Exchanges())
	remote := other.pay(dearer)
	s.showAttempts(knowing, other)
	s.told("told A", first)
	s.told("told A", local)
	s.told("told B", remote)
	s.showLedger(1)
	s.expect(errors.Is(local.err, idem.ErrPayloadMismatch) && sent == 1, "A refuses 99.00 EUR before it sends anything")
	s.expect(errors.Is(remote.err, idem.ErrPayloadMismatch), "the server refuses 99.00 EUR to B")
	return nil
}

func declined(s *stage) error {
	_, url, err := s.serveProvider(idemtest.ProviderConfig{})
	if err != nil {
		return err
	}
	store, err := s.clientStore()
	if err != nil {
		return err
	}
	p, err := s.process("", url, idem.Config{Store: store})
	if err != nil {
		return err
	}
	bad := order(5)
	bad.Card = idemtest.DeclinedCard

	refused := p.pay(bad)
	paid := p.pay(order(5))
	s.showAttempts(p)
	s.told("told", refused)
	s.told("told", paid)
	s.showLedger(1)
	s.expect(refused.outcome == idem.OutcomeRejected && refused.status == http.StatusPaymentRequired, "the first card is definitely refused")
	s.expect(paid.status == http.StatusCreated && paid.key != refused.key, "the second card is charged under another key")
	return nil
}
