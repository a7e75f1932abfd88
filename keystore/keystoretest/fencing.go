package keystoretest

import (
	"github.com/idem-go/idem/keystore"
)

// fencingRules: only the current owner changes a record, whatever else is true.
var fencingRules = []rule{
	{"renew-fenced", "B143 B144", func(p *probe) {
		old := p.replaced()
		p.is("Renew by a replaced owner", p.renewErr(old), keystore.ErrFenced)
	}},
	{"complete-fenced", "B143 B144", func(p *probe) {
		old := p.replaced()
		p.is("Complete by a replaced owner", p.completeErr(old, "of the first owner"), keystore.ErrFenced)
	}},
	{"release-fenced", "B143 B144", func(p *probe) {
		for _, how := range []keystore.How{keystore.Forget, keystore.Reject, keystore.Abandon} {
			old := p.replaced()
			p.is("Release "+how.String()+" by a replaced owner", p.releaseErr(old, how), keystore.ErrFenced)
		}
	}},
	{"fenced-changes-nothing", "B143", func(p *probe) {
		p.fenced(p.replaced())
	}},

	{"second-owner-stands", "B143", func(p *probe) {
		c := p.params()
		c.Begun = true
		old := p.dead(c)
		r := rival(c)
		r.Takeover = true
		owner := p.acquire(r)
		p.fenced(old)
		p.complete(owner, "of the second owner")
		p.fenced(old)
		got := p.claim(rival(c), keystore.Completed).Record
		if string(got.Result) != "of the second owner" {
			p.fatalf("the Result is %q, want the second owner's", got.Result)
		}
	}},

	{"replaced-nonce-is-a-rival", "B143", func(p *probe) {
		c := p.params()
		c.Begun = true
		p.dead(c)
		r := rival(c)
		r.Takeover = true
		p.acquire(r)
		p.claim(c, keystore.InFlight) // the first owner claims once more
	}},

	{"dead-owner-may", "", func(p *probe) {
		for _, begun := range []bool{false, true} {
			p.ownerMay(begun, func(c keystore.ClaimParams) keystore.Owner { return p.dead(c) })
		}
	}},

	{"abandoning-owner-may", "", func(p *probe) {
		for _, begun := range []bool{false, true} {
			p.ownerMay(begun, func(c keystore.ClaimParams) keystore.Owner {
				owner := p.acquire(c)
				p.release(owner, keystore.Abandon)
				return owner
			})
		}
	}},

	{"unknown-fenced", "", func(p *probe) {
		p.fenced(keystore.Owner{})
		p.fenced(keystore.Owner{ID: random32(), Nonce: randomNonce(), Token: 1})
	}},

	{"nonce-and-token-fenced", "", func(p *probe) {
		c := p.params()
		owner := p.acquire(c)
		for _, other := range []keystore.Owner{
			{ID: c.ID, Nonce: randomNonce(), Token: owner.Token},
			{ID: c.ID, Nonce: owner.Nonce, Token: owner.Token + 1},
			{ID: c.ID, Nonce: owner.Nonce, Token: owner.Token - 1},
			{ID: c.ID, Nonce: owner.Nonce},
			{ID: c.ID, Token: owner.Token},
			{ID: random32(), Nonce: owner.Nonce, Token: owner.Token},
		} {
			p.fenced(other)
		}
		p.complete(owner, "result")
	}},
}

// replaced returns the owner of a claim that another one has taken over.
func (p *probe) replaced() keystore.Owner {
	p.t.Helper()
	c := p.params()
	c.Begun = true
	old := p.dead(c)
	r := rival(c)
	r.Takeover = true
	p.acquire(r)
	return old
}

// ownerMay wants an owner whose lease is dead, but whom nobody replaced, to be
// the owner still.
func (p *probe) ownerMay(begun bool, lose func(keystore.ClaimParams) keystore.Owner) {
	p.t.Helper()
	lost := func() keystore.Owner {
		c := p.params()
		c.Begun = begun
		return lose(c)
	}
	owner := lost()
	p.renew(owner, keystore.RenewParams{Lease: long})
	p.leaseIsLong(p.record(owner.ID))
	p.complete(lost(), "result")
	for _, how := range []keystore.How{keystore.Forget, keystore.Reject, keystore.Abandon} {
		p.release(lost(), how)
	}
}
