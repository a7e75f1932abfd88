package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/provider"
)

// shippedContract is a contract and its name in Go.
type shippedContract struct {
	name string
	idem.Contract
}

// shipped are the contracts that an endpoint is held against.
func shipped() []shippedContract {
	return []shippedContract{
		{"idem.IETF", byStatus(idem.IETF)}, {"provider.IETF", byStatus(provider.IETF)}, {"provider.AIP155", provider.AIP155},
		{"provider.Stripe", provider.Stripe}, {"provider.StripeV2", provider.StripeV2},
		{"provider.PayPal", provider.PayPal}, {"provider.PayPalOrders", provider.PayPalOrders},
		{"provider.PayPalPayments", provider.PayPalPayments}, {"provider.PayPalPayouts", provider.PayPalPayouts},
		{"provider.Square", provider.Square}, {"provider.Adyen", provider.Adyen}, {"provider.Braintree", provider.Braintree},
		{"provider.CheckoutCom", provider.CheckoutCom}, {"provider.Mollie", provider.Mollie}, {"provider.GoCardless", provider.GoCardless},
		{"provider.Klarna", provider.Klarna}, {"provider.MercadoPago", provider.MercadoPago}, {"provider.Rapyd", provider.Rapyd},
		{"provider.Worldpay", provider.Worldpay}, {"provider.AmazonPay", provider.AmazonPay},
		{"provider.ModernTreasury", provider.ModernTreasury}, {"provider.Dwolla", provider.Dwolla}, {"provider.Wise", provider.Wise},
		{"provider.WiseTransfers", provider.WiseTransfers}, {"provider.Plaid", provider.Plaid}, {"provider.Razorpay", provider.Razorpay},
		{"provider.Xendit", provider.Xendit}, {"provider.CoinbaseCDP", provider.CoinbaseCDP}, {"provider.Increase", provider.Increase},
		{"provider.Column", provider.Column}, {"provider.Moov", provider.Moov}, {"provider.Circle", provider.Circle},
	}
}

// byStatus adds that the draft knows statuses only; the codes are of this
// module's server half.
func byStatus(c idem.Contract) idem.Contract {
	c.Answers = append(slices.Clone(c.Answers),
		idem.Answer{Status: 409, Means: idem.MeansInFlight}, idem.Answer{Status: 422, Means: idem.MeansMismatch})
	return c
}

// resembling is a contract, and what of it was seen.
type resembling struct {
	Contract string   `json:"contract"`
	Because  []string `json:"because"`
	score    int
}

// saw counts for the contract.
func (r *resembling) saw(points int, format string, args ...any) {
	r.score += points
	r.Because = append(r.Because, fmt.Sprintf(format, args...))
}

// resemblances are the contracts that fit best, several where the answers fit
// them equally well, and none where nothing speaks for any.
func resemblances(t *probeTarget, ev evidence, overall probeVerdict) []resembling {
	best := []resembling{}
	switch {
	case overall == doesNot:
		return append(best, resembling{Contract: "idem.Keyless", Because: []string{"its keys do not keep it from doing things twice"}})
	case !ev.honoured:
		return best
	}
	top := 1
	for _, c := range shipped() {
		carrier := c.Header
		if c.Field == "" {
			carrier = cmp.Or(carrier, "Idempotency-Key")
		}
		if c.Field != t.keyField || !strings.EqualFold(carrier, t.keyHeader) {
			continue
		}
		r := c.against(t, ev)
		if r.score > top {
			best, top = best[:0], r.score
		}
		if r.score == top {
			best = append(best, r)
		}
	}
	return best
}

// against holds what was seen against the contract. A code tells more than a
// status, and what the contract has otherwise tells against it.
func (c shippedContract) against(t *probeTarget, ev evidence) resembling {
	r := resembling{Contract: c.name}
	if carrier := cmp.Or(c.Field, c.Header, "Idempotency-Key"); !slices.Contains([]string{"Idempotency-Key", "X-Idempotency-Key", "idempotency_key"}, carrier) {
		r.saw(2, "its key goes into %s", carrier)
	}
	if ev.mismatch != nil {
		c.hold(t, &r, ev.mismatch, idem.MeansMismatch, "another body")
	}
	if len(ev.inFlight) > 0 {
		c.hold(t, &r, &ev.inFlight[0], idem.MeansInFlight, "in flight")
	}
	c.hold(t, &r, ev.repeat, idem.MeansNotRetained, "a repeat")
	if c.ReplayHeader != "" {
		if strings.EqualFold(ev.repeat.header.Get(c.ReplayHeader), "true") {
			r.saw(2, "a repeat has %s", c.ReplayHeader)
		} else {
			r.score -= 2
		}
	}
	for _, a := range append([]probeAnswer{*ev.repeat}, ev.inFlight...) {
		if c.RetryHeader != "" && a.header.Get(c.RetryHeader) != "" {
			r.saw(1, "it sends %s", c.RetryHeader)
			break
		}
	}
	switch {
	case c.Quoted && ev.onlyQuoted:
		r.saw(2, "keys are in quotes")
	case c.Quoted:
		r.score--
	case ev.onlyQuoted:
		r.score -= 2
	}
	return r
}

// hold holds one answer against what the contract has for this meaning.
func (c shippedContract) hold(t *probeTarget, r *resembling, a *probeAnswer, want idem.Meaning, what string) {
	got, found := c.lookUp(a)
	has := slices.ContainsFunc(c.Answers, func(x idem.Answer) bool { return x.Means == want })
	switch {
	case found && got.Means == want && got.Code != "":
		r.saw(3, "%s: %s", what, t.describe(a))
	case found && got.Means == want:
		r.saw(2, "%s: %s", what, t.describe(a))
	case found || has && want != idem.MeansNotRetained:
		r.score -= 2 // it means something else there, or is told otherwise
	case has && a.succeeded() && !c.isDraft(): // it would not replay
		r.score -= 2
	case want == idem.MeansNotRetained && a.refused(): // it would replay
		r.score -= 2
	}
}

// isDraft: the draft's contracts know answers that were not retained besides
// the ones that were.
func (c shippedContract) isDraft() bool { return strings.HasSuffix(c.name, ".IETF") }

// lookUp finds the contract's first answer that fits, as the client half does.
func (c shippedContract) lookUp(a *probeAnswer) (idem.Answer, bool) {
	codes := a.codes()
	for _, x := range c.Answers {
		if x.Status != 0 && x.Status != a.status {
			continue
		}
		if x.Code == "" || slices.ContainsFunc(codes, func(code string) bool {
			return code == x.Code || strings.HasSuffix(code, "/"+x.Code)
		}) {
			return x, true
		}
	}
	return idem.Answer{}, false
}
