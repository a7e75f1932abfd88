package keystoretest

import (
	"context"

	"github.com/idem-go/idem/keystore"
)

// claimRules: what a Claim decides, where no lease has run out.
var claimRules = []rule{
	{"claim-new", "", func(p *probe) {
		for _, begun := range []bool{false, true} {
			c := p.params()
			c.Begun = begun
			got := p.claim(c, keystore.Acquired)
			p.same(got.Record, keystore.Record{
				ID: c.ID, Scope: c.Scope, Fingerprint: c.Fingerprint, State: keystore.Running,
				Token: got.Owner.Token, Begun: begun, Meta: c.Meta,
			})
			p.leaseIsLong(got.Record)
			p.same(p.record(c.ID), got.Record)
		}
	}},

	{"claim-in-flight", "B146", func(p *probe) {
		for _, begun := range []bool{false, true} {
			c := p.params()
			c.Begun = begun
			first := p.claim(c, keystore.Acquired)
			got := p.claim(rival(c), keystore.InFlight)
			p.same(got.Record, first.Record)
			p.leaseIsLong(got.Record)
		}
	}},

	{"takeover-only-dead", "", func(p *probe) {
		for _, begun := range []bool{false, true} {
			c := p.params()
			c.Begun = begun
			first := p.claim(c, keystore.Acquired)
			r := rival(c)
			r.Takeover = true
			p.same(p.claim(r, keystore.InFlight).Record, first.Record)
		}
	}},

	{"claim-completed", "", func(p *probe) {
		c := p.params()
		c.Begun = true
		p.done(c, "result")
		want := p.record(c.ID)
		r := rival(c)
		for _, takeover := range []bool{false, true} {
			r.Takeover = takeover
			got := p.claim(r, keystore.Completed)
			p.same(got.Record, want)
			if string(got.Record.Result) != "result" {
				p.fatalf("the replayed Result is %q, want %q", got.Record.Result, "result")
			}
		}
		p.same(p.record(c.ID), want)
	}},

	{"claim-same-nonce", "B093", func(p *probe) {
		for _, begun := range []bool{false, true} {
			c := p.params()
			c.Begun = begun
			first := p.claim(c, keystore.Acquired)
			again := p.claim(c, keystore.Acquired)
			if again.Owner != first.Owner {
				p.fatalf("the repeated Claim is owner %+v, want the first one's %+v", again.Owner, first.Owner)
			}
			p.same(again.Record, first.Record)
			p.complete(first.Owner, "result")
		}
	}},

	{"claim-same-nonce-renews", "B093", func(p *probe) {
		for _, begun := range []bool{false, true} {
			c := p.params()
			c.Begun = begun
			owner := p.dead(c)
			again := p.claim(c, keystore.Acquired)
			if again.Owner != owner {
				p.fatalf("the repeated Claim is owner %+v, want the first one's %+v", again.Owner, owner)
			}
			p.leaseIsLong(again.Record)
			p.claim(rival(c), keystore.InFlight)
		}
	}},

	{"claim-same-nonce-keeps-begun", "B093", func(p *probe) {
		c := p.params()
		owner := p.acquire(c)
		p.renew(owner, keystore.RenewParams{Lease: long, Begun: true})
		if !p.claim(c, keystore.Acquired).Record.Begun {
			p.fatalf("the repeated Claim took the mark of a begun record away")
		}
	}},

	{"claim-same-nonce-released", "B093", func(p *probe) {
		for how, generation := range map[keystore.How]uint32{keystore.Forget: 0, keystore.Reject: 1} {
			c := p.params()
			c.Begun = true
			p.release(p.acquire(c), how)
			_, err := p.store.Claim(p.ctx, c)
			p.is("a copy of the claim after "+how.String(), err, keystore.ErrFenced)
			p.freed(c, generation)
			p.acquire(rival(c))
		}
	}},

	{"claim-same-nonce-done", "B093", func(p *probe) {
		c := p.params()
		p.done(c, "result")
		if got := p.claim(c, keystore.Completed); string(got.Record.Result) != "result" {
			p.fatalf("the replayed Result is %q, want %q", got.Record.Result, "result")
		}
	}},

	{"claim-after-cancel", "B093", func(p *probe) {
		c := p.params()
		ctx, cancel := context.WithCancel(p.ctx)
		cancel()
		_, _ = p.store.Claim(ctx, c) // applied or not, nobody knows
		owner := p.acquire(c)
		_ = p.store.Complete(ctx, owner, keystore.CompleteParams{Result: []byte("result"), Retention: long})
		p.complete(owner, "result")
		p.claim(rival(c), keystore.Completed)
	}},

	{"claim-free", "", func(p *probe) {
		c := p.params()
		c.Begun = true
		owner := p.acquire(c)
		p.release(owner, keystore.Reject)
		old := p.record(c.ID)

		r := rival(c)
		r.Fingerprint = fingerprintB // a Free record takes another one
		r.Begun = false
		got := p.claim(r, keystore.Acquired).Record
		p.higherToken(got, old)
		if got.Generation != old.Generation {
			p.fatalf("claiming a Free record moved the generation from %d to %d", old.Generation, got.Generation)
		}
		if got.Begun {
			p.fatalf("a Free record is claimed as not begun, but is begun")
		}
		p.leaseIsLong(got)
		p.claim(c, keystore.Mismatch)
	}},

	{"claim-expired", "B100", func(p *probe) {
		c := p.params()
		c.Begun = true
		p.release(p.acquire(c), keystore.Reject)
		owner := p.acquire(rival(c))
		p.ok("Complete", p.store.Complete(p.ctx, owner, keystore.CompleteParams{Result: []byte("old"), Retention: short}))
		p.untilGone(c.ID)

		r := rival(c)
		r.Fingerprint, r.Begun, r.Meta = fingerprintB, false, []byte("new meta")
		got := p.claim(r, keystore.Acquired)
		p.same(got.Record, keystore.Record{
			ID: c.ID, Scope: c.Scope, Fingerprint: fingerprintB, State: keystore.Running,
			Token: got.Owner.Token, Meta: r.Meta,
		})
		p.fenced(owner)
	}},

	{"age-restarts", "", func(p *probe) {
		for _, how := range []keystore.How{keystore.Forget, keystore.Reject} {
			c := p.params()
			owner := p.acquire(c)
			old := p.untilOlder(c.ID, 5*short)
			p.release(owner, how)
			if got := p.claim(rival(c), keystore.Acquired).Record.Age; got >= old {
				p.fatalf("Age is %v after claiming a Free record that was %v old", got, old)
			}
		}
	}},
}

// leaseIsLong wants the lease to stand, and to be no longer than was asked.
func (p *probe) leaseIsLong(rec keystore.Record) {
	p.t.Helper()
	if rec.LeaseLeft <= long/2 || rec.LeaseLeft > long {
		p.fatalf("LeaseLeft is %v of a lease of %v just granted", rec.LeaseLeft, long)
	}
}

// higherToken wants the fencing token to have risen.
func (p *probe) higherToken(got, old keystore.Record) {
	p.t.Helper()
	if got.Token <= old.Token {
		p.fatalf("the token went from %d to %d with a new owner; it must rise", old.Token, got.Token)
	}
}
