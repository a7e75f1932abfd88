package pgstore

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"
)

// schemaVersion is that of schema.sql, which notes it in the table's comment.
const (
	schemaVersion = 1
	schemaComment = "idem schema "
)

//go:embed schema.sql
var schemaSQL string

// migrateLock is the number of the advisory lock that keeps migrations apart:
// "idem" in ASCII.
const migrateLock = 0x6964656d

// SchemaError tells that the table was laid out by a newer version of this
// package, or is not a table of this package at all. Nothing was changed.
type SchemaError struct {
	Table string
	// Found is the table's schema, 0 if it has none. Known is the newest one
	// that this version of the package knows.
	Found, Known int
}

// Error implements error.
func (e *SchemaError) Error() string {
	if e.Found == 0 {
		return fmt.Sprintf("pgstore: migrate: there is a table %q without the comment %q of this package; use another Config.Table",
			e.Table, schemaComment+"…")
	}
	return fmt.Sprintf("pgstore: migrate: table %q has schema %d, newer than %d, the newest this version knows; update the program",
		e.Table, e.Found, e.Known)
}

// Schema returns the SQL that creates the table and its indexes where there are
// none, for those who have a migration tool of their own. cfg is that of New,
// which tells whether it is valid.
func Schema(cfg Config) string {
	table := cfg.Table
	if table == "" {
		table = defaultTable
	}
	return strings.ReplaceAll(schemaSQL, defaultTable, strings.ReplaceAll(table, `"`, `""`))
}

// Migrate creates the table in the pool's database, or checks that it is there
// in a version that this package knows. It may be called at every start, by
// several processes at once; where there is nothing to do, it needs no right to
// create anything. Errors: *SchemaError, and what the server reports.
func Migrate(ctx context.Context, pool *pgxpool.Pool, cfg Config) error {
	if pool == nil {
		return errNoPool
	}
	if err := cfg.check(); err != nil {
		return err
	}
	// Whatever the default level, what another process has committed while
	// this one waited for its turn must be seen.
	level := pgx.TxOptions{IsoLevel: pgx.ReadCommitted}
	err := pgx.BeginTxFunc(ctx, pool, level, func(tx pgx.Tx) error { return migrate(ctx, tx, cfg) })
	var schema *SchemaError
	if err == nil || errors.As(err, &schema) {
		return err
	}
	return failed("migrate", err)
}

func migrate(ctx context.Context, tx pgx.Tx, cfg Config) error {
	if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock($1::bigint)", pgx.QueryExecModeExec, int64(migrateLock)); err != nil {
		return err
	}
	var exists bool
	var comment pgtype.Text
	err := tx.QueryRow(ctx, `SELECT t IS NOT NULL, obj_description(t, 'pg_class') FROM to_regclass($1) AS t`,
		pgx.QueryExecModeExec, quoted(cfg.Table)).Scan(&exists, &comment)
	if err != nil {
		return err
	}
	if !exists {
		_, err := tx.Exec(ctx, Schema(cfg))
		return err
	}
	found, _ := strconv.Atoi(strings.TrimPrefix(comment.String, schemaComment))
	if found < 1 || found > schemaVersion {
		return &SchemaError{Table: cfg.Table, Found: max(0, found), Known: schemaVersion}
	}
	return nil
}
