package keystoretest

import (
	"github.com/idem-go/idem/keystore"
)

// renewRules: what a Renew by the owner does.
var renewRules = []rule{
	{"renew-extends", "", func(p *probe) {
		c := p.params()
		c.Begun = true
		owner := p.dead(c)
		before := p.record(c.ID)
		p.renew(owner, keystore.RenewParams{Lease: long})
		after := p.record(c.ID)
		p.leaseIsLong(after)
		p.same(after, before)
		if after.Age < before.Age {
			p.fatalf("Age went from %v to %v with a Renew", before.Age, after.Age)
		}
		p.claim(rival(c), keystore.InFlight)
	}},

	{"renew-counts-from-now", "", func(p *probe) {
		c := p.params()
		owner := p.acquire(c)
		p.renew(owner, keystore.RenewParams{Lease: short})
		p.untilDead(c.ID)
	}},

	{"renew-begun", "", func(p *probe) {
		c := p.params()
		owner := p.acquire(c)
		p.renew(owner, keystore.RenewParams{Lease: long})
		if p.record(c.ID).Begun {
			p.fatalf("a Renew without Begun marked the record begun")
		}
		p.renew(owner, keystore.RenewParams{Lease: long, Begun: true})
		if !p.record(c.ID).Begun {
			p.fatalf("a Renew with Begun did not mark the record begun")
		}
		p.renew(owner, keystore.RenewParams{Lease: long})
		if !p.record(c.ID).Begun {
			p.fatalf("a Renew without Begun took the mark of a begun record away")
		}
	}},

	{"renew-meta", "", func(p *probe) {
		c := p.params()
		owner := p.acquire(c)
		p.renew(owner, keystore.RenewParams{Lease: long})
		p.metaIs(c.ID, "meta")
		p.renew(owner, keystore.RenewParams{Lease: long, Meta: []byte("new meta")})
		p.metaIs(c.ID, "new meta")
		p.renew(owner, keystore.RenewParams{Lease: long, Meta: []byte{}})
		p.metaIs(c.ID, "")
	}},

	{"renew-settled-fenced", "B144", func(p *probe) {
		p.is("Renew of a completed record", p.renewErr(p.done(p.params(), "result")), keystore.ErrFenced)
		for _, how := range []keystore.How{keystore.Forget, keystore.Reject} {
			owner := p.acquire(p.params())
			p.release(owner, how)
			p.is("Renew of a record released with "+how.String(), p.renewErr(owner), keystore.ErrFenced)
		}
	}},
}
