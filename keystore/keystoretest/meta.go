package keystoretest

import (
	"github.com/idem-go/idem/keystore"
)

// metaRules: the first claim's Meta stays until the owner replaces it or the
// intent is rejected.
var metaRules = []rule{
	{"meta-survives-claims", "", func(p *probe) {
		c := p.params()
		p.acquire(c)
		again := c
		again.Meta = []byte("of the repeated claim")
		p.metaOf(p.claim(again, keystore.Acquired), "meta")
		p.metaOf(p.claim(rival(c), keystore.InFlight), "meta")
	}},

	{"meta-survives-takeover", "", func(p *probe) {
		c := p.params()
		p.dead(c)
		r := rival(c)
		r.Begun, r.Lease = true, short
		p.metaOf(p.claim(r, keystore.Acquired), "meta")
		p.untilDead(c.ID)
		p.metaOf(p.claim(rival(c), keystore.Unresolved), "meta")
		r = rival(c)
		r.Takeover = true
		p.metaOf(p.claim(r, keystore.Acquired), "meta")
		p.metaIs(c.ID, "meta")
	}},

	{"meta-survives-forget", "", func(p *probe) {
		c := p.params()
		p.release(p.acquire(c), keystore.Forget)
		p.metaIs(c.ID, "meta")
		p.metaOf(p.claim(rival(c), keystore.Acquired), "meta")
	}},

	{"meta-survives-complete", "", func(p *probe) {
		c := p.params()
		p.done(c, "result")
		p.metaOf(p.claim(rival(c), keystore.Completed), "meta")
	}},

	{"reject-clears-meta", "", func(p *probe) {
		c := p.params()
		p.release(p.acquire(c), keystore.Reject)
		p.metaIs(c.ID, "")
		p.metaOf(p.claim(rival(c), keystore.Acquired), "rival's meta")
	}},

	{"release-replaces-meta", "", func(p *probe) {
		for _, how := range []keystore.How{keystore.Forget, keystore.Reject, keystore.Abandon} {
			c := p.params()
			owner := p.acquire(c)
			release := keystore.ReleaseParams{How: how, Meta: []byte("new meta")}
			p.ok("Release "+how.String(), p.store.Release(p.ctx, owner, release))
			p.metaIs(c.ID, "new meta")
			p.metaOf(p.claim(rival(c), keystore.Acquired), "new meta")
		}
	}},

	{"abandon-keeps-meta", "", func(p *probe) {
		c := p.params()
		p.release(p.acquire(c), keystore.Abandon)
		p.metaIs(c.ID, "meta")
	}},

	{"meta-fills-a-gap", "", func(p *probe) {
		c := p.params()
		c.Meta = nil
		owner := p.acquire(c)
		p.metaIs(c.ID, "")
		p.release(owner, keystore.Abandon)
		p.metaOf(p.claim(rival(c), keystore.Acquired), "rival's meta")
		p.metaIs(c.ID, "rival's meta")
	}},
}

// metaOf wants the Meta in the answer to a claim.
func (p *probe) metaOf(got keystore.Claim, want string) {
	p.t.Helper()
	if string(got.Record.Meta) != want {
		p.fatalf("a Claim answered %v has the Meta %q, want %q", got.Status, got.Record.Meta, want)
	}
}

// metaIs wants the Meta in the store.
func (p *probe) metaIs(id [32]byte, want string) {
	p.t.Helper()
	if got := p.record(id).Meta; string(got) != want {
		p.fatalf("the stored Meta is %q, want %q", got, want)
	}
}
