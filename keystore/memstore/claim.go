package memstore

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/idem-go/idem/keystore"
)

// Claim implements keystore.Store.
func (s *Store) Claim(ctx context.Context, p keystore.ClaimParams) (keystore.Claim, error) {
	if err := p.Validate(); err != nil {
		return keystore.Claim{}, err
	}
	if err := ctx.Err(); err != nil {
		return keystore.Claim{}, err
	}
	for {
		c, err := s.claim(&p)
		if !s.madeRoom(err) {
			return c, err
		}
	}
}

func (s *Store) claim(p *keystore.ClaimParams) (keystore.Claim, error) {
	sh := s.lock(p.ID)
	defer sh.mu.Unlock()
	now := time.Now()

	r := sh.live(p.ID, now)
	switch {
	case r != nil && r.state == keystore.Free && r.nonce == p.Nonce:
		return keystore.Claim{}, fmt.Errorf("%w: this claim was released before", keystore.ErrFenced)
	case r == nil || r.state == keystore.Free:
		// Acquired, whatever the fingerprint.
	case r.fingerprint != p.Fingerprint:
		return keystore.Claim{Status: keystore.Mismatch, Record: r.view(now)}, nil
	case r.state == keystore.Done:
		return keystore.Claim{Status: keystore.Completed, Record: r.fullView(now)}, nil
	case r.nonce == p.Nonce:
		// Acquired before, by this very claim.
	case r.alive(now):
		return keystore.Claim{Status: keystore.InFlight, Record: r.view(now)}, nil
	case r.begun && !p.Takeover:
		return keystore.Claim{Status: keystore.Unresolved, Record: r.view(now)}, nil
	}
	fresh := r == nil
	r, err := sh.grant(r, p, now)
	if err != nil {
		return keystore.Claim{}, err
	}
	// Last, so that the claim found its own record, however old.
	sh.removeExpired(now, removedPerClaim)
	c := keystore.Claim{
		Status: keystore.Acquired,
		Owner:  keystore.Owner{ID: r.id, Nonce: r.nonce, Token: r.token},
		Record: r.bare(now),
	}
	if c.Record.Meta = p.Meta; !fresh {
		c.Record.Meta = bytes.Clone(r.meta)
	}
	return c, nil
}

// grant makes the claim the owner of r, or of a new record where r is nil. It
// fails only before it has changed anything that is still needed.
func (sh *shard) grant(r *row, p *keystore.ClaimParams, now time.Time) (*row, error) {
	switch {
	case r == nil:
		var err error
		if r, err = sh.insert(p); err != nil {
			return nil, err
		}
	case len(r.meta) == 0:
		if err := sh.store.replace(&r.meta, p.Meta); err != nil {
			return nil, err
		}
	}
	first := r.state != keystore.Running
	if first {
		r.state = keystore.Running
		r.since = now
		r.scope, r.fingerprint = p.Scope, p.Fingerprint
	}
	if first || r.nonce != p.Nonce {
		sh.lastToken++
		r.token, r.nonce = sh.lastToken, p.Nonce
		sh.wake(r.id)
	}
	r.begun = r.begun || p.Begun
	r.keep = p.Keep
	r.until = now.Add(p.Lease)
	sh.schedule(r)
	return r, nil
}

// insert adds a record that grant fills in.
func (sh *shard) insert(p *keystore.ClaimParams) (*row, error) {
	if old := sh.rows[p.ID]; old != nil {
		sh.remove(old) // its retention is over
	}
	if err := sh.store.add(len(p.Meta)); err != nil {
		return nil, err
	}
	r := &row{id: p.ID, meta: bytes.Clone(p.Meta), heapIndex: -1}
	sh.rows[p.ID] = r
	sh.peak = max(sh.peak, len(sh.rows))
	return r, nil
}
