package main

import (
	"context"
	"crypto/rand"
	"database/sql"
	"fmt"
	"path/filepath"

	_ "github.com/go-sql-driver/mysql"
	_ "modernc.org/sqlite"

	"github.com/idem-go/idem/keystore"
	"github.com/idem-go/idem/keystore/mysqlstore"
	"github.com/idem-go/idem/keystore/sqlitestore"
)

// sqliteStores is SQLite, with write-ahead logging and synchronous=FULL, beside
// an INSERT and an UPDATE that each commit by themselves. Those have one
// connection: with more of them they would be busy with one another.
func sqliteStores() []group {
	one := backend{
		name: "sqlitestore",
		hand: func(s *stage) (hand, error) {
			db, err := newSQLite(s, "?_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_pragma=busy_timeout(10000)")
			if err != nil {
				return nil, err
			}
			db.SetMaxOpenConns(1)
			return newSQLHand(s, db, "BLOB", "INSERT INTO hand (id, fingerprint, state) VALUES (?, ?, 1) ON CONFLICT DO NOTHING")
		},
		stores: []variant{{name: byStore, open: func(s *stage) (keystore.Store, error) {
			db, err := newSQLite(s, "")
			if err != nil {
				return nil, err
			}
			// One that writes, and some that read. By default a pool closes all
			// but two that are idle, and opening one takes longer than a claim.
			db.SetMaxOpenConns(4)
			db.SetMaxIdleConns(4)
			if err := sqlitestore.Migrate(s, db, sqlitestore.Config{}); err != nil {
				return nil, err
			}
			return sqlitestore.New(db, sqlitestore.Config{})
		}}},
	}
	many := one
	many.name, many.callers = "sqlitestore, 64 goroutines", crowd
	many.stores = []variant{{name: byStore, open: one.stores[0].open, fresh: []check{speed(byHand).atLeast(8)}}}
	return append(one.groups(), many.groups()...)
}

// newSQLite is a file of its own.
func newSQLite(s *stage, settings string) (*sql.DB, error) {
	dir, err := tempDir(s)
	if err != nil {
		return nil, err
	}
	db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "idem.db")+settings)
	if err == nil {
		s.onEnd(func() { db.Close() })
	}
	return db, err
}

// mysqlStores is MariaDB, whose commits wait for the disk, beside an INSERT and
// an UPDATE.
func mysqlStores() []group {
	one := backend{
		name: "mysqlstore",
		hand: func(s *stage) (hand, error) {
			db, err := newMySQL(s)
			if err != nil {
				return nil, err
			}
			return newSQLHand(s, db, "VARBINARY(32)", "INSERT IGNORE INTO hand (id, fingerprint, state) VALUES (?, ?, 1)")
		},
		stores: []variant{{name: byStore, open: func(s *stage) (keystore.Store, error) {
			db, err := newMySQL(s)
			if err != nil {
				return nil, err
			}
			if err := mysqlstore.Migrate(s, db, mysqlstore.Config{}); err != nil {
				return nil, err
			}
			return mysqlstore.New(db, mysqlstore.Config{})
		}}},
	}
	many := one
	many.name, many.callers = "mysqlstore, 64 goroutines", crowd
	return append(one.groups(), many.groups()...)
}

// newMySQL is a database of its own.
func newMySQL(s *stage) (*sql.DB, error) {
	server, err := s.shared.mariadbServer()
	if err != nil {
		return nil, err
	}
	name := "bench_" + rand.Text()
	admin, err := sql.Open("mysql", server.DSN(""))
	if err != nil {
		return nil, err
	}
	s.onEnd(func() { admin.Close() })
	if _, err := admin.ExecContext(s, "CREATE DATABASE "+name); err != nil {
		return nil, err
	}
	s.onEnd(func() { _, _ = admin.ExecContext(context.WithoutCancel(s), "DROP DATABASE "+name) })
	db, err := sql.Open("mysql", server.DSN(name)+"?interpolateParams=true")
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(16)
	db.SetMaxIdleConns(16)
	s.onEnd(func() { db.Close() })
	return db, nil
}

// sqlHand is what a table by hand takes with database/sql.
type sqlHand struct {
	db      *sql.DB
	insertQ string
}

func newSQLHand(s *stage, db *sql.DB, id, insert string) (hand, error) {
	_, err := db.ExecContext(s, "CREATE TABLE hand (id "+id+" PRIMARY KEY, fingerprint BLOB NOT NULL, state INTEGER NOT NULL, result BLOB)")
	return sqlHand{db, insert}, err
}

func (h sqlHand) insert(ctx context.Context, id, fingerprint []byte) error {
	return h.exec(ctx, h.insertQ, id, fingerprint)
}

func (h sqlHand) update(ctx context.Context, id, result []byte) error {
	return h.exec(ctx, "UPDATE hand SET state = 2, result = ? WHERE id = ?", result, id)
}

func (h sqlHand) exec(ctx context.Context, query string, args ...any) error {
	res, err := h.db.ExecContext(ctx, query, args...)
	if err != nil {
		return err
	}
	if n, err := res.RowsAffected(); err != nil || n != 1 {
		return fmt.Errorf("%q changed %d rows: %w", query, n, err)
	}
	return nil
}

func (h sqlHand) read(ctx context.Context, id []byte) error {
	var fingerprint, result []byte
	var state int
	err := h.db.QueryRowContext(ctx, "SELECT fingerprint, state, result FROM hand WHERE id = ?", id).Scan(&fingerprint, &state, &result)
	if err == nil && len(result) == 0 {
		err = errAbsent
	}
	return err
}
