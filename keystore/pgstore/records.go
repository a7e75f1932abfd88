package pgstore

import (
	"context"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/keystore"
)

// purgeBatch is how many records one statement of a Purge removes at most, so
// that none holds many locks or runs for long.
const purgeBatch = 1000

// Records implements keystore.Store. The records are what one statement saw at
// one moment. One of them that can't be read fails the call with its ID; the
// others can still be read by ID, or from it on with Query.After.
func (s *Store) Records(ctx context.Context, q keystore.Query) ([]keystore.Record, error) {
	if err := q.Validate(); err != nil {
		return nil, err
	}
	sql, params := s.selection(q)
	var rows []row
	err := s.call(ctx, "records", func(db querier) error {
		found, err := db.Query(ctx, sql, s.args(params...)...)
		if err != nil {
			return err
		}
		rows, err = pgx.CollectRows(found, func(found pgx.CollectableRow) (r row, err error) {
			return r, found.Scan(append([]any{&r.id}, r.columns()...)...)
		})
		return err
	})
	if err != nil {
		return nil, err
	}
	recs := make([]keystore.Record, len(rows))
	for i := range rows {
		if recs[i], err = rows[i].record(); err != nil {
			return nil, err
		}
	}
	return recs, nil
}

// selection returns the statement that selects what q does.
func (s *Store) selection(q keystore.Query) (sql string, params []any) {
	var b strings.Builder
	param := func(text string, value any) {
		params = append(params, value)
		b.WriteString(text + "$" + strconv.Itoa(len(params)))
	}
	b.WriteString(s.sql.records)
	if q.ID != nil {
		param(" AND r.id = ", q.ID[:])
	}
	if q.Scope != nil {
		param(" AND r.scope = ", q.Scope[:])
	}
	if q.After != [32]byte{} {
		param(" AND r.id > ", q.After[:])
	}
	if q.Unresolved {
		b.WriteString(" AND r.state = 2 AND r.begun AND r.lease_until <= clock.now")
	}
	limit := q.Limit
	if limit == 0 {
		limit = keystore.DefaultLimit
	}
	param(" ORDER BY r.id LIMIT ", int64(limit))
	return b.String(), params
}

// Purge implements keystore.Store. It removes records in batches, each of them
// a transaction, and passes by what others are at work on.
func (s *Store) Purge(ctx context.Context, limit int) (removed int, err error) {
	if err := keystore.ValidatePurge(limit); err != nil {
		return 0, err
	}
	for _, sql := range []string{s.sql.purgeSettled, s.sql.purgeDead} {
		for more := true; more && removed < limit; {
			batch := int64(min(limit-removed, purgeBatch))
			n, err := s.exec(ctx, "purge", sql, batch)
			if err != nil {
				return removed, err
			}
			removed += int(n)
			more = n == batch
		}
	}
	return removed, nil
}
