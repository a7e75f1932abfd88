package keystoretest

import (
	"time"

	"github.com/idem-go/idem/keystore"
)

// completeRules: what a Complete by the owner does, and how long it lasts.
var completeRules = []rule{
	{"complete", "", func(p *probe) {
		c := p.params()
		owner := p.acquire(c)
		want := p.record(c.ID)
		p.complete(owner, "result")
		want.State, want.Result = keystore.Done, []byte("result")
		got := p.record(c.ID)
		p.same(got, want)
		if got.LeaseLeft != 0 {
			p.fatalf("LeaseLeft of a Done record is %v, want 0", got.LeaseLeft)
		}
	}},

	{"complete-keeps-record", "B127", func(p *probe) {
		c := p.params()
		p.release(p.acquire(c), keystore.Reject)
		r := rival(c)
		r.Fingerprint, r.Begun = fingerprintB, true
		owner := p.acquire(r)
		want := p.record(c.ID)
		p.complete(owner, "result")
		want.State, want.Result = keystore.Done, []byte("result")
		got := p.claim(r, keystore.Completed).Record
		p.same(got, want)
		if got.Age < want.Age {
			p.fatalf("Age went from %v to %v with a Complete", want.Age, got.Age)
		}
	}},

	{"complete-repeated", "", func(p *probe) {
		c := p.params()
		owner := p.done(c, "result")
		p.complete(owner, "result")
		_ = p.completeErr(owner, "another result")
		if got := p.record(c.ID).Result; string(got) != "result" {
			p.fatalf("a repeated Complete changed the Result to %q", got)
		}
	}},

	{"complete-repeated-keeps-retention", "", func(p *probe) {
		c := p.params()
		owner := p.acquire(c)
		brief := keystore.CompleteParams{Result: []byte("result"), Retention: 20 * short}
		p.ok("Complete", p.store.Complete(p.ctx, owner, brief))
		// Too late where the retention is over by now, and that is as good.
		_ = p.completeErr(owner, "result")
		p.untilGone(c.ID)
	}},

	{"complete-settles", "", func(p *probe) {
		c := p.params()
		owner := p.done(c, "result")
		p.is("Renew after Complete", p.renewErr(owner), keystore.ErrFenced)
		for _, how := range []keystore.How{keystore.Forget, keystore.Reject, keystore.Abandon} {
			p.is("Release "+how.String()+" after Complete", p.releaseErr(owner, how), keystore.ErrFenced)
		}
		p.claim(rival(c), keystore.Completed)
	}},

	{"retention-ends", "B149", func(p *probe) {
		c := p.params() // with a lease that outlasts the retention
		owner := p.acquire(c)
		p.ok("Complete", p.store.Complete(p.ctx, owner, keystore.CompleteParams{Retention: short}))
		p.untilGone(c.ID)
		p.acquire(rival(c))
	}},

	{"retention-is-not-the-lease", "B139", func(p *probe) {
		c := p.params()
		c.Begun, c.Lease, c.Keep = true, short, 0
		p.done(c, "result")
		p.passes(2 * short)
		p.claim(rival(c), keystore.Completed)
	}},

	{"retention-from-completion", "B148", func(p *probe) {
		// The record is older than the retention when it is completed. On a
		// slow server the retention may be over before the next look; a longer
		// one is not, unless it counts from the claim.
		for retention := 2 * short; ; retention *= 2 {
			c := p.params()
			owner := p.acquire(c)
			p.untilOlder(c.ID, retention+short)
			p.ok("Complete", p.store.Complete(p.ctx, owner, keystore.CompleteParams{Result: []byte("result"), Retention: retention}))
			if len(p.list(keystore.Query{ID: &c.ID})) == 1 {
				return
			}
			if retention > time.Second {
				p.fatalf("a record that was older than its retention of %v when it was completed had expired at once", retention)
			}
		}
	}},
}
