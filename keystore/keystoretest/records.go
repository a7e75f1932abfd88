package keystoretest

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/idem-go/idem/keystore"
)

// recordsRules: what Records selects, in which order, page by page.
var recordsRules = []rule{
	{"records-none", "", func(p *probe) {
		unknown := random32()
		for _, q := range []keystore.Query{{ID: &unknown}, {Scope: &unknown}, {ID: &unknown, Scope: &unknown}} {
			if recs := p.list(q); len(recs) != 0 {
				p.fatalf("Records returned %d records where there are none", len(recs))
			}
		}
	}},

	{"records-scope", "", func(p *probe) {
		ids := p.family(3)
		stranger := p.params()
		stranger.Scope[31]++
		p.acquire(stranger)
		p.listed(keystore.Query{Scope: &p.scope}, ids)
		p.listed(keystore.Query{Scope: &p.scope, ID: &ids[1]}, ids[1:2])
		p.listed(keystore.Query{Scope: &p.scope, ID: &stranger.ID}, nil)
		p.listed(keystore.Query{Scope: &stranger.Scope}, [][32]byte{stranger.ID})
	}},

	{"records-result", "", func(p *probe) {
		c := p.params()
		p.done(c, "result")
		for _, q := range []keystore.Query{{ID: &c.ID}, {Scope: &c.Scope}} {
			if recs := p.list(q); len(recs) != 1 || string(recs[0].Result) != "result" {
				p.fatalf("Records of a Done record: %d records, want 1 with its Result", len(recs))
			}
		}
	}},

	{"records-unresolved", "", func(p *probe) {
		begun := func() keystore.ClaimParams {
			c := p.params()
			c.Begun = true
			return c
		}
		p.acquire(begun())        // alive
		p.done(begun(), "result") // settled
		p.dead(p.params())        // not begun
		p.release(p.acquire(begun()), keystore.Reject)
		expired, abandoned := begun(), begun()
		p.dead(expired)
		p.release(p.acquire(abandoned), keystore.Abandon)

		want := sorted(expired.ID, abandoned.ID)
		p.listed(keystore.Query{Scope: &p.scope, Unresolved: true}, want)
		p.listed(keystore.Query{Scope: &p.scope, Unresolved: true, Limit: 1}, want[:1])
		p.listed(keystore.Query{Scope: &p.scope, Unresolved: true, After: want[0]}, want[1:])
		p.listed(keystore.Query{ID: &expired.ID, Unresolved: true}, [][32]byte{expired.ID})
		if n := len(p.list(keystore.Query{Scope: &p.scope})); n != 6 {
			p.fatalf("Records returned %d records of the scope, want all 6", n)
		}
	}},

	{"records-expired", "", func(p *probe) {
		c := p.params()
		owner := p.acquire(c)
		p.ok("Complete", p.store.Complete(p.ctx, owner, keystore.CompleteParams{Result: []byte("result"), Retention: short}))
		p.eventually("the end of the retention", func() bool { return len(p.list(keystore.Query{Scope: &c.Scope})) == 0 })
		p.listed(keystore.Query{ID: &c.ID}, nil)
	}},

	{"records-claim-nothing", "", func(p *probe) {
		c := p.params()
		owner := p.acquire(c)
		before := p.record(c.ID)
		p.same(p.record(c.ID), before)
		p.complete(owner, "result")
	}},

	{"records-order", "", func(p *probe) {
		ids := p.family(8)
		p.listed(keystore.Query{Scope: &p.scope}, ids)
		p.listed(keystore.Query{After: before(ids[0]), Limit: 8}, ids)
	}},

	{"records-pages", "", func(p *probe) {
		ids := p.family(8)
		for _, scope := range []*[32]byte{&p.scope, nil} {
			for i := range ids {
				q := keystore.Query{Scope: scope, After: before(ids[0]), Limit: 3}
				if i > 0 {
					q.After = ids[i-1]
				}
				end := min(i+3, len(ids))
				got := p.list(q)
				if scope == nil { // what follows our last ID is not ours
					got = got[:min(len(got), end-i)]
				}
				p.idsAre(got, ids[i:end])
			}
		}
		p.listed(keystore.Query{Scope: &p.scope, After: ids[7]}, nil)
		p.listed(keystore.Query{ID: &ids[3], After: ids[2]}, ids[3:4])
		p.listed(keystore.Query{ID: &ids[3], After: ids[3]}, nil)
	}},

	{"records-default-limit", "", func(p *probe) {
		ids := p.family(keystore.DefaultLimit + 1)
		p.listed(keystore.Query{Scope: &p.scope}, ids[:keystore.DefaultLimit])
		p.listed(keystore.Query{Scope: &p.scope, After: ids[keystore.DefaultLimit-1]}, ids[keystore.DefaultLimit:])
		p.listed(keystore.Query{Scope: &p.scope, Limit: len(ids)}, ids)
	}},
}

// family claims n records of the probe's scope and returns their IDs in order.
// They are neighbours: no other record's ID lies between them. Every second
// one differs from the one before in a byte's highest bit, which a store that
// compares signed bytes or text gets wrong.
func (p *probe) family(n int) [][32]byte {
	p.t.Helper()
	first := random32()
	first[0] |= 1 // leaves room before the first
	ids := make([][32]byte, n)
	for i := range ids {
		ids[i] = first
		binary.BigEndian.PutUint32(ids[i][28:], uint32(i/2)<<16|uint32(i%2)<<7|1)
	}
	for _, i := range mixed(n) {
		c := p.params()
		c.ID = ids[i]
		p.acquire(c)
	}
	return ids
}

// mixed returns the numbers below n, out of order.
func mixed(n int) []int {
	order := make([]int, 0, n)
	for i := range n {
		if i%2 == 0 {
			order = append(order, i)
		} else {
			order = slices.Insert(order, 0, i)
		}
	}
	return order
}

// before returns the ID just before id.
func before(id [32]byte) [32]byte {
	id[31]--
	return id
}

func sorted(ids ...[32]byte) [][32]byte {
	slices.SortFunc(ids, func(a, b [32]byte) int { return slices.Compare(a[:], b[:]) })
	return ids
}

// listed wants the query to select these IDs in this order.
func (p *probe) listed(q keystore.Query, want [][32]byte) {
	p.t.Helper()
	p.idsAre(p.list(q), want)
}

func (p *probe) idsAre(recs []keystore.Record, want [][32]byte) {
	p.t.Helper()
	got := make([][32]byte, len(recs))
	for i, rec := range recs {
		got[i] = rec.ID
	}
	if !slices.Equal(got, want) {
		p.fatalf("Records returned\n\t%s\nwant\n\t%s", ends(got), ends(want))
	}
}

// ends prints the last bytes of some IDs.
func ends(ids [][32]byte) string {
	const most = 12
	var out string
	for _, id := range ids[:min(len(ids), most)] {
		out += fmt.Sprintf("…%x ", id[28:])
	}
	return fmt.Sprintf("%s(%d records)", out, len(ids))
}
