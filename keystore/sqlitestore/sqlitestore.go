// Package sqlitestore keeps the records of package keystore in a SQLite file,
// which several processes of one machine may share.
//
// It takes a *sql.DB of any driver that speaks SQLite 3.37 or later, is tested
// with modernc.org/sqlite, and knows the errors of github.com/mattn/go-sqlite3
// too. Call Migrate once per start: it creates the table, switches the file to
// write-ahead logging, and refuses connections that could forget a claim.
//
// # Connections
//
// A *sql.DB is a pool, and SQLite's settings belong to connections, so they
// belong into the data source name, where every connection gets them. What the
// store needs is SQLite's own default, synchronous=FULL: a commit is on the
// disk when it returns. A driver may have another default; mattn/go-sqlite3
// needs "_synchronous=FULL". No busy_timeout is needed: a call that finds the
// database busy tries again until its context ends, and a long busy_timeout
// only keeps a driver from seeing that end; mattn/go-sqlite3 has 5 s unless
// told "_busy_timeout=0". Leave _txlock alone: InTx begins as it needs to.
//
// A database in memory belongs to one connection: open it with
// db.SetMaxOpenConns(1), or with a shared cache. What it holds ends with the
// connection.
//
// # Time
//
// SQLite is a library and has no clock but the machine's, which all processes
// that can share the file share too. The store reads it in SQL, in whole
// milliseconds, when a statement runs and not when it began to wait. Where
// that clock is set back, leases and retentions last longer by as much.
//
// # Cost
//
// A duplicate is answered by one read, which waits for no writer. A claim that
// acquires is a read and a write, every other call one write; each write is one
// statement. SQLite has one writer at a time; the writes that a store's callers
// would wait with share one commit to the disk, which has a context of its own.
// A pool closes all but two of its idle connections, and to open one takes
// longer than a claim: with many callers, set db.SetMaxOpenConns and
// db.SetMaxIdleConns to the same small number, such as 4.
package sqlitestore

import (
	"context"
	"database/sql"
	_ "embed"
	"strings"

	"github.com/idem-go/idem/internal/sqltable"
	"github.com/idem-go/idem/keystore"
)

// Test for them with errors.Is. A full disk is keystore.ErrFull, a file that
// is no database or a broken one keystore.ErrCorrupt; after any of them what
// was stored stands. Other errors are the driver's.
var (
	// ErrReadOnly: the file, or its folder, can't be written.
	ErrReadOnly = sqltable.ErrReadOnly
	// ErrSchema: the database's schema is newer than this version knows, or
	// its connections are not fit for a store.
	ErrSchema = sqltable.ErrSchema
)

// Config is the configuration of a Store. The zero Config is valid.
type Config struct {
	// Table is the name of the table, letters, digits and underscores; empty
	// means "idem_records". The schema's version is in a second table, whose
	// name has "_schema" added.
	Table string
	// MaxResult is the size of the largest Result in bytes; 0 means
	// keystore.MaxResult. Over it Complete answers keystore.ErrTooLarge. A
	// smaller one than keystore.MaxResult is less than the contract promises.
	MaxResult int
	// Volatile accepts connections on which a commit may be lost in a power
	// failure (synchronous below FULL). An effect whose claim is lost may
	// happen again. Only Migrate looks at it.
	Volatile bool
}

// Store is a keystore.Store and a keystore.Transactor in a SQLite database. It
// is safe for concurrent use. It owns nothing and needs no closing.
type Store struct {
	table *sqltable.Table
	db    *sql.DB
	name  string
}

var (
	_ keystore.Store      = (*Store)(nil)
	_ keystore.Transactor = (*Store)(nil)
)

// New returns a store on the database. It opens no connection, and fails where
// db is nil or a field of cfg is invalid.
func New(db *sql.DB, cfg Config) (*Store, error) {
	name := cfg.table()
	table, err := sqltable.New(db, name, cfg.MaxResult, dialect)
	if err != nil {
		return nil, err
	}
	return &Store{table, db, name}, nil
}

func (cfg Config) table() string {
	if cfg.Table == "" {
		return sqltable.DefaultName
	}
	return cfg.Table
}

//go:embed schema.sql
var schema string

// Schema returns the statements with which Migrate creates the tables, for
// those who have a migration tool of their own.
func Schema(cfg Config) string {
	return strings.ReplaceAll(schema, sqltable.DefaultName, cfg.table())
}

// Claim implements keystore.Store.
func (s *Store) Claim(ctx context.Context, p keystore.ClaimParams) (keystore.Claim, error) {
	return s.table.Claim(ctx, p)
}

// Renew implements keystore.Store.
func (s *Store) Renew(ctx context.Context, o keystore.Owner, p keystore.RenewParams) error {
	return s.table.Renew(ctx, o, p)
}

// Complete implements keystore.Store.
func (s *Store) Complete(ctx context.Context, o keystore.Owner, p keystore.CompleteParams) error {
	return s.table.Complete(ctx, o, p)
}

// Release implements keystore.Store.
func (s *Store) Release(ctx context.Context, o keystore.Owner, p keystore.ReleaseParams) error {
	return s.table.Release(ctx, o, p)
}

// Records implements keystore.Store.
func (s *Store) Records(ctx context.Context, q keystore.Query) ([]keystore.Record, error) {
	return s.table.Records(ctx, q)
}

// Purge implements keystore.Store. It removes at most 200 records per commit.
func (s *Store) Purge(ctx context.Context, limit int) (int, error) {
	return s.table.Purge(ctx, limit)
}
