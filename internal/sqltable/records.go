package sqltable

import (
	"context"
	"strings"

	"github.com/idem-go/idem/keystore"
)

// Records implements keystore.Store.
func (t *Table) Records(ctx context.Context, q keystore.Query) ([]keystore.Record, error) {
	if err := q.Validate(); err != nil {
		return nil, err
	}
	where, args := []string{"NOT (state = ? AND until_us <= {clock})"}, []any{keystore.Done}
	if q.ID != nil {
		where, args = append(where, "id = ?"), append(args, q.ID[:])
	}
	if q.Scope != nil {
		where, args = append(where, "scope = ?"), append(args, q.Scope[:])
	}
	if q.Unresolved {
		// What has begun and runs, and nothing else, never expires: the index
		// of what expires finds it.
		where = append(where, "expires_us IS NULL AND state = ? AND begun = 1 AND until_us <= {clock}")
		args = append(args, keystore.Running)
	}
	if q.After != [32]byte{} {
		where, args = append(where, "id > ?"), append(args, q.After[:])
	}
	limit := q.Limit
	if limit == 0 {
		limit = keystore.DefaultLimit
	}
	statement := t.sql("SELECT {row}, result, {clock} FROM {table} WHERE " + strings.Join(where, " AND ") + " ORDER BY id LIMIT ?")
	args = append(args, limit)

	var recs []keystore.Record
	err := t.retry(ctx, "records", func() (err error) {
		recs, err = t.list(ctx, statement, args)
		return err
	})
	return recs, err
}

func (t *Table) list(ctx context.Context, statement string, args []any) (recs []keystore.Record, err error) {
	rows, err := t.querier().QueryContext(ctx, statement, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		r, now, err := scan(ctx, rows)
		if err != nil {
			return nil, err
		}
		rec := r.view(now)
		rec.Result = r.result
		recs = append(recs, rec)
	}
	return recs, rows.Err()
}
