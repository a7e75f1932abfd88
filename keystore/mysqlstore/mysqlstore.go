// Package mysqlstore keeps the records of package keystore in a table of
// MariaDB (10.6 or later) or MySQL (8.0 or later).
//
// It takes a *sql.DB of github.com/go-sql-driver/mysql, and is tested with
// MariaDB 10.11. Call Migrate once per start, or create the tables of Schema
// with a migration tool of your own.
//
// Of the session it asks nothing but autocommit: no SQL mode, time zone,
// isolation level or clientFoundRows matters. Without "interpolateParams=true"
// in the data source name the driver prepares each statement first, which
// doubles its round trips. A proxy that sends plain reads to replicas must not
// do so with the store's, or a duplicate is told what was true a while ago.
//
// # Crashes of the server
//
// That a commit is on the disk when it returns is the server's
// innodb_flush_log_at_trx_commit=1, its default. With another value a crash
// can undo a claim whose effect has happened.
//
// InnoDB lets others see a commit a moment before it is on the disk, unless the
// server writes a binary log with sync_binlog=1. Without one, a crash in that
// moment can take back a result that a duplicate has seen already. That does no
// harm where the effect is elsewhere, since the record is then unresolved; an
// effect in the same transaction is taken back with it.
//
// # Time
//
// Time is the server's clock (UTC_TIMESTAMP) at the start of a statement, so
// what a statement waits for another transaction is part of the lease that it
// grants. Behind a proxy that spreads writes over several servers, their clocks
// must agree.
//
// # Cost
//
// A duplicate is answered by one plain read, which neither locks nor waits. A
// claim that acquires takes two round trips, a read and a write, for there is
// no statement that locks only where it has something to write. Every other
// call takes one, and a second one only where it is fenced or repeated.
package mysqlstore

import (
	"context"
	"database/sql"
	_ "embed"
	"strings"

	"github.com/idem-go/idem/internal/sqltable"
	"github.com/idem-go/idem/keystore"
)

// Test for them with errors.Is. A full disk is keystore.ErrFull, a Result over
// the server's max_allowed_packet keystore.ErrTooLarge. Other errors are the
// driver's.
var (
	// ErrReadOnly: the server takes no writes.
	ErrReadOnly = sqltable.ErrReadOnly
	// ErrSchema: the table is missing or newer than this version knows, or
	// the server is set up so that it can't be used.
	ErrSchema = sqltable.ErrSchema
)

// Config is the configuration of a Store. The zero Config is valid.
type Config struct {
	// Table is the name of the table in the connection's database, letters,
	// digits and underscores; empty means "idem_records". The schema's
	// version is in a second table, whose name has "_schema" added.
	Table string
	// MaxResult is the size of the largest Result in bytes; 0 means
	// keystore.MaxResult. Over it Complete answers keystore.ErrTooLarge. A
	// smaller one than keystore.MaxResult is less than the contract promises.
	// Migrate checks that the server's max_allowed_packet has room for it.
	MaxResult int
}

// Store is a keystore.Store and a keystore.Transactor in a MySQL or MariaDB
// table. It is safe for concurrent use. It owns nothing and needs no closing.
type Store struct {
	table     *sqltable.Table
	db        *sql.DB
	name      string
	maxResult int
}

var (
	_ keystore.Store      = (*Store)(nil)
	_ keystore.Transactor = (*Store)(nil)
)

// New returns a store on the database. It opens no connection, and fails where
// db is nil or a field of cfg is invalid.
func New(db *sql.DB, cfg Config) (*Store, error) {
	if cfg.Table == "" {
		cfg.Table = sqltable.DefaultName
	}
	if cfg.MaxResult == 0 {
		cfg.MaxResult = keystore.MaxResult
	}
	table, err := sqltable.New(db, cfg.Table, cfg.MaxResult, dialect)
	if err != nil {
		return nil, err
	}
	return &Store{table, db, cfg.Table, cfg.MaxResult}, nil
}

//go:embed schema.sql
var schema string

// Schema returns the statements with which Migrate creates the tables, for
// those who have a migration tool of their own.
func Schema(cfg Config) string {
	if cfg.Table == "" {
		return schema
	}
	return strings.ReplaceAll(schema, sqltable.DefaultName, cfg.Table)
}

// Claim implements keystore.Store. Where another transaction holds the record
// for more than five seconds, it is InFlight. (MySQL, unlike MariaDB, says so
// only after its innodb_lock_wait_timeout.)
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

// Purge implements keystore.Store. It removes at most 200 records per commit,
// and passes over those that others hold.
func (s *Store) Purge(ctx context.Context, limit int) (int, error) {
	return s.table.Purge(ctx, limit)
}
