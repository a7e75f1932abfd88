package keystoretest

import (
	"github.com/idem-go/idem/keystore"
)

// purgeRules: what Purge removes, and what it must not. A store whose records
// end by themselves has nothing to remove; that is as good.
var purgeRules = []rule{
	{"purge-keeps-needed", "B092", func(p *probe) {
		begun := func() keystore.ClaimParams {
			c := p.params()
			c.Begun, c.Keep = true, 0 // Keep is for records that have not begun
			return c
		}
		kept := map[string]keystore.ClaimParams{
			"alive": begun(), "unresolved": begun(), "abandoned": begun(), "done": begun(),
			"alive, not begun": p.params(), "dead, not begun": p.params(), "free": p.params(),
		}
		for name, c := range kept {
			switch name {
			case "unresolved", "dead, not begun":
				p.dead(c)
			case "abandoned":
				p.release(p.acquire(c), keystore.Abandon)
			case "done":
				p.done(c, "result")
			case "free":
				p.release(p.acquire(c), keystore.Reject)
			default:
				p.acquire(c)
			}
		}
		before := map[string]keystore.Record{}
		for name, c := range kept {
			before[name] = p.record(c.ID)
		}
		p.purgeAll()
		for name, c := range kept {
			recs := p.list(keystore.Query{ID: &c.ID})
			if len(recs) != 1 {
				p.fatalf("Purge removed a record that is needed: %s", name)
			}
			p.same(recs[0], before[name])
		}
	}},

	{"purge-free", "B100", func(p *probe) {
		c := p.params()
		c.Keep = short
		p.release(p.acquire(c), keystore.Reject)
		p.purgedInTheEnd(c)
	}},

	{"purge-dead-not-begun", "B100", func(p *probe) {
		c := p.params()
		c.Lease, c.Keep = short, short
		owner := p.acquire(c)
		p.purgedInTheEnd(c)
		p.fenced(owner)
	}},

	{"purge-done", "B100", func(p *probe) {
		c := p.params()
		p.release(p.acquire(c), keystore.Reject)
		owner := p.acquire(rival(c))
		p.ok("Complete", p.store.Complete(p.ctx, owner, keystore.CompleteParams{Result: []byte("result"), Retention: short}))
		p.untilGone(c.ID)
		p.purgedInTheEnd(c)
		p.fenced(owner)
	}},

	{"purge-limit", "", func(p *probe) {
		var owners []keystore.Owner
		first := random32()
		for i := range 5 {
			c := p.params()
			c.ID, c.Keep = first, 0
			c.ID[31] ^= byte(i) // neighbours, which a sharded store keeps together
			owners = append(owners, p.acquire(c))
		}
		for _, owner := range owners {
			p.release(owner, keystore.Forget)
		}
		const limit = 2
		left := func() int { return len(p.list(keystore.Query{Scope: &p.scope})) }
		p.eventually("the removal of all Free records", func() bool {
			before := left()
			n, err := p.store.Purge(p.ctx, limit)
			p.ok("Purge", err)
			if n < 0 || n > limit {
				p.fatalf("Purge with limit %d says that it removed %d records", limit, n)
			}
			after := left()
			if removed := before - after; removed > limit {
				p.fatalf("Purge with limit %d removed %d records", limit, removed)
			}
			return after == 0
		})
	}},
}

// purgeAll purges until there is nothing left to purge.
func (p *probe) purgeAll() {
	p.t.Helper()
	const limit = 1000
	p.eventually("the end of purging", func() bool {
		n, err := p.store.Purge(p.ctx, limit)
		p.ok("Purge", err)
		return n < limit
	})
}

// purgedInTheEnd wants the record to be gone once its Keep is over, and a
// claim to find nothing of it.
func (p *probe) purgedInTheEnd(c keystore.ClaimParams) {
	p.t.Helper()
	p.eventually("the removal of the record by Purge", func() bool {
		p.purgeAll()
		return len(p.list(keystore.Query{ID: &c.ID})) == 0
	})
	r := rival(c)
	r.Fingerprint = fingerprintB
	got := p.claim(r, keystore.Acquired)
	p.metaOf(got, string(r.Meta))
	if got.Record.Generation != 0 {
		p.fatalf("the generation is %d after Purge removed the record, want 0", got.Record.Generation)
	}
}
