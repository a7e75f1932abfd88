package keystoretest

import (
	"github.com/idem-go/idem/keystore"
)

// takeoverRules: what happens to a record whose lease has run out.
var takeoverRules = []rule{
	{"lease-ends", "B139", func(p *probe) {
		c := p.params()
		p.dead(c)
		if rec := p.record(c.ID); rec.State != keystore.Running || rec.Unresolved() {
			p.fatalf("a record that had not begun is, with its lease dead, %s; want running and not unresolved", describe(rec))
		}
	}},

	{"dead-not-begun-claimable", "B139", func(p *probe) {
		for _, begun := range []bool{false, true} {
			c := p.params()
			p.dead(c)
			old := p.record(c.ID)
			r := rival(c)
			r.Begun = begun
			got := p.claim(r, keystore.Acquired).Record
			p.taken(got, old)
			if got.Begun != begun {
				p.fatalf("the record is begun %t after a Claim with Begun %t", got.Begun, begun)
			}
		}
	}},

	{"dead-begun-unresolved", "B142", func(p *probe) {
		c := p.params()
		c.Begun = true
		p.dead(c)
		p.unresolved(c)
	}},

	{"renewed-begun-unresolved", "B142", func(p *probe) {
		c := p.params()
		p.renew(p.acquire(c), keystore.RenewParams{Lease: short, Begun: true})
		p.untilDead(c.ID)
		p.unresolved(c)
	}},

	{"takeover", "", func(p *probe) {
		c := p.params()
		c.Begun = true
		p.dead(c)
		old := p.record(c.ID)
		r := rival(c)
		r.Takeover, r.Begun = true, false
		got := p.claim(r, keystore.Acquired)
		p.taken(got.Record, old)
		if !got.Record.Begun {
			p.fatalf("a take-over took the mark of a begun record away")
		}
		p.claim(rival(c), keystore.InFlight)
		p.complete(got.Owner, "of the second owner")
		p.claim(rival(c), keystore.Completed)
	}},

	{"takeover-repeated", "B093", func(p *probe) {
		c := p.params()
		c.Begun = true
		p.dead(c)
		r := rival(c)
		r.Takeover = true
		first := p.acquire(r)
		if again := p.acquire(r); again != first {
			p.fatalf("the repeated take-over is owner %+v, want the first one's %+v", again, first)
		}
	}},

	{"takeover-keeps-generation", "", func(p *probe) {
		c := p.params()
		p.release(p.acquire(c), keystore.Reject)
		second := rival(c)
		p.dead(second)
		third := rival(c)
		third.Begun = true
		third.Lease = short
		p.acquire(third)
		p.untilDead(c.ID)
		fourth := rival(c)
		fourth.Takeover = true
		if got := p.claim(fourth, keystore.Acquired).Record.Generation; got != 1 {
			p.fatalf("the generation is %d after two changes of owner, want 1", got)
		}
	}},

	{"abandon", "", func(p *probe) {
		c := p.params()
		p.release(p.acquire(c), keystore.Abandon)
		if rec := p.record(c.ID); rec.State != keystore.Running || rec.LeaseLeft > 0 {
			p.fatalf("an abandoned record is %s, want it running with its lease dead", describe(rec))
		}
		p.acquire(rival(c))
	}},

	{"abandon-begun-unresolved", "", func(p *probe) {
		c := p.params()
		c.Begun = true
		p.release(p.acquire(c), keystore.Abandon)
		p.unresolved(c)
	}},
}

// taken wants the record to have a new owner and to be otherwise as it was.
func (p *probe) taken(got, old keystore.Record) {
	p.t.Helper()
	p.higherToken(got, old)
	p.leaseIsLong(got)
	if got.Age < old.Age {
		p.fatalf("Age went from %v to %v when the record changed its owner; it counts from the first claim", old.Age, got.Age)
	}
	got.Token, got.Begun = old.Token, old.Begun
	p.same(got, old)
}

// unresolved wants claims without Takeover to be refused and change nothing.
func (p *probe) unresolved(c keystore.ClaimParams) {
	p.t.Helper()
	before := p.record(c.ID)
	if !before.Unresolved() {
		p.fatalf("the record is not unresolved: %s", describe(before))
	}
	for range 2 {
		got := p.claim(rival(c), keystore.Unresolved).Record
		p.same(got, before)
		if !got.Unresolved() {
			p.fatalf("a Claim answered unresolved has a record that is not: %s", describe(got))
		}
	}
	p.same(p.record(c.ID), before)
}
