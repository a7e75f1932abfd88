package txtest

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/mattn/go-sqlite3"

	"github.com/idem-go/idem/keystore"
	"github.com/idem-go/idem/keystore/mysqlstore"
	"github.com/idem-go/idem/keystore/pgstore"
	"github.com/idem-go/idem/keystore/sqlitestore"
)

// txStore is what Transaction mode needs.
type txStore interface {
	keystore.Store
	keystore.Transactor
}

// handle runs statements, on a pool or in a transaction.
type handle interface {
	exec(ctx context.Context, statement string, args ...any) error
	number(ctx context.Context, query string) (int, error)
}

// database is a store and the pool that it shares with the application.
type database struct {
	handle
	*backend
	store txStore
	// busy tells how many connections are in use.
	busy  func() int
	close func()
}

// backend is a database under test.
type backend struct {
	name string
	// newDSN returns the data source name of a new, empty database.
	newDSN func(testing.TB) string
	// connect opens a pool of this many connections, with the store on it.
	connect func(ctx context.Context, dsn string, conns int) (*database, error)
	migrate func(context.Context, *database) error
	// in returns the transaction that a handler's context carries.
	in func(context.Context) handle
	// try runs fn so that the transaction outlives its error.
	try func(ctx context.Context, fn func(handle) error) error
	// arg stands for a statement's argument, hex for a record's ID as text.
	arg, hex string
	// serializable is added to a data source name to make it the default.
	serializable string
	// oneWriter: a transaction keeps others from writing until its end.
	oneWriter bool
	// start starts a server of one's own; nil where there is none.
	start func(testing.TB) (victim, string)
}

// victim is a server that a test can do away with.
type victim interface {
	Kill()
	Restart() error
}

const (
	// effects are the rows that a handler writes, with nothing to keep a second
	// one away; seats can be taken once.
	effectsTable = "CREATE TABLE effects (ref VARCHAR(100) NOT NULL)"
	seatsTable   = "CREATE TABLE seats (seat VARCHAR(100) NOT NULL PRIMARY KEY)"
)

// open opens a new database with its tables.
func (b *backend) open(t testing.TB) (db *database, dsn string) {
	t.Helper()
	dsn = b.newDSN(t)
	return b.create(t, dsn, 16), dsn
}

// create opens a database and makes its tables.
func (b *backend) create(t testing.TB, dsn string, conns int) *database {
	t.Helper()
	db := b.reopen(t, dsn, conns)
	if err := b.migrate(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	for _, statement := range []string{effectsTable, seatsTable} {
		if err := db.exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	return db
}

// reopen opens one that has its tables, as another process does.
func (b *backend) reopen(t testing.TB, dsn string, conns int) *database {
	t.Helper()
	db, err := b.connect(t.Context(), dsn, conns)
	if err != nil {
		t.Fatal(err)
	}
	db.backend = b
	t.Cleanup(db.close)
	return db
}

// effect has the effect of ref, in the transaction of ctx.
func (b *backend) effect(ctx context.Context, ref string) error {
	return b.in(ctx).exec(ctx, "INSERT INTO effects (ref) VALUES ("+b.arg+")", ref)
}

// takeSeat takes what can be taken once.
func (b *backend) takeSeat(ctx context.Context, h handle, seat string) error {
	return h.exec(ctx, "INSERT INTO seats (seat) VALUES ("+b.arg+")", seat)
}

// taken tells whether the error says that a row exists already.
func taken(err error) bool {
	var pg *pgconn.PgError
	var my *mysql.MySQLError
	var lite sqlite3.Error
	return errors.As(err, &pg) && pg.Code == "23505" || errors.As(err, &my) && my.Number == 1062 ||
		errors.As(err, &lite) && lite.Code == sqlite3.ErrConstraint
}

// sqlHandle is a *sql.DB or a *sql.Tx.
type sqlHandle struct {
	q interface {
		ExecContext(context.Context, string, ...any) (sql.Result, error)
		QueryRowContext(context.Context, string, ...any) *sql.Row
	}
}

func (h sqlHandle) exec(ctx context.Context, statement string, args ...any) error {
	_, err := h.q.ExecContext(ctx, statement, args...)
	return err
}

func (h sqlHandle) number(ctx context.Context, query string) (n int, err error) {
	err = h.q.QueryRowContext(ctx, query).Scan(&n)
	return n, err
}

// pgHandle is a *pgxpool.Pool or a pgx.Tx.
type pgHandle struct {
	q interface {
		Exec(context.Context, string, ...any) (pgconn.CommandTag, error)
		QueryRow(context.Context, string, ...any) pgx.Row
	}
}

func (h pgHandle) exec(ctx context.Context, statement string, args ...any) error {
	_, err := h.q.Exec(ctx, statement, args...)
	return err
}

func (h pgHandle) number(ctx context.Context, query string) (n int, err error) {
	err = h.q.QueryRow(ctx, query).Scan(&n)
	return n, err
}

var postgres = &backend{
	name: "postgres", arg: "$1", hex: "encode(id, 'hex')",
	serializable: "&default_transaction_isolation=serializable",
	newDSN:       func(t testing.TB) string { return newSchema(t, postgresURL) },
	connect: func(ctx context.Context, dsn string, conns int) (*database, error) {
		cfg, err := pgxpool.ParseConfig(dsn)
		if err != nil {
			return nil, err
		}
		cfg.MaxConns = int32(conns)
		pool, err := pgxpool.NewWithConfig(ctx, cfg)
		if err != nil {
			return nil, err
		}
		store, err := pgstore.New(pool, pgstore.Config{})
		return &database{handle: pgHandle{pool}, store: store, close: pool.Close,
			busy: func() int { return int(pool.Stat().AcquiredConns()) }}, err
	},
	migrate: func(ctx context.Context, db *database) error {
		return pgstore.Migrate(ctx, db.handle.(pgHandle).q.(*pgxpool.Pool), pgstore.Config{})
	},
	in: func(ctx context.Context) handle {
		tx, _ := pgstore.TxFrom(ctx)
		return pgHandle{tx}
	},
	// An error spoils a transaction of PostgreSQL, unless it is in a savepoint.
	try: func(ctx context.Context, fn func(handle) error) error {
		tx, _ := pgstore.TxFrom(ctx)
		return pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error { return fn(pgHandle{tx}) })
	},
	start: startPostgres,
}

var mariadb = &backend{
	name: "mariadb", arg: "?", hex: "lower(hex(id))",
	serializable: "&tx_isolation=%27SERIALIZABLE%27",
	newDSN:       func(t testing.TB) string { return newMariaDatabase(t, mariaDSN) },
	connect: func(_ context.Context, dsn string, conns int) (*database, error) {
		return openSQL("mysql", dsn, conns, func(db *sql.DB) (txStore, error) { return mysqlstore.New(db, mysqlstore.Config{}) })
	},
	migrate: func(ctx context.Context, db *database) error {
		return mysqlstore.Migrate(ctx, db.handle.(sqlHandle).q.(*sql.DB), mysqlstore.Config{})
	},
	in: func(ctx context.Context) handle {
		tx, _ := mysqlstore.TxFrom(ctx)
		return sqlHandle{tx}
	},
	try: func(ctx context.Context, fn func(handle) error) error {
		tx, _ := mysqlstore.TxFrom(ctx)
		return fn(sqlHandle{tx})
	},
	start: startMariaDB,
}

var sqlite = &backend{
	name: "sqlite", arg: "?", hex: "lower(hex(id))", oneWriter: true,
	newDSN: func(t testing.TB) string {
		// It survives the death of a process, which is all that dies here. The
		// store needs no timeout, but the application's own statements do.
		return "file:" + filepath.Join(t.TempDir(), "shop.db") + "?_busy_timeout=200&_synchronous=NORMAL"
	},
	connect: func(_ context.Context, dsn string, conns int) (*database, error) {
		return openSQL("sqlite3", dsn, conns, func(db *sql.DB) (txStore, error) { return sqlitestore.New(db, sqlitestore.Config{}) })
	},
	migrate: func(ctx context.Context, db *database) error {
		return sqlitestore.Migrate(ctx, db.handle.(sqlHandle).q.(*sql.DB), sqlitestore.Config{Volatile: true})
	},
	in: func(ctx context.Context) handle {
		tx, _ := sqlitestore.TxFrom(ctx)
		return sqlHandle{tx}
	},
	try: func(ctx context.Context, fn func(handle) error) error {
		tx, _ := sqlitestore.TxFrom(ctx)
		return fn(sqlHandle{tx})
	},
}

func openSQL(driver, dsn string, conns int, newStore func(*sql.DB) (txStore, error)) (*database, error) {
	db, err := sql.Open(driver, dsn)
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(conns)
	db.SetMaxIdleConns(conns)
	store, err := newStore(db)
	return &database{handle: sqlHandle{db}, store: store, close: func() { db.Close() },
		busy: func() int { return db.Stats().InUse }}, err
}

// newSchema returns the URL of a new schema on a PostgreSQL server.
func newSchema(t testing.TB, url string) string {
	t.Helper()
	name := "idem_" + strings.ToLower(rand.Text())
	admin := func(statement string) {
		conn, err := pgx.Connect(context.Background(), url)
		if err == nil {
			_, err = conn.Exec(context.Background(), statement)
			_ = conn.Close(context.Background())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	admin("CREATE SCHEMA " + name)
	t.Cleanup(func() { admin("DROP SCHEMA " + name + " CASCADE") })
	sep := "?"
	if strings.Contains(url, "?") {
		sep = "&"
	}
	return url + sep + "search_path=" + name
}

// newMariaDatabase returns the data source name of a new database.
func newMariaDatabase(t testing.TB, dsn string) string {
	t.Helper()
	name := "idem_" + strings.ToLower(rand.Text())
	mariaAdmin(t, dsn, "CREATE DATABASE "+name)
	t.Cleanup(func() { mariaAdmin(t, dsn, "DROP DATABASE "+name) })
	return dsn + name + mariaSettings
}

const mariaSettings = "?interpolateParams=true"

func mariaAdmin(t testing.TB, dsn, statement string) {
	t.Helper()
	db, err := sql.Open("mysql", dsn)
	if err == nil {
		_, err = db.Exec(statement)
		db.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
}
