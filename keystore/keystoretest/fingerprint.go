package keystoretest

import (
	"github.com/idem-go/idem/keystore"
)

// fingerprintRules: another fingerprint is a Mismatch on every path, is told
// nothing of the result, and changes nothing.
var fingerprintRules = []rule{
	{"mismatch-in-flight", "B126", func(p *probe) {
		for _, begun := range []bool{false, true} {
			c := p.params()
			c.Begun = begun
			p.acquire(c)
			p.mismatch(c)
		}
	}},
	{"mismatch-completed", "B126 B127", func(p *probe) {
		c := p.params()
		p.done(c, "result")
		p.mismatch(c)
	}},
	{"mismatch-dead-not-begun", "B126", func(p *probe) {
		c := p.params()
		p.dead(c)
		p.mismatch(c)
	}},
	{"mismatch-dead-begun", "B126", func(p *probe) {
		c := p.params()
		c.Begun = true
		p.dead(c)
		p.mismatch(c)
	}},
	{"mismatch-abandoned", "B126", func(p *probe) {
		c := p.params()
		c.Begun = true
		p.release(p.acquire(c), keystore.Abandon)
		p.mismatch(c)
	}},
	{"mismatch-after-takeover", "B126", func(p *probe) {
		c := p.params()
		c.Begun = true
		p.dead(c)
		r := rival(c)
		r.Takeover = true
		p.acquire(r)
		p.mismatch(r)
	}},
	{"mismatch-after-dead-claim", "B126", func(p *probe) {
		c := p.params()
		p.dead(c)
		r := rival(c)
		p.acquire(r)
		p.mismatch(r)
	}},
}

// mismatch claims the record of c with another fingerprint, with and without
// Takeover, with another nonce and the same.
func (p *probe) mismatch(c keystore.ClaimParams) {
	p.t.Helper()
	before := p.record(c.ID)
	for _, takeover := range []bool{false, true} {
		for _, nonce := range [][16]byte{c.Nonce, randomNonce()} {
			r := rival(c)
			r.Fingerprint, r.Takeover, r.Nonce = fingerprintB, takeover, nonce
			got := p.claim(r, keystore.Mismatch).Record
			want := before
			want.Result = nil
			p.same(got, want)
		}
	}
	after := p.record(c.ID)
	p.same(after, before)
	if before.LeaseLeft <= 0 && after.LeaseLeft > 0 {
		p.fatalf("a mismatched Claim renewed the lease")
	}
}
