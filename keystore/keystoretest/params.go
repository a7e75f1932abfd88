package keystoretest

import (
	"github.com/idem-go/idem/keystore"
)

// paramsRules: what breaks the contract is refused and changes nothing.
var paramsRules = []rule{
	{"claim-params", "B140", func(p *probe) {
		tooMuch := make([]byte, keystore.MaxMeta+1)
		for _, bad := range []struct {
			what  string
			spoil func(*keystore.ClaimParams)
			want  error
		}{
			{"a zero Nonce", func(c *keystore.ClaimParams) { c.Nonce = [16]byte{} }, keystore.ErrInvalid},
			{"a zero Lease", func(c *keystore.ClaimParams) { c.Lease = 0 }, keystore.ErrInvalid},
			{"a negative Lease", func(c *keystore.ClaimParams) { c.Lease = -1 }, keystore.ErrInvalid},
			{"a negative Keep", func(c *keystore.ClaimParams) { c.Keep = -1 }, keystore.ErrInvalid},
			{"a Meta over MaxMeta", func(c *keystore.ClaimParams) { c.Meta = tooMuch }, keystore.ErrTooLarge},
		} {
			c := p.params()
			bad.spoil(&c)
			_, err := p.store.Claim(p.ctx, c)
			p.is("Claim with "+bad.what, err, bad.want)
			if n := len(p.list(keystore.Query{ID: &c.ID})); n != 0 {
				p.fatalf("Claim with %s was refused, but stored %d records", bad.what, n)
			}
		}
	}},

	{"renew-params", "B140", func(p *probe) {
		owner := p.acquire(p.params())
		for _, bad := range []struct {
			what  string
			renew keystore.RenewParams
			want  error
		}{
			{"a zero Lease", keystore.RenewParams{Begun: true}, keystore.ErrInvalid},
			{"a negative Lease", keystore.RenewParams{Lease: -1, Begun: true}, keystore.ErrInvalid},
			{"a Meta over MaxMeta", keystore.RenewParams{Lease: short, Begun: true, Meta: make([]byte, keystore.MaxMeta+1)}, keystore.ErrTooLarge},
		} {
			p.refused(owner, "Renew with "+bad.what, bad.want, func() error { return p.store.Renew(p.ctx, owner, bad.renew) })
		}
	}},

	{"complete-params", "B140", func(p *probe) {
		owner := p.acquire(p.params())
		for _, retention := range []keystore.CompleteParams{{}, {Retention: -1}} {
			p.refused(owner, "Complete with Retention "+retention.Retention.String(), keystore.ErrInvalid,
				func() error { return p.store.Complete(p.ctx, owner, retention) })
		}
	}},

	{"release-params", "", func(p *probe) {
		owner := p.acquire(p.params())
		for _, how := range []keystore.How{0, keystore.Abandon + 1, 255} {
			p.refused(owner, "Release with "+how.String(), keystore.ErrInvalid,
				func() error { return p.releaseErr(owner, how) })
		}
		for _, how := range []keystore.How{keystore.Forget, keystore.Reject, keystore.Abandon} {
			p.refused(owner, "Release with a Meta over MaxMeta", keystore.ErrTooLarge, func() error {
				return p.store.Release(p.ctx, owner, keystore.ReleaseParams{How: how, Meta: make([]byte, keystore.MaxMeta+1)})
			})
		}
	}},

	{"records-params", "", func(p *probe) {
		_, err := p.store.Records(p.ctx, keystore.Query{Limit: -1})
		p.is("Records with a negative Limit", err, keystore.ErrInvalid)
	}},

	{"purge-params", "", func(p *probe) {
		for _, limit := range []int{0, -1} {
			_, err := p.store.Purge(p.ctx, limit)
			p.is("Purge with a limit below 1", err, keystore.ErrInvalid)
		}
	}},
}

// refused wants the call to fail and the owner's record to stay as it was.
func (p *probe) refused(o keystore.Owner, what string, want error, call func() error) {
	p.t.Helper()
	before := p.record(o.ID)
	p.is(what, call(), want)
	after := p.record(o.ID)
	p.same(after, before)
	if after.LeaseLeft <= 0 {
		p.fatalf("%s was refused, but ended the lease", what)
	}
}
