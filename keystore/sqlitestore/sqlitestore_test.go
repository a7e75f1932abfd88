package sqlitestore

import (
	"context"
	"database/sql"
	"path/filepath"
	"testing"

	_ "github.com/mattn/go-sqlite3"
	"go.uber.org/goleak"

	"github.com/idem-go/idem/internal/sqltable/tabletest"
	"github.com/idem-go/idem/keystore"
	"github.com/idem-go/idem/keystore/keystoretest"
)

var backend = tabletest.Backend{
	Name:      "sqlitestore",
	Driver:    "sqlite3",
	NewDSN:    func(tb testing.TB) string { return fileDSN(tb, "NORMAL") }, // survives the death of a process
	Migrate:   func(ctx context.Context, db *sql.DB) error { return Migrate(ctx, db, Config{Volatile: true}) },
	New:       func(db *sql.DB) (tabletest.Store, error) { return New(db, Config{}) },
	TxFrom:    TxFrom,
	Unchecked: "PRAGMA ignore_check_constraints = ON",
}

func TestMain(m *testing.M) {
	tabletest.Process(backend)
	goleak.VerifyTestMain(m)
}

func TestContract(t *testing.T) {
	t.Parallel()
	dsn := newDSN(t)
	keystoretest.Run(t, func(t *testing.T) keystore.Store { return newStore(t, open(t, dsn), Config{}) })
}

func TestTable(t *testing.T)   { t.Parallel(); tabletest.Run(t, backend) }
func TestRaces(t *testing.T)   { t.Parallel(); tabletest.Races(t, backend) }
func TestCrashes(t *testing.T) { t.Parallel(); tabletest.Crashes(t, backend) }

func BenchmarkStore(b *testing.B) {
	keystoretest.Bench(b, func(b *testing.B) keystore.Store { return newStore(b, open(b, newDSN(b)), Config{}) })
}

// newDSN names a new file with the settings that users need: the driver's
// defaults could lose a commit.
func newDSN(tb testing.TB) string { return fileDSN(tb, "FULL") }

func fileDSN(tb testing.TB, synchronous string) string {
	return "file:" + filepath.Join(tb.TempDir(), "idem.db") + "?_busy_timeout=0&_synchronous=" + synchronous
}

func open(tb testing.TB, dsn string) *sql.DB {
	tb.Helper()
	db, err := sql.Open("sqlite3", dsn)
	if err != nil {
		tb.Fatal(err)
	}
	db.SetMaxIdleConns(8)
	tb.Cleanup(func() { db.Close() })
	return db
}

func newStore(tb testing.TB, db *sql.DB, cfg Config) *Store {
	tb.Helper()
	if err := Migrate(tb.Context(), db, cfg); err != nil {
		tb.Fatal(err)
	}
	s, err := New(db, cfg)
	if err != nil {
		tb.Fatal(err)
	}
	return s
}
