package redisstore

import (
	"bytes"
	"slices"
	"sync"

	"github.com/idem-go/idem/keystore"
)

// page collects the records with the lowest IDs that a query selects, however
// they come: from several nodes at once, in any order, some of them twice.
type page struct {
	query keystore.Query
	limit int

	mu      sync.Mutex
	entries []entry // in the order of their IDs, no more than limit
}

// entry is a record, or why it can't be read.
type entry struct {
	id  [32]byte
	rec keystore.Record
	err error
}

func newPage(q keystore.Query) *page {
	p := &page{query: q, limit: q.Limit}
	if p.limit == 0 {
		p.limit = keystore.DefaultLimit
	}
	return p
}

// wants tells whether a record of that ID may have a place on the page.
func (p *page) wants(id [32]byte) bool {
	if bytes.Compare(id[:], p.query.After[:]) <= 0 && p.query.After != [32]byte{} {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.entries) < p.limit || compare(p.entries[p.limit-1], id) > 0
}

// add puts e in its place, instead of an older look at the same record.
func (p *page) add(e entry) {
	p.mu.Lock()
	defer p.mu.Unlock()
	i, seen := slices.BinarySearchFunc(p.entries, e.id, compare)
	if seen {
		p.entries[i] = e
		return
	}
	p.entries = slices.Insert(p.entries, i, e)
	p.entries = p.entries[:min(len(p.entries), p.limit)]
}

// records is the page, or the error of its first record that can't be read.
func (p *page) records() ([]keystore.Record, error) {
	var recs []keystore.Record
	for _, e := range p.entries {
		if e.err != nil {
			return nil, e.err
		}
		recs = append(recs, e.rec)
	}
	return recs, nil
}

func compare(e entry, id [32]byte) int { return bytes.Compare(e.id[:], id[:]) }
