package keystoretest

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"testing"
	"time"

	"github.com/idem-go/idem/keystore"
)

const (
	// long is a time that does not end during a test.
	long = time.Hour
	// short is a time that is waited for.
	short = 20 * time.Millisecond
	// pollEvery is the pause between two looks.
	pollEvery = 2 * time.Millisecond
)

// patience is how long a test waits for what must happen.
var patience = 20 * time.Second

// Two fingerprints.
var (
	fingerprintA = [32]byte{0: 'a', 31: 1}
	fingerprintB = [32]byte{0: 'a', 31: 2}
)

// probe checks one rule on one store. Its methods end the test with the name
// of the rule when the store does something else than they say.
type probe struct {
	t     *testing.T
	rule  string
	ctx   context.Context
	store keystore.Store
	// scope is the scope of the probe's records.
	scope [32]byte
}

func newProbe(t *testing.T, rule string, store keystore.Store) *probe {
	return &probe{t: t, rule: rule, ctx: t.Context(), store: store, scope: random32()}
}

func random32() (b [32]byte) {
	rand.Read(b[:])
	return b
}

func randomNonce() (b [16]byte) {
	rand.Read(b[:])
	return b
}

// fatalf ends the test.
func (p *probe) fatalf(format string, args ...any) {
	p.t.Helper()
	p.t.Fatalf("rule %q: "+format, append([]any{p.rule}, args...)...)
}

// errorf fails the test; it may be called from any goroutine.
func (p *probe) errorf(format string, args ...any) {
	p.t.Helper()
	p.t.Errorf("rule %q: "+format, append([]any{p.rule}, args...)...)
}

// params are those of a claim to a new record.
func (p *probe) params() keystore.ClaimParams {
	return keystore.ClaimParams{
		ID: random32(), Scope: p.scope, Fingerprint: fingerprintA, Nonce: randomNonce(),
		Lease: long, Keep: long, Meta: []byte("meta"),
	}
}

// rival returns the parameters of another claim to the same record.
func rival(c keystore.ClaimParams) keystore.ClaimParams {
	c.Nonce = randomNonce()
	c.Lease = long
	c.Meta = []byte("rival's meta")
	return c
}

// claim claims and wants the status. It checks what holds for every answer.
func (p *probe) claim(c keystore.ClaimParams, want keystore.Status) keystore.Claim {
	p.t.Helper()
	got, err := p.store.Claim(p.ctx, c)
	if err != nil {
		p.fatalf("Claim failed: %v; want %v", err, want)
	}
	if got.Status != want {
		p.fatalf("Claim answered %v, want %v; record: %s", got.Status, want, describe(got.Record))
	}
	p.checkClaim(c, got)
	return got
}

// checkClaim checks that an answer is whole and agrees with itself.
func (p *probe) checkClaim(c keystore.ClaimParams, got keystore.Claim) {
	p.t.Helper()
	rec := got.Record
	wantOwner, wantState := keystore.Owner{}, keystore.Running
	switch got.Status {
	case keystore.Acquired:
		wantOwner = keystore.Owner{ID: c.ID, Nonce: c.Nonce, Token: rec.Token}
	case keystore.Completed:
		wantState = keystore.Done
	case keystore.Mismatch:
		wantState = rec.State // any
	}
	switch {
	case got.Owner != wantOwner:
		p.fatalf("a Claim answered %v has Owner %+v, want %+v", got.Status, got.Owner, wantOwner)
	case rec.ID != c.ID:
		p.fatalf("a Claim answered %v has a record of ID %x, want %x", got.Status, rec.ID, c.ID)
	case rec.State != wantState:
		p.fatalf("a Claim answered %v has a record that is %v, want %v", got.Status, rec.State, wantState)
	case rec.Token == 0:
		p.fatalf("a Claim answered %v has a record of token 0", got.Status)
	case rec.Age < 0:
		p.fatalf("a Claim answered %v has a record of Age %v", got.Status, rec.Age)
	case rec.State != keystore.Running && rec.LeaseLeft != 0:
		p.fatalf("a Claim answered %v has a record that is %v with LeaseLeft %v", got.Status, rec.State, rec.LeaseLeft)
	case got.Status != keystore.Completed && len(rec.Result) != 0:
		p.fatalf("a Claim answered %v gives away the Result %q", got.Status, rec.Result)
	case (rec.Fingerprint == c.Fingerprint) != (got.Status != keystore.Mismatch):
		p.fatalf("a Claim answered %v has a record of fingerprint %x, asked was %x", got.Status, rec.Fingerprint, c.Fingerprint)
	}
}

// acquire claims and wants to own the record.
func (p *probe) acquire(c keystore.ClaimParams) keystore.Owner {
	p.t.Helper()
	return p.claim(c, keystore.Acquired).Owner
}

// dead acquires the record and waits until the lease is dead.
func (p *probe) dead(c keystore.ClaimParams) keystore.Owner {
	p.t.Helper()
	c.Lease = short
	owner := p.acquire(c)
	p.untilDead(c.ID)
	return owner
}

// done acquires the record and completes it.
func (p *probe) done(c keystore.ClaimParams, result string) keystore.Owner {
	p.t.Helper()
	owner := p.acquire(c)
	p.complete(owner, result)
	return owner
}

func (p *probe) renew(o keystore.Owner, r keystore.RenewParams) {
	p.t.Helper()
	p.ok("Renew", p.store.Renew(p.ctx, o, r))
}

func (p *probe) complete(o keystore.Owner, result string) {
	p.t.Helper()
	p.ok("Complete", p.completeErr(o, result))
}

func (p *probe) release(o keystore.Owner, how keystore.How) {
	p.t.Helper()
	p.ok("Release "+how.String(), p.releaseErr(o, how))
}

func (p *probe) renewErr(o keystore.Owner) error {
	return p.store.Renew(p.ctx, o, keystore.RenewParams{Lease: long})
}

func (p *probe) completeErr(o keystore.Owner, result string) error {
	return p.store.Complete(p.ctx, o, keystore.CompleteParams{Result: []byte(result), Retention: long})
}

func (p *probe) releaseErr(o keystore.Owner, how keystore.How) error {
	return p.store.Release(p.ctx, o, keystore.ReleaseParams{How: how})
}

// ok wants success.
func (p *probe) ok(call string, err error) {
	p.t.Helper()
	if err != nil {
		p.fatalf("%s failed: %v; want success", call, err)
	}
}

// is wants the sentinel.
func (p *probe) is(call string, err, want error) {
	p.t.Helper()
	if !errors.Is(err, want) {
		p.fatalf("%s answered %v, want %v", call, err, want)
	}
}

// fenced wants ErrFenced for every call of the owner, and the record as it was.
func (p *probe) fenced(o keystore.Owner) {
	p.t.Helper()
	before := p.list(keystore.Query{ID: &o.ID})
	p.is("Renew", p.renewErr(o), keystore.ErrFenced)
	p.is("Complete", p.completeErr(o, "of a fenced owner"), keystore.ErrFenced)
	for _, how := range []keystore.How{keystore.Forget, keystore.Reject, keystore.Abandon} {
		p.is("Release "+how.String(), p.releaseErr(o, how), keystore.ErrFenced)
	}
	after := p.list(keystore.Query{ID: &o.ID})
	if len(before) != len(after) {
		p.fatalf("fenced calls changed the number of records from %d to %d", len(before), len(after))
	}
	for i := range before {
		p.same(after[i], before[i])
		if before[i].LeaseLeft > 0 && after[i].LeaseLeft <= 0 {
			p.fatalf("a fenced call ended the lease of the owner")
		}
	}
}

// list reads records.
func (p *probe) list(q keystore.Query) []keystore.Record {
	p.t.Helper()
	recs, err := p.store.Records(p.ctx, q)
	p.ok("Records", err)
	return recs
}

// record reads the record, which must exist.
func (p *probe) record(id [32]byte) keystore.Record {
	p.t.Helper()
	recs := p.list(keystore.Query{ID: &id})
	if len(recs) != 1 {
		p.fatalf("Records returned %d records of one ID, want 1", len(recs))
	}
	return recs[0]
}

// same wants two views of one record to differ in nothing but the time.
func (p *probe) same(got, want keystore.Record) {
	p.t.Helper()
	if !equalButTime(got, want) {
		p.fatalf("the record is\n\t%s\nwant\n\t%s", describe(got), describe(want))
	}
}

func equalButTime(a, b keystore.Record) bool {
	return a.ID == b.ID && a.Scope == b.Scope && a.Fingerprint == b.Fingerprint &&
		a.State == b.State && a.Token == b.Token && a.Generation == b.Generation && a.Begun == b.Begun &&
		bytes.Equal(a.Meta, b.Meta) && bytes.Equal(a.Result, b.Result)
}
