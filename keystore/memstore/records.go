package memstore

import (
	"bytes"
	"context"
	"slices"
	"time"

	"github.com/idem-go/idem/keystore"
)

// Records implements keystore.Store. Without Query.ID it looks at every record
// of each shard that it visits, one shard at a time: what it returns of one
// shard was true at one moment.
func (s *Store) Records(ctx context.Context, q keystore.Query) ([]keystore.Record, error) {
	if err := q.Validate(); err != nil {
		return nil, err
	}
	limit := q.Limit
	if limit == 0 {
		limit = keystore.DefaultLimit
	}
	from, to := shardIndex(q.After), len(s.shards)
	if q.ID != nil {
		from = shardIndex(*q.ID)
		to = from + 1
	}
	var recs []keystore.Record
	for i := from; i < to && len(recs) < limit; i++ {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		recs = append(recs, s.shards[i].records(q, limit-len(recs))...)
	}
	return recs, nil
}

// records returns the first limit records of the shard that q selects.
func (sh *shard) records(q keystore.Query, limit int) []keystore.Record {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	now := time.Now()

	var found []*row
	if q.ID != nil {
		if r := sh.rows[*q.ID]; r != nil && r.selected(q, now) {
			found = append(found, r)
		}
	} else {
		for _, r := range sh.rows {
			if r.selected(q, now) {
				found = append(found, r)
			}
		}
		slices.SortFunc(found, func(a, b *row) int { return bytes.Compare(a.id[:], b.id[:]) })
	}
	found = found[:min(len(found), limit)]

	recs := make([]keystore.Record, len(found))
	for i, r := range found {
		recs[i] = r.fullView(now)
	}
	return recs
}

// selected tells whether q selects the record. Its ID was looked up already.
func (r *row) selected(q keystore.Query, now time.Time) bool {
	switch {
	case r.outlived(now),
		bytes.Compare(r.id[:], q.After[:]) <= 0 && q.After != [32]byte{},
		q.Scope != nil && r.scope != *q.Scope,
		q.Unresolved && !(r.state == keystore.Running && r.begun && !r.alive(now)):
		return false
	}
	return true
}
