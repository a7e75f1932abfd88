package pgstore

import (
	"fmt"
	"math"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/idem-go/idem/keystore"
)

// format is that of the rows which this version writes and reads.
const format = 1

// row is a record as it was stored, at the server's time now.
type row struct {
	id                         []byte
	format                     int16
	scope, fingerprint         []byte
	state                      int16
	begun                      bool
	nonce                      []byte
	token, generation          int64
	since, leaseUntil, expires pgtype.Timestamptz
	now                        pgtype.Timestamptz
	meta, result               []byte
}

// columns returns what the columns of a row, after its ID, are scanned into.
func (r *row) columns() []any {
	return []any{
		&r.format, &r.scope, &r.fingerprint, &r.state, &r.begun, &r.nonce, &r.token, &r.generation,
		&r.since, &r.leaseUntil, &r.expires, &r.now, &r.meta, &r.result,
	}
}

// record returns the row as callers see it. Errors: keystore.ErrFormat,
// keystore.ErrCorrupt.
func (r *row) record() (keystore.Record, error) {
	if r.format != format {
		return keystore.Record{}, fmt.Errorf("%w: record %x has format %d, this version of pgstore knows %d",
			keystore.ErrFormat, r.id, r.format, format)
	}
	state := keystore.State(r.state)
	running := state == keystore.Running
	var broken string
	switch {
	case len(r.id) != 32 || len(r.scope) != 32 || len(r.fingerprint) != 32 || len(r.nonce) != 16:
		broken = "a digest or the nonce has a wrong length"
	case r.state < int16(keystore.Free) || r.state > int16(keystore.Done):
		broken = fmt.Sprintf("state %d", r.state)
	case r.token < 1:
		broken = fmt.Sprintf("token %d", r.token)
	case r.generation < 0 || r.generation > math.MaxUint32:
		broken = fmt.Sprintf("generation %d", r.generation)
	case !finite(r.since) || !finite(r.leaseUntil) || r.expires.Valid == running:
		broken = "its times"
	}
	if broken != "" {
		return keystore.Record{}, fmt.Errorf("%w: record %x: %s", keystore.ErrCorrupt, r.id, broken)
	}
	rec := keystore.Record{
		ID:          [32]byte(r.id),
		Scope:       [32]byte(r.scope),
		Fingerprint: [32]byte(r.fingerprint),
		State:       state,
		Token:       uint64(r.token),
		Generation:  uint32(r.generation),
		Begun:       r.begun,
		Age:         max(0, r.now.Time.Sub(r.since.Time)),
		Meta:        r.meta,
		Result:      r.result,
	}
	if running {
		rec.LeaseLeft = r.leaseUntil.Time.Sub(r.now.Time)
	}
	return rec, nil
}

// finite tells whether the time is one that can be counted with.
func finite(t pgtype.Timestamptz) bool { return t.Valid && t.InfinityModifier == pgtype.Finite }
