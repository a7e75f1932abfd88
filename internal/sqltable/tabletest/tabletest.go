// Package tabletest holds the tests that the stores on package sqltable share,
// beside the conformance suite: what happens between processes and within
// transactions, to rows that can't be, and how many statements a call takes.
package tabletest

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/idem-go/idem/internal/lincheck"
	"github.com/idem-go/idem/keystore"
)

// long is a time that does not end during a test.
const long = time.Hour

// Store is what the stores have in common.
type Store interface {
	keystore.Store
	keystore.Transactor
}

// Backend is a store under test.
type Backend struct {
	// Name is the name of the store's package.
	Name string
	// Driver is the driver's name in database/sql.
	Driver string
	// NewDSN returns the data source name of a new, empty database.
	NewDSN func(testing.TB) string
	// Migrate and New are the package's, with the zero Config.
	Migrate func(context.Context, *sql.DB) error
	New     func(*sql.DB) (Store, error)
	TxFrom  func(context.Context) (*sql.Tx, bool)
	// Unchecked is a statement after which a connection lets impossible rows
	// in, if it does not anyway.
	Unchecked string
}

// Run runs all tests but those of processes.
func Run(t *testing.T, b Backend) {
	t.Run("round trips", func(t *testing.T) { roundTrips(t, b) })
	t.Run("B094 unreadable rows", func(t *testing.T) { unreadable(t, b) })
	t.Run("heartbeats leave the index", func(t *testing.T) { heartbeats(t, b) })
	t.Run("B093 lost answers", func(t *testing.T) { lostAnswers(t, b) })
	t.Run("cancelled", func(t *testing.T) { cancelled(t, b) })
	t.Run("migrations", func(t *testing.T) { migrations(t, b) })
	t.Run("transactions", func(t *testing.T) { transactions(t, b) })
	t.Run("B158 many new keys", func(t *testing.T) { manyNewKeys(t, b) })
	t.Run("linearizable", func(t *testing.T) {
		dsn := b.NewDSN(t)
		one, _ := b.open(t, dsn)
		other, _ := b.open(t, dsn)
		lincheck.Run(t, 8, 1250, one, other)
	})
}

// open opens the database and its store, migrated.
func (b Backend) open(t testing.TB, dsn string) (Store, *sql.DB) {
	t.Helper()
	db := b.connect(t, dsn)
	return b.store(t, db), db
}

func (b Backend) connect(t testing.TB, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open(b.Driver, dsn)
	if err != nil {
		t.Fatal(err)
	}
	db.SetMaxIdleConns(8)
	t.Cleanup(func() { db.Close() })
	return db
}

func (b Backend) store(t testing.TB, db *sql.DB) Store {
	t.Helper()
	if err := b.Migrate(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	s, err := b.New(db)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func run(t testing.TB, db *sql.DB, statement string, args ...any) {
	t.Helper()
	if _, err := db.ExecContext(t.Context(), statement, args...); err != nil {
		t.Fatal(err)
	}
}

func params() keystore.ClaimParams {
	p := keystore.ClaimParams{Fingerprint: [32]byte{1}, Lease: long, Keep: long, Begun: true, Meta: []byte("meta")}
	_, _ = rand.Read(p.ID[:])
	return rival(p)
}

// rival returns the parameters of another claim to the same record.
func rival(p keystore.ClaimParams) keystore.ClaimParams {
	_, _ = rand.Read(p.Nonce[:])
	return p
}

// claim claims and wants the status.
func claim(t testing.TB, s keystore.Store, p keystore.ClaimParams, want keystore.Status) keystore.Claim {
	t.Helper()
	c, err := s.Claim(t.Context(), p)
	if err != nil || c.Status != want {
		t.Fatalf("Claim answered %v, %v; want %v", c.Status, err, want)
	}
	return c
}

func complete(t testing.TB, s keystore.Store, o keystore.Owner) {
	t.Helper()
	if err := s.Complete(t.Context(), o, keystore.CompleteParams{Result: []byte("result"), Retention: long}); err != nil {
		t.Fatal(err)
	}
}

// wantError wants the sentinel, and the store and the operation named.
func (b Backend) wantError(t testing.TB, op string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) || !strings.HasPrefix(err.Error(), b.Name+": "+op+": ") {
		t.Errorf("%s failed with %v; want %v, beginning with the store and the operation", op, err, want)
	}
}
