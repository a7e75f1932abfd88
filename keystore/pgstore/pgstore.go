// Package pgstore keeps the records of package keystore in PostgreSQL, 12 or
// newer, through a pgxpool.Pool.
//
//	if err := pgstore.Migrate(ctx, pool, pgstore.Config{}); err != nil { … }
//	store, err := pgstore.New(pool, pgstore.Config{})
//
// A record is one row. Claim, Renew, Complete and Release are one statement
// and one round trip each, or share them with others (see Config.Batch), and
// a replay writes nothing. Every decision is made
// by the server and its clock, under every default isolation level; where the
// server aborts a statement in favour of another one, it is repeated inside.
//
// # Poolers
//
// The store depends on nothing that a session keeps, so it works behind a
// pooler that hands out connections per transaction. Statements are sent as the
// pool is set up to send them, which is prepared if nothing else was said
// (pgx.ConnConfig.DefaultQueryExecMode). Where a prepared statement turns out
// to be in another session, the store goes on without them; it then costs the
// server the planning of every statement. Listen alone needs a session of its
// own: do without it behind such a pooler.
//
// # Transactions
//
// The store is a keystore.Transactor. Inside InTx the application writes its
// effect with the pgx.Tx of TxFrom, and the effect and its record are committed
// together or not at all.
//
// # Waiting
//
// The store is a keystore.Waiter. It wakes who watches in the same process; who
// watches elsewhere is woken where both processes run Listen, and polls
// otherwise.
package pgstore

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/internal/batch"
	"github.com/idem-go/idem/keystore"
)

// Config describes where and what a Store stores. The zero Config is valid.
type Config struct {
	// Table is the table of the records, found by the search path of the
	// pool's connections; "" means "idem_records". It has at most 50 letters,
	// digits and underscores.
	Table string
	// MaxResult is the size of the largest Result in bytes, at most 256 MiB; 0
	// means keystore.MaxResult. Over it Complete answers keystore.ErrTooLarge.
	// A smaller one than keystore.MaxResult is less than the contract promises.
	MaxResult int
	// Batch lets calls of Claim and Complete that are made while another of their kind
	// is under way wait for that to return, and then go together: up to 128 records
	// and 1 MiB in one statement and one commit. Each is answered as it would be
	// alone. A call that finds none under way goes at once. Turn it on for a store
	// that has ten callers and more at a time: 64 of them take a third of the time.
	// With two to eight it is about even, or slower. See docs/performance.md.
	//
	// A caller whose context ends leaves its batch at once, and the others stay. So a
	// batch has a context of its own, in which a tracer of the pool finds no
	// caller's values. Where the pool has a PrepareConn or BeforeAcquire hook there
	// are no batches, because the hook may choose by such values.
	//
	// Batches work behind a pooler, too. They are two more statements that each
	// connection prepares, under names that pgx makes up. A call that waits keeps a
	// copy of its Meta or Result. A batch brings each call at most 64 KiB of Result,
	// and a larger one is asked for again alone. Where the server refuses a batch, for
	// whatever reason, or some record is held by a transaction for 200 ms, each call
	// is made alone, and the others do not wait for it.
	Batch bool
}

const (
	defaultTable = "idem_records"
	// maxTable leaves room for what the names of the indexes add, within the
	// 63 bytes of a name.
	maxTable = 50
	// maxResult is well below the gigabyte that a value, written in
	// hexadecimal, can have.
	maxResult = 256 << 20
)

// check fills in the defaults.
func (cfg *Config) check() error {
	if cfg.Table == "" {
		cfg.Table = defaultTable
	}
	if cfg.MaxResult == 0 {
		cfg.MaxResult = keystore.MaxResult
	}
	for _, c := range cfg.Table {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '_' {
			return fmt.Errorf("pgstore: Config.Table is %q; use only letters, digits and underscores", cfg.Table)
		}
	}
	switch {
	case len(cfg.Table) > maxTable:
		return fmt.Errorf("pgstore: Config.Table has %d characters; use at most %d", len(cfg.Table), maxTable)
	case cfg.MaxResult < 0 || cfg.MaxResult > maxResult:
		return fmt.Errorf("pgstore: Config.MaxResult is %d; use 0 for the default or a number up to %d", cfg.MaxResult, maxResult)
	}
	return nil
}

// Store is a keystore.Store, keystore.Waiter and keystore.Transactor in a
// PostgreSQL table. It is safe for concurrent use, owns no connection, has a
// goroutine only while a batch is under way, and needs no closing; the pool is
// its user's.
type Store struct {
	*shared
	// tx is set in the store of an InTx.
	tx *transaction
}

// shared is what a Store has in common with the stores of its transactions.
type shared struct {
	cfg     Config
	sql     statements
	pool    *pgxpool.Pool
	changes changes
	// batches tells whether claims and completes are used; see Config.Batch.
	batches   bool
	claims    batch.Group[keystore.ClaimParams, answer]
	completes batch.Group[completion, int64]
	// unprepared is set when prepared statements have turned out not to work.
	unprepared atomic.Bool
}

var (
	_ keystore.Store      = (*Store)(nil)
	_ keystore.Waiter     = (*Store)(nil)
	_ keystore.Transactor = (*Store)(nil)
)

// New returns the store in the pool's database. It opens no connection; the
// table must have been created, by Migrate or from Schema. It fails where pool
// is nil or a field of cfg is out of range.
func New(pool *pgxpool.Pool, cfg Config) (*Store, error) {
	if pool == nil {
		return nil, errNoPool
	}
	if err := cfg.check(); err != nil {
		return nil, err
	}
	s := &Store{shared: &shared{cfg: cfg, sql: newStatements(cfg.Table), pool: pool}}
	of := pool.Config()
	//lint:ignore SA1019 who still uses it must not be surprised
	s.batches = cfg.Batch && of.PrepareConn == nil && of.BeforeAcquire == nil
	s.claims = batch.Group[keystore.ClaimParams, answer]{
		Left: left("claim"), Alone: s.claimAlone, Together: s.claimTogether, Keep: keepClaim, Limit: maxBatches,
	}
	s.completes = batch.Group[completion, int64]{
		Left: left("complete"), Alone: s.completeAlone, Together: s.completeTogether, Keep: keepCompletion, Limit: maxBatches,
	}
	return s, nil
}

// maxBatches is how many batches of a kind are under way: the server, and who
// waits, is better off with few large ones than with many.
const maxBatches = 2

// left is what the caller of an op is told who has left a batch.
func left(op string) func(error) error {
	return func(err error) error { return failed(op, err) }
}

var errNoPool = errors.New("pgstore: pool is nil; use the one that pgxpool.New returns")

// quoted returns a name that was checked as SQL, so that its case is kept.
func quoted(name string) string { return `"` + name + `"` }
