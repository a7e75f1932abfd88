package keystoretest

import (
	"fmt"
	"time"

	"github.com/idem-go/idem/keystore"
)

// eventually waits until the condition holds.
func (p *probe) eventually(what string, holds func() bool) {
	p.t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-deadline.C:
			p.fatalf("%s did not happen within %v", what, patience)
		}
	}
}

// untilDead waits until the lease of the record has run out.
func (p *probe) untilDead(id [32]byte) {
	p.t.Helper()
	p.eventually("the end of the lease", func() bool { return p.record(id).LeaseLeft <= 0 })
}

// untilGone waits until the record has expired.
func (p *probe) untilGone(id [32]byte) {
	p.t.Helper()
	p.eventually("the end of the retention", func() bool { return len(p.list(keystore.Query{ID: &id})) == 0 })
}

// untilOlder waits until the record's Age is at least that, and returns it.
func (p *probe) untilOlder(id [32]byte, age time.Duration) (got time.Duration) {
	p.t.Helper()
	p.eventually("the ageing of the record", func() bool {
		got = p.record(id).Age
		return got >= age
	})
	return got
}

// passes waits until so much time has passed by the store's clock, of which
// the lease of another record tells.
func (p *probe) passes(d time.Duration) {
	p.t.Helper()
	c := p.params()
	c.Scope, c.Lease = random32(), d
	p.acquire(c)
	p.untilDead(c.ID)
}

// describe prints a record for a failure, without flooding it.
func describe(r keystore.Record) string {
	const most = 40
	return fmt.Sprintf("%v id %x… token %d generation %d begun %t age %v lease left %v meta %.*q (%d bytes) result %.*q (%d bytes)",
		r.State, r.ID[:4], r.Token, r.Generation, r.Begun, r.Age, r.LeaseLeft,
		most, r.Meta, len(r.Meta), most, r.Result, len(r.Result))
}
