package memstore

import (
	"bytes"
	"time"

	"github.com/idem-go/idem/keystore"
)

// row is one stored record.
type row struct {
	id, scope, fingerprint [32]byte
	state                  keystore.State
	begun                  bool
	generation             uint32

	// The latest owner, also of a record that is settled, so that a repeat of
	// the settling call is recognised.
	nonce [16]byte
	token uint64
	// released is how that owner freed the record. Only for Free.
	released keystore.How

	// since is when this generation was first claimed.
	since time.Time
	// until is when the lease (Running) or the retention (Done) ends, or when
	// the record may be removed (Free).
	until time.Time
	keep  time.Duration

	meta, result []byte

	// heapIndex is the row's place in the expiry heap, -1 if it has none.
	heapIndex int
}

// alive tells whether a running record's lease stands.
func (r *row) alive(now time.Time) bool { return r.until.After(now) }

// outlived tells whether the record is Done and its retention over: it counts
// as absent from then on, whether or not it was removed yet.
func (r *row) outlived(now time.Time) bool {
	return r.state == keystore.Done && !r.until.After(now)
}

// expires returns when the record may be removed; false means never by itself.
func (r *row) expires() (time.Time, bool) {
	if r.state != keystore.Running {
		return r.until, true
	}
	return r.until.Add(r.keep), !r.begun
}

// view returns the record as callers see it.
func (r *row) view(now time.Time) keystore.Record {
	rec := r.bare(now)
	rec.Meta = bytes.Clone(r.meta)
	return rec
}

// bare is view without the Meta.
func (r *row) bare(now time.Time) keystore.Record {
	rec := keystore.Record{
		ID:          r.id,
		Scope:       r.scope,
		Fingerprint: r.fingerprint,
		State:       r.state,
		Token:       r.token,
		Generation:  r.generation,
		Begun:       r.begun,
		Age:         now.Sub(r.since),
	}
	if r.state == keystore.Running {
		rec.LeaseLeft = r.until.Sub(now)
	}
	return rec
}

// fullView is view with the result.
func (r *row) fullView(now time.Time) keystore.Record {
	rec := r.bare(now)
	both := append(append(make([]byte, 0, len(r.meta)+len(r.result)), r.meta...), r.result...)
	if r.meta != nil {
		rec.Meta = both[:len(r.meta):len(r.meta)]
	}
	if r.result != nil {
		rec.Result = both[len(r.meta):]
	}
	return rec
}
