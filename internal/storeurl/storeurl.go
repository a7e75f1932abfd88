// Package storeurl opens the store that a URL names, for commands and examples.
// Libraries take handles; only programs open them.
package storeurl

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
	_ "modernc.org/sqlite" // the driver "sqlite"

	"github.com/idem-go/idem/keystore"
	"github.com/idem-go/idem/keystore/memstore"
	"github.com/idem-go/idem/keystore/mysqlstore"
	"github.com/idem-go/idem/keystore/pgstore"
	"github.com/idem-go/idem/keystore/redisstore"
	"github.com/idem-go/idem/keystore/sqlitestore"
)

// Usage says which URLs Open takes.
const Usage = `memory:, sqlite:PATH, postgres:URL, redis:URL or mysql:DSN; for example
	sqlite:/var/lib/app/idem.db
	postgres://user:password@host:5432/database
	redis://:password@host:6379/0
	mysql://user:password@host:3306/database
Add ?idem=NAME for a table (for Redis: a key prefix) other than the default.`

// ErrURL: the URL names no store; the text says what was expected.
var ErrURL = errors.New("storeurl: not the URL of a store")

// Opened is an open store and what its handle needs.
type Opened struct {
	// Store has the optional interfaces that the store has.
	Store keystore.Store
	// Kind is memory, sqlite, postgres, redis or mysql.
	Kind string
	// Migrate creates or checks the schema; Redis and memory have none.
	Migrate func(context.Context) error
	// Listen hears of the changes that other processes make until its context
	// ends; nil where the store can't.
	Listen func(context.Context) error
	// Close closes the handle. Call it once.
	Close func() error

	// At most one of these is set: the handle that the store was made with.
	SQL      *sql.DB
	Postgres *pgxpool.Pool
	Redis    redis.UniversalClient
}

// Open opens a store. Nothing is connected or created yet, except that a file
// of SQLite may be.
func Open(ctx context.Context, rawURL string) (*Opened, error) {
	kind, rest, ok := strings.Cut(rawURL, ":")
	if !ok {
		return nil, fmt.Errorf("%w: %q has no scheme; use %s", ErrURL, redacted(rawURL), Usage)
	}
	rest, name, err := takeName(rest)
	if err != nil {
		return nil, err
	}
	switch kind {
	case "memory", "mem":
		return openMemory()
	case "sqlite", "sqlite3":
		return openSQLite(rest, name)
	case "postgres", "postgresql":
		return openPostgres(ctx, rest, name)
	case "redis", "rediss":
		return openRedis(kind, rest, name)
	case "mysql", "mariadb":
		return openMySQL(rest, name)
	}
	return nil, fmt.Errorf("%w: unknown scheme %q; use %s", ErrURL, kind, Usage)
}

// takeName takes the parameter idem out of a URL and leaves the rest as it was
// written, since a data source name need not be a URL.
func takeName(rest string) (without, name string, err error) {
	head, query, ok := strings.Cut(rest, "?")
	if !ok {
		return rest, "", nil
	}
	var kept []string
	for _, p := range strings.Split(query, "&") {
		v, ok := strings.CutPrefix(p, "idem=")
		if !ok {
			kept = append(kept, p)
			continue
		}
		if name, err = url.QueryUnescape(v); err != nil || name == "" {
			return "", "", fmt.Errorf("%w: the parameter idem=%s names no table or prefix", ErrURL, v)
		}
	}
	if len(kept) == 0 {
		return head, name, nil
	}
	return head + "?" + strings.Join(kept, "&"), name, nil
}

func openMemory() (*Opened, error) {
	s, err := memstore.New(memstore.Config{})
	if err != nil {
		return nil, err
	}
	return &Opened{Store: s, Kind: "memory", Migrate: func(context.Context) error { return nil }, Close: func() error { return nil }}, nil
}

// sqliteSettings make a commit survive a power failure, writers wait for each
// other, and transactions take the write lock at their start.
const sqliteSettings = "_pragma=busy_timeout(10000)&_pragma=synchronous(FULL)&_txlock=immediate"

func openSQLite(rest, name string) (*Opened, error) {
	path := strings.TrimPrefix(rest, "//")
	path, params, _ := strings.Cut(path, "?")
	if path == "" {
		return nil, fmt.Errorf("%w: sqlite: needs the path of a file; use sqlite:PATH", ErrURL)
	}
	if params != "" {
		params = "&" + params
	}
	db, err := sql.Open("sqlite", "file:"+(&url.URL{Path: path}).EscapedPath()+"?"+sqliteSettings+params)
	if err != nil {
		return nil, err
	}
	cfg := sqlitestore.Config{Table: name}
	s, err := sqlitestore.New(db, cfg)
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return &Opened{Store: s, Kind: "sqlite", SQL: db, Close: db.Close,
		Migrate: func(ctx context.Context) error { return sqlitestore.Migrate(ctx, db, cfg) }}, nil
}

func openPostgres(ctx context.Context, rest, name string) (*Opened, error) {
	// postgres:URL, with or without a scheme of its own.
	dsn := "postgres:" + rest
	if strings.HasPrefix(rest, "postgres:") || strings.HasPrefix(rest, "postgresql:") {
		dsn = rest
	}
	if _, err := url.Parse(dsn); err != nil {
		return nil, unreadable("postgres", err)
	}
	pool, err := pgxpool.New(ctx, dsn)
	if err != nil {
		return nil, unreadable("postgres", err)
	}
	closePool := func() error { pool.Close(); return nil }
	cfg := pgstore.Config{Table: name}
	s, err := pgstore.New(pool, cfg)
	if err != nil {
		return nil, errors.Join(err, closePool())
	}
	return &Opened{Store: s, Kind: "postgres", Postgres: pool, Close: closePool, Listen: s.Listen,
		Migrate: func(ctx context.Context) error { return pgstore.Migrate(ctx, pool, cfg) }}, nil
}

func openRedis(kind, rest, name string) (*Opened, error) {
	dsn := kind + ":" + rest
	if strings.HasPrefix(rest, "redis:") || strings.HasPrefix(rest, "rediss:") {
		dsn = rest
	}
	opts, err := redis.ParseURL(dsn)
	if err != nil {
		return nil, unreadable("redis", err)
	}
	client := redis.NewClient(opts)
	s, err := redisstore.New(client, redisstore.Config{Prefix: name})
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	return &Opened{Store: s, Kind: "redis", Redis: client, Close: client.Close, Listen: s.Listen,
		Migrate: func(ctx context.Context) error { return client.Ping(ctx).Err() }}, nil
}

func openMySQL(rest, name string) (*Opened, error) {
	dsn, err := mysqlDSN(rest)
	if err != nil {
		return nil, err
	}
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		return nil, fmt.Errorf("%w: mysql: %w", ErrURL, err)
	}
	cfg := mysqlstore.Config{Table: name}
	s, err := mysqlstore.New(db, cfg)
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return &Opened{Store: s, Kind: "mysql", SQL: db, Close: db.Close,
		Migrate: func(ctx context.Context) error { return mysqlstore.Migrate(ctx, db, cfg) }}, nil
}

// mysqlDSN is the driver's data source name of mysql://user:password@host/db,
// or of mysql:DSN, which it is already.
func mysqlDSN(rest string) (string, error) {
	rest = strings.TrimPrefix(strings.TrimPrefix(rest, "mysql:"), "mariadb:")
	if !strings.HasPrefix(rest, "//") {
		if _, err := mysql.ParseDSN(rest); err != nil {
			return "", fmt.Errorf("%w: mysql: %w", ErrURL, err)
		}
		return rest, nil
	}
	u, err := url.Parse("mysql:" + rest)
	if err != nil {
		return "", unreadable("mysql", err)
	}
	cfg := mysql.NewConfig()
	cfg.Net, cfg.Addr = "tcp", u.Host
	if u.Port() == "" {
		cfg.Addr = u.Hostname() + ":3306"
	}
	cfg.User = u.User.Username()
	cfg.Passwd, _ = u.User.Password()
	cfg.DBName = strings.TrimPrefix(u.Path, "/")
	cfg.InterpolateParams = true // one round trip a statement
	dsn := cfg.FormatDSN()
	if u.RawQuery != "" {
		sep := "?"
		if strings.Contains(dsn, "?") {
			sep = "&"
		}
		dsn += sep + u.RawQuery
	}
	if _, err := mysql.ParseDSN(dsn); err != nil {
		return "", fmt.Errorf("%w: mysql: %w", ErrURL, err)
	}
	return dsn, nil
}

// unreadable is why a URL can't be read. What net/url says of it may hold a part
// of the password.
func unreadable(kind string, err error) error {
	var parse *url.Error
	if errors.As(err, &parse) {
		err = errors.New("it can't be read; write what a user or password has of / ? # @ : and % as %2F and so on")
	}
	return fmt.Errorf("%w: %s: %w", ErrURL, kind, err)
}

// redacted is a text that may hold a password, as far as it may be shown.
func redacted(s string) string {
	if at := strings.LastIndexByte(s, '@'); at >= 0 {
		return "…" + s[at:]
	}
	return s
}
