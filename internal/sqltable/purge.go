package sqltable

import (
	"context"
	"database/sql"
	"strings"

	"github.com/idem-go/idem/keystore"
)

// purgedAtOnce is how many records one statement removes, so that none holds
// many rows for long.
const purgedAtOnce = 200

// purgeable selects what no rule needs any more, the longest expired first. A
// record of another format is not ours to judge.
const purgeable = ` FROM {table} WHERE expires_us <= {clock} AND format = ?
	AND (state IN (?, ?) OR (state = ? AND begun = 0 AND until_us + keep_us <= {clock}))
	ORDER BY expires_us LIMIT ?`

func purgeableArgs(limit int) []any {
	return []any{format, keystore.Free, keystore.Done, keystore.Running, limit}
}

// Purge implements keystore.Store.
func (t *Table) Purge(ctx context.Context, limit int) (removed int, err error) {
	if err := keystore.ValidatePurge(limit); err != nil {
		return 0, err
	}
	for {
		batch, n := min(limit-removed, purgedAtOnce), 0
		err := t.retry(ctx, "purge", func() (err error) {
			n, err = t.purge(ctx, batch)
			return err
		})
		removed += n
		if err != nil || n < batch || removed == limit {
			return removed, err
		}
	}
}

// purge removes at most limit records at once.
func (t *Table) purge(ctx context.Context, limit int) (int, error) {
	if t.dialect.SkipLocked == "" {
		return t.exec(ctx, "DELETE FROM {table} WHERE id IN (SELECT id"+purgeable+")", purgeableArgs(limit)...)
	}
	if t.tx != nil {
		return t.purgeUnlocked(ctx, t.tx.tx, limit)
	}
	tx, err := t.db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return 0, err
	}
	defer tx.Rollback()
	n, err := t.purgeUnlocked(ctx, tx, limit)
	if err != nil {
		return 0, err
	}
	return n, tx.Commit()
}

// purgeUnlocked passes over what others hold.
func (t *Table) purgeUnlocked(ctx context.Context, tx *sql.Tx, limit int) (int, error) {
	rows, err := tx.QueryContext(ctx, t.sql("SELECT id"+purgeable+t.dialect.SkipLocked), purgeableArgs(limit)...)
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	var ids []any
	for rows.Next() {
		var id []byte
		if err := rows.Scan(&id); err != nil {
			return 0, err
		}
		ids = append(ids, id)
	}
	if err := rows.Err(); err != nil || len(ids) == 0 {
		return 0, err
	}
	marks := strings.Repeat(", ?", len(ids))[2:]
	return affected(tx.ExecContext(ctx, t.sql("DELETE FROM {table} WHERE id IN ("+marks+")"), ids...))
}
