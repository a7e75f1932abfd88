package sqltable

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"math"
	"time"

	"github.com/idem-go/idem/keystore"
)

// rowColumns are the columns of a row but for its result, in scan's order.
const rowColumns = "format, id, scope, fingerprint, revision, state, released, begun, " +
	"nonce, token, generation, since_us, until_us, keep_us, meta"

// row is one stored record. Times are in microseconds by the store's clock.
type row struct {
	id, scope, fingerprint [32]byte
	// revision rises with every write.
	revision int64
	state    keystore.State
	begun    bool
	// The latest owner, also of a record that is settled, so that a repeat of
	// the settling call is recognised.
	nonce [16]byte
	token uint64
	// released is how that owner freed the record. Only for Free.
	released   keystore.How
	generation uint32
	// since is when this generation was first claimed.
	since int64
	// until is when the lease (Running) or the retention (Done) ends; 0 is a
	// lease that was abandoned.
	until int64
	meta  []byte
	// result is filled only where it was asked for.
	result []byte
}

// read reads the record, nil if there is none, and the store's time. result is
// the SQL of what to read of the result, end that of the end of the statement.
func (t *Table) read(ctx context.Context, id [32]byte, end, result string, args ...any) (*row, int64, error) {
	rows, err := t.querier().QueryContext(ctx,
		t.sql("SELECT {row}, "+result+", {clock} FROM {table} WHERE id = ?"+end), append(args, id[:])...)
	if err != nil {
		return nil, 0, err
	}
	defer rows.Close()
	if !rows.Next() {
		return nil, 0, rows.Err()
	}
	r, now, err := scan(ctx, rows)
	if err != nil {
		return nil, 0, err
	}
	return r, now, rows.Close()
}

// scan reads the row that rows stand on: its columns, its result, the time.
func scan(ctx context.Context, rows *sql.Rows) (*row, int64, error) {
	var v, revision, state, released, begun, token, generation, since, until, keep, now int64
	var id, scope, fingerprint, nonce []byte
	r := new(row)
	err := rows.Scan(&v, &id, &scope, &fingerprint, &revision, &state, &released, &begun,
		&nonce, &token, &generation, &since, &until, &keep, &r.meta, &r.result, &now)
	switch {
	case err != nil && (rows.Err() != nil || ctx.Err() != nil):
		return nil, 0, err
	case err != nil: // a value of another type than the column's
		return nil, 0, fmt.Errorf("%w %x: %w", keystore.ErrCorrupt, id, err)
	case v != format:
		return nil, 0, fmt.Errorf("%w: record %x has format %d, this version knows %d", keystore.ErrFormat, id, v, format)
	case len(id) != 32 || len(scope) != 32 || len(fingerprint) != 32 || len(nonce) != 16,
		state < int64(keystore.Free) || state > int64(keystore.Done),
		state == int64(keystore.Free) && released != int64(keystore.Forget) && released != int64(keystore.Reject),
		begun < 0 || begun > 1, token < 1, generation < 0 || generation > math.MaxUint32,
		revision < 1, since <= 0, until < 0, keep < 0:
		return nil, 0, fmt.Errorf("%w %x: state %d, released %d, begun %d, token %d, generation %d, revision %d, or a length or time that can't be",
			keystore.ErrCorrupt, id, state, released, begun, token, generation, revision)
	}
	copy(r.id[:], id)
	copy(r.scope[:], scope)
	copy(r.fingerprint[:], fingerprint)
	copy(r.nonce[:], nonce)
	r.revision, r.token, r.generation = revision, uint64(token), uint32(generation)
	r.state, r.released, r.begun = keystore.State(state), keystore.How(released), begun == 1
	r.since, r.until = since, until
	return r, now, nil
}

// alive tells whether a running record's lease stands.
func (r *row) alive(now int64) bool { return r.until > now }

// outlived tells whether the record is Done and its retention over: it counts
// as absent from then on, whether or not it was purged yet.
func (r *row) outlived(now int64) bool { return r.state == keystore.Done && r.until <= now }

// ownedBy tells whether the latest claim is that owner's.
func (r *row) ownedBy(o keystore.Owner) bool { return r.nonce == o.Nonce && r.token == o.Token }

// view returns the record as callers see it, without the result.
func (r *row) view(now int64) keystore.Record {
	rec := keystore.Record{
		ID:          r.id,
		Scope:       r.scope,
		Fingerprint: r.fingerprint,
		State:       r.state,
		Token:       r.token,
		Generation:  r.generation,
		Begun:       r.begun,
		Age:         duration(max(0, now-r.since)), // the clock may have been set back
		Meta:        bytes.Clone(r.meta),
	}
	if r.state == keystore.Running && r.until > 0 {
		rec.LeaseLeft = duration(r.until - now)
	}
	return rec
}

// micros converts to the table's unit. It rounds up, so that no duration
// becomes none.
func micros(d time.Duration) int64 {
	us := int64(d / time.Microsecond)
	if d%time.Microsecond > 0 {
		us++
	}
	return us
}

// duration converts back, to the longest duration where that is too short.
func duration(us int64) time.Duration {
	if us > math.MaxInt64/int64(time.Microsecond) {
		return math.MaxInt64
	}
	return time.Duration(us) * time.Microsecond
}
