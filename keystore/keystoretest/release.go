package keystoretest

import (
	"github.com/idem-go/idem/keystore"
)

// releaseRules: what a Release by the owner does; for Abandon see takeoverRules.
var releaseRules = []rule{
	{"forget", "", func(p *probe) {
		c := p.params()
		c.Begun = true
		p.release(p.acquire(c), keystore.Forget)
		p.freed(c, 0)
	}},

	{"reject-raises-generation", "", func(p *probe) {
		c := p.params()
		c.Begun = true
		p.release(p.acquire(c), keystore.Reject)
		p.freed(c, 1)
	}},

	{"generation-adds-up", "", func(p *probe) {
		c := p.params()
		for _, step := range []struct {
			how  keystore.How
			want uint32
		}{{keystore.Reject, 1}, {keystore.Forget, 1}, {keystore.Reject, 2}, {keystore.Reject, 3}} {
			p.release(p.acquire(rival(c)), step.how)
			p.freed(c, step.want)
		}
	}},

	{"release-repeated", "", func(p *probe) {
		for how, generation := range map[keystore.How]uint32{keystore.Forget: 0, keystore.Reject: 1} {
			c := p.params()
			owner := p.acquire(c)
			for range 3 {
				p.release(owner, how)
			}
			p.freed(c, generation)
		}
	}},

	{"abandon-repeated", "", func(p *probe) {
		c := p.params()
		c.Begun = true
		owner := p.acquire(c)
		p.release(owner, keystore.Abandon)
		want := p.record(c.ID)
		p.release(owner, keystore.Abandon)
		p.same(p.record(c.ID), want)
	}},

	{"release-settles", "", func(p *probe) {
		all := []keystore.How{keystore.Forget, keystore.Reject, keystore.Abandon}
		for how, generation := range map[keystore.How]uint32{keystore.Forget: 0, keystore.Reject: 1} {
			c := p.params()
			owner := p.acquire(c)
			p.release(owner, how)
			p.is("Complete after "+how.String(), p.completeErr(owner, "result"), keystore.ErrFenced)
			p.is("Renew after "+how.String(), p.renewErr(owner), keystore.ErrFenced)
			for _, other := range all {
				if other != how {
					p.is(other.String()+" after "+how.String(), p.releaseErr(owner, other), keystore.ErrFenced)
				}
			}
			p.freed(c, generation)
		}
	}},

	{"release-after-abandon", "", func(p *probe) {
		for how, generation := range map[keystore.How]uint32{keystore.Forget: 0, keystore.Reject: 1} {
			c := p.params()
			c.Begun = true
			owner := p.acquire(c)
			p.release(owner, keystore.Abandon)
			p.release(owner, how)
			p.freed(c, generation)
		}
	}},

	{"release-reclaimed-fenced", "B143", func(p *probe) {
		for _, how := range []keystore.How{keystore.Forget, keystore.Reject} {
			c := p.params()
			old := p.acquire(c)
			p.release(old, how)
			p.acquire(rival(c))
			p.fenced(old)
		}
	}},
}

// freed wants the record of c to be Free and of that generation.
func (p *probe) freed(c keystore.ClaimParams, generation uint32) {
	p.t.Helper()
	rec := p.record(c.ID)
	if rec.State != keystore.Free || rec.Generation != generation || rec.LeaseLeft != 0 {
		p.fatalf("the record is %s; want it free, of generation %d, LeaseLeft 0", describe(rec), generation)
	}
}
