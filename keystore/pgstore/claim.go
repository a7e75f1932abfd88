package pgstore

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"hash/fnv"

	"github.com/idem-go/idem/keystore"
)

// answer is what the claim statement returns.
type answer struct {
	// granted: row is the caller's. Otherwise it is what was seen; without a
	// state there was nothing.
	granted bool
	// free is nil where what was seen is not claimable.
	free *bool
	row  row
}

// Claim implements keystore.Store. It takes one round trip, and further ones
// where another claim is faster. It waits no longer than another statement
// takes: a record that an unfinished transaction has claimed is InFlight, and
// its Record then is the one that this claim would have stored, because the
// other one can't be seen yet.
func (s *Store) Claim(ctx context.Context, p keystore.ClaimParams) (keystore.Claim, error) {
	if err := p.Validate(); err != nil {
		return keystore.Claim{}, err
	}
	for try := 0; ; try++ {
		a, err := s.askForClaim(ctx, p)
		if err != nil {
			return keystore.Claim{}, err
		}
		c, err := decide(p, a)
		if c.Status == 0 && err == nil {
			if err := pause(ctx, try); err != nil {
				return keystore.Claim{}, failed("claim", err)
			}
			continue
		}
		if c.Status == keystore.Acquired {
			s.changed(p.ID, c.Record.Token > 1)
		}
		return c, err
	}
}

func (s *Store) askForClaim(ctx context.Context, p keystore.ClaimParams) (a answer, err error) {
	if s.tx != nil {
		return s.askInTx(ctx, p)
	}
	if !s.batches {
		return s.claimAlone(ctx, p)
	}
	return s.claims.Do(ctx, p.ID, len(p.Meta), p)
}

// claimAlone runs the statement of one claim.
func (s *Store) claimAlone(ctx context.Context, p keystore.ClaimParams) (a answer, err error) {
	err = s.call(ctx, "claim", func(q querier) error {
		a, err = s.ask(ctx, q, s.sql.claim, p)
		return err
	})
	return a, err
}

// ask runs the claim statement.
func (s *Store) ask(ctx context.Context, q querier, sql string, p keystore.ClaimParams) (a answer, err error) {
	meta := p.Meta
	if meta == nil {
		meta = []byte{}
	}
	a.row.id = p.ID[:]
	err = q.QueryRow(ctx, sql, s.args(p.ID[:], p.Scope[:], p.Fingerprint[:], p.Nonce[:], micros(p.Lease), micros(p.Keep),
		p.Begun, p.Takeover, meta, s.advisoryLock(p.ID))...).Scan(append([]any{&a.granted, &a.free}, a.row.columns()...)...)
	return a, err
}

// advisoryLock returns the number of the lock that tells of a claim which is
// not committed yet. Two records may share a number: then one of them is
// InFlight, briefly, when it is not.
func (s *Store) advisoryLock(id [32]byte) int64 {
	h := fnv.New64a()
	h.Write([]byte(s.cfg.Table))
	n := h.Sum64()
	for i := 0; i < len(id); i += 8 {
		n ^= binary.BigEndian.Uint64(id[i:])
	}
	return int64(n)
}

// decide returns what the answer means for the claim. The zero Claim means that
// another one was faster: ask again.
func decide(p keystore.ClaimParams, a answer) (keystore.Claim, error) {
	claimable := a.free != nil
	if claimable && !a.granted {
		if *a.free {
			return keystore.Claim{}, nil
		}
		return keystore.Claim{Status: keystore.InFlight, Record: unseen(p, a.row)}, nil
	}
	rec, err := a.row.record()
	if err != nil {
		return keystore.Claim{}, err
	}
	same := bytes.Equal(a.row.nonce, p.Nonce[:])
	var status keystore.Status
	switch {
	case a.granted:
		return keystore.Claim{
			Status: keystore.Acquired,
			Owner:  keystore.Owner{ID: p.ID, Nonce: p.Nonce, Token: rec.Token},
			Record: rec,
		}, nil
	case rec.State == keystore.Free && same:
		return keystore.Claim{}, fmt.Errorf("%w: this claim was released before", keystore.ErrFenced)
	case rec.Fingerprint != p.Fingerprint:
		status = keystore.Mismatch
	case rec.State == keystore.Done:
		status = keystore.Completed
	case rec.LeaseLeft > 0:
		status = keystore.InFlight
	case rec.Begun:
		status = keystore.Unresolved
	}
	return keystore.Claim{Status: status, Record: rec}, nil
}

// unseen returns the record of a claim that another transaction has not
// committed yet: what p would have made of the row.
func unseen(p keystore.ClaimParams, r row) keystore.Record {
	rec := keystore.Record{
		ID: p.ID, Scope: p.Scope, Fingerprint: p.Fingerprint, State: keystore.Running,
		Token: uint64(r.token) + 1, Begun: p.Begun, LeaseLeft: p.Lease, Meta: bytes.Clone(p.Meta),
	}
	if r.state == int16(keystore.Free) || r.state == int16(keystore.Running) {
		rec.Generation = uint32(r.generation)
		if len(r.meta) > 0 {
			rec.Meta = r.meta
		}
	}
	return rec
}
