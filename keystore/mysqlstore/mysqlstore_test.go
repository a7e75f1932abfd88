package mysqlstore

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"log"
	"os"
	"sync/atomic"
	"testing"

	"github.com/go-sql-driver/mysql"
	"go.uber.org/goleak"

	"github.com/idem-go/idem/internal/servertest"
	"github.com/idem-go/idem/internal/sqltable/tabletest"
	"github.com/idem-go/idem/keystore"
	"github.com/idem-go/idem/keystore/keystoretest"
)

// serverDSN names the server that the tests share.
var serverDSN string

var backend = tabletest.Backend{
	Name:    "mysqlstore",
	Driver:  "mysql",
	NewDSN:  newDSN,
	Migrate: func(ctx context.Context, db *sql.DB) error { return Migrate(ctx, db, Config{}) },
	New:     func(db *sql.DB) (tabletest.Store, error) { return New(db, Config{}) },
	TxFrom:  TxFrom,
}

// tests are the tests with a server around them.
type tests struct{ *testing.M }

func (m tests) Run() int {
	if serverDSN = os.Getenv(servertest.MySQLEnv); serverDSN == "" {
		s, err := servertest.StartMariaDB(servertest.MariaDBOptions{})
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer s.Stop()
		serverDSN = s.DSN("")
	}
	return m.M.Run()
}

func TestMain(m *testing.M) {
	// What the driver has to say of the connections that the tests break.
	_ = mysql.SetLogger(log.New(io.Discard, "", 0))
	tabletest.Process(backend)
	goleak.VerifyTestMain(tests{m})
}

// TestContract runs the suite with everything that must not matter set in
// another way than is recommended.
// B144: the rows that are affected are those that were found.
// B153: and whatever the session's isolation level.
func TestContract(t *testing.T) {
	t.Parallel()
	dsn := newDSN(t) + "&interpolateParams=false&clientFoundRows=true&parseTime=true&sql_mode=%27%27" +
		"&time_zone=%27%2B13%3A00%27&tx_isolation=%27SERIALIZABLE%27&innodb_lock_wait_timeout=1"
	keystoretest.Run(t, func(t *testing.T) keystore.Store { return newStore(t, open(t, dsn), Config{}) })
}

func TestTable(t *testing.T)   { t.Parallel(); tabletest.Run(t, backend) }
func TestRaces(t *testing.T)   { t.Parallel(); tabletest.Races(t, backend) }
func TestCrashes(t *testing.T) { t.Parallel(); tabletest.Crashes(t, backend) }

func BenchmarkStore(b *testing.B) {
	keystoretest.Bench(b, func(b *testing.B) keystore.Store { return newStore(b, open(b, newDSN(b)), Config{}) })
}

var databases atomic.Int64

// newDSN creates a database and returns its data source name, with the
// settings that users need.
func newDSN(tb testing.TB) string { return newDatabase(tb, serverDSN) + "?interpolateParams=true" }

func newDatabase(tb testing.TB, dsn string) string {
	tb.Helper()
	admin := open(tb, dsn)
	name := fmt.Sprintf("idem_%d_%d", os.Getpid(), databases.Add(1))
	if _, err := admin.ExecContext(tb.Context(), "CREATE DATABASE "+name); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _, _ = admin.Exec("DROP DATABASE " + name) })
	return dsn + name
}

func open(tb testing.TB, dsn string) *sql.DB {
	tb.Helper()
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		tb.Fatal(err)
	}
	db.SetMaxIdleConns(16)
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
