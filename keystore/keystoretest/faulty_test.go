package keystoretest

import (
	"context"
	"sync"
	"time"

	"github.com/idem-go/idem/keystore"
	"github.com/idem-go/idem/keystore/memstore"
)

// faulty is a sound store of which single methods can be replaced.
type faulty struct {
	*memstore.Store
	claim    func(keystore.ClaimParams) (keystore.Claim, error)
	renew    func(keystore.Owner, keystore.RenewParams) error
	complete func(keystore.Owner, keystore.CompleteParams) error
	release  func(keystore.Owner, keystore.ReleaseParams) error
	records  func(keystore.Query) ([]keystore.Record, error)
	purge    func(limit int) (int, error)
	watch    func(id [32]byte) (<-chan struct{}, func())

	mu     sync.Mutex
	owners map[[32]byte]keystore.Owner // the latest owner of each record
}

func newFaulty(breakIt func(*faulty)) *faulty {
	sound, err := memstore.New(memstore.Config{})
	if err != nil {
		panic(err)
	}
	f := &faulty{Store: sound, owners: make(map[[32]byte]keystore.Owner)}
	f.claim = func(p keystore.ClaimParams) (keystore.Claim, error) { return f.Store.Claim(context.Background(), p) }
	f.renew = func(o keystore.Owner, p keystore.RenewParams) error {
		return f.Store.Renew(context.Background(), o, p)
	}
	f.complete = func(o keystore.Owner, p keystore.CompleteParams) error {
		return f.Store.Complete(context.Background(), o, p)
	}
	f.release = func(o keystore.Owner, p keystore.ReleaseParams) error {
		return f.Store.Release(context.Background(), o, p)
	}
	f.records = func(q keystore.Query) ([]keystore.Record, error) { return f.Store.Records(context.Background(), q) }
	f.purge = func(limit int) (int, error) { return f.Store.Purge(context.Background(), limit) }
	f.watch = f.Store.Watch
	if breakIt != nil {
		breakIt(f)
	}
	return f
}

func (f *faulty) Claim(_ context.Context, p keystore.ClaimParams) (keystore.Claim, error) {
	c, err := f.claim(p)
	if c.Status == keystore.Acquired {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.owners[p.ID] = c.Owner
	}
	return c, err
}

func (f *faulty) Renew(_ context.Context, o keystore.Owner, p keystore.RenewParams) error {
	return f.renew(o, p)
}

func (f *faulty) Complete(_ context.Context, o keystore.Owner, p keystore.CompleteParams) error {
	return f.complete(o, p)
}

func (f *faulty) Release(_ context.Context, o keystore.Owner, p keystore.ReleaseParams) error {
	return f.release(o, p)
}

func (f *faulty) Records(_ context.Context, q keystore.Query) ([]keystore.Record, error) {
	return f.records(q)
}

func (f *faulty) Purge(_ context.Context, limit int) (int, error) { return f.purge(limit) }

func (f *faulty) Watch(id [32]byte) (<-chan struct{}, func()) { return f.watch(id) }

// owner returns the latest owner of the record, for faults that act for it.
func (f *faulty) owner(id [32]byte) keystore.Owner {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.owners[id]
}

// stored returns the record as the sound store has it.
func (f *faulty) stored(id [32]byte) (rec keystore.Record, ok bool) {
	recs, err := f.Store.Records(context.Background(), keystore.Query{ID: &id})
	if err != nil || len(recs) == 0 {
		return keystore.Record{}, false
	}
	return recs[0], true
}

// take acquires the record whatever its state.
func (f *faulty) take(rec keystore.Record) (keystore.Claim, error) {
	if o := f.owner(rec.ID); rec.State == keystore.Running {
		_ = f.Store.Release(context.Background(), o, keystore.ReleaseParams{How: keystore.Abandon})
	}
	return f.Store.Claim(context.Background(), keystore.ClaimParams{
		ID: rec.ID, Scope: rec.Scope, Fingerprint: rec.Fingerprint, Nonce: randomNonce(),
		Lease: time.Hour, Keep: time.Hour, Takeover: true,
	})
}
