package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/keystore"
	"github.com/idem-go/idem/keystore/pgstore"
)

// pgStores is PostgreSQL beside an INSERT … ON CONFLICT DO NOTHING and an
// UPDATE. A commit waits for the disk unless the name says otherwise.
func pgStores() []group {
	alone := pgBackend("pgstore", 0, 16, false)
	alone.stores[0].fresh = []check{ratio(byHand).within(1.10)}
	alone.stores = append(alone.stores, variant{name: byStore + ", Batch", open: openPg(16, false, pgstore.Config{Batch: true})})
	groups := slices.Concat(alone.groups(), pgBackend("pgstore, synchronous_commit=off", 0, 16, true).groups())
	for _, of := range []struct {
		conns int32
		times float64
	}{{16, 3.5}, {64, 5}} {
		many := pgBackend(fmt.Sprintf("pgstore, 64 goroutines, pool of %d", of.conns), crowd, of.conns, false)
		many.stores = append(many.stores, variant{
			name: byStore + ", Batch", fresh: []check{speed(byHand).atLeast(of.times)}, replay: []check{ratio(byHand).within(1.35)},
			open: openPg(of.conns, false, pgstore.Config{Batch: true}),
		})
		many.stores[0].fresh = []check{speed(byHand)}
		groups = append(groups, many.groups()...)
	}
	return append(groups, group{name: "pgstore, what replays write", servers: true, whole: replayWAL})
}

func pgBackend(name string, callers int, conns int32, lazy bool) backend {
	return backend{
		name: name, callers: callers,
		hand: func(s *stage) (hand, error) {
			pool, err := newPool(s, conns, lazy)
			if err != nil {
				return nil, err
			}
			return newPgHand(s, pool)
		},
		stores: []variant{{name: byStore, open: openPg(conns, lazy, pgstore.Config{})}},
	}
}

// openPg opens a store on a pool of its own.
func openPg(conns int32, lazy bool, cfg pgstore.Config) func(*stage) (keystore.Store, error) {
	return func(s *stage) (keystore.Store, error) {
		pool, err := newPool(s, conns, lazy)
		if err != nil {
			return nil, err
		}
		store, _, err := newPgStore(s, pool, cfg)
		return store, err
	}
}

// newPool is a pool with all of its connections open. A lazy one does not wait
// for the disk.
func newPool(s *stage, conns int32, lazy bool) (*pgxpool.Pool, error) {
	url, err := s.shared.postgresURL()
	if err != nil {
		return nil, err
	}
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	cfg.MaxConns, cfg.MinConns = conns, conns
	if lazy {
		cfg.ConnConfig.RuntimeParams["synchronous_commit"] = "off"
	}
	pool, err := pgxpool.NewWithConfig(s, cfg)
	if err == nil {
		s.onEnd(pool.Close)
	}
	return pool, err
}

// newPgStore is a store in a table of its own.
func newPgStore(s *stage, pool *pgxpool.Pool, cfg pgstore.Config) (store *pgstore.Store, table string, err error) {
	cfg.Table = "idem_" + rand.Text()
	if err := pgstore.Migrate(s, pool, cfg); err != nil {
		return nil, "", err
	}
	dropAtEnd(s, pool, cfg.Table)
	store, err = pgstore.New(pool, cfg)
	return store, cfg.Table, err
}

// dropAtEnd keeps the server from growing from round to round.
func dropAtEnd(s *stage, pool *pgxpool.Pool, table string) {
	s.onEnd(func() { _, _ = pool.Exec(context.WithoutCancel(s), "DROP TABLE "+pgx.Identifier{table}.Sanitize()) })
}

// pgHand is what a table by hand takes.
type pgHand struct {
	pool                   *pgxpool.Pool
	insertQ, updateQ, getQ string
}

func newPgHand(s *stage, pool *pgxpool.Pool) (*pgHand, error) {
	name := "hand_" + rand.Text()
	table := pgx.Identifier{name}.Sanitize()
	if _, err := pool.Exec(s, "CREATE TABLE "+table+` (id bytea PRIMARY KEY, fingerprint bytea NOT NULL,
		state smallint NOT NULL, created timestamptz NOT NULL DEFAULT now(), result bytea)`); err != nil {
		return nil, err
	}
	dropAtEnd(s, pool, name)
	return &pgHand{
		pool:    pool,
		insertQ: "INSERT INTO " + table + " (id, fingerprint, state) VALUES ($1, $2, 1) ON CONFLICT DO NOTHING",
		updateQ: "UPDATE " + table + " SET state = 2, result = $2 WHERE id = $1",
		getQ:    "SELECT fingerprint, state, result FROM " + table + " WHERE id = $1",
	}, nil
}

func (h *pgHand) insert(ctx context.Context, id, fingerprint []byte) error {
	return h.exec(ctx, h.insertQ, id, fingerprint)
}

func (h *pgHand) update(ctx context.Context, id, result []byte) error {
	return h.exec(ctx, h.updateQ, id, result)
}

func (h *pgHand) exec(ctx context.Context, sql string, args ...any) error {
	tag, err := h.pool.Exec(ctx, sql, args...)
	if err == nil && tag.RowsAffected() != 1 {
		err = fmt.Errorf("%q changed %d rows", sql, tag.RowsAffected())
	}
	return err
}

func (h *pgHand) read(ctx context.Context, id []byte) error {
	var fingerprint, result []byte
	var state int16
	err := h.pool.QueryRow(ctx, h.getQ, id).Scan(&fingerprint, &state, &result)
	if err == nil && len(result) == 0 {
		err = errAbsent
	}
	return err
}

// replayWAL measures how far replays move the server's log: what they write,
// later or at once, to the disk. The median leaves out what the server writes
// there for itself every few seconds.
func replayWAL(s *stage, o options) ([]row, error) {
	pool, err := newPool(s, 16, false)
	if err != nil {
		return nil, err
	}
	store, _, err := newPgStore(s, pool, pgstore.Config{})
	if err != nil {
		return nil, err
	}
	replay, err := replayByStore(s, store)
	if err != nil {
		return nil, err
	}
	var moved []float64
	for n := range 1 + o.rounds { // the first one meets rows that nobody has read
		from, err := walEnd(s, pool)
		if err != nil {
			return nil, err
		}
		for i := range 4 * kept {
			if err := replay(i); err != nil {
				return nil, err
			}
		}
		to, err := walEnd(s, pool)
		if err != nil {
			return nil, err
		}
		if n > 0 {
			moved = append(moved, to-from)
		}
	}
	ops := 4 * kept * o.rounds
	return []row{{
		Group: "pgstore, what replays write", Name: fmt.Sprintf("WAL of %d replays", 4*kept), Ops: ops,
		Checks: []result{check{unit: bytesPer}.within(0).judge(median(slices.Clone(moved)))},
	}}, nil
}

// walEnd is where the server's log ends, in bytes.
func walEnd(ctx context.Context, pool *pgxpool.Pool) (end float64, err error) {
	err = pool.QueryRow(ctx, "SELECT (pg_current_wal_insert_lsn() - '0/0')::float8").Scan(&end)
	return end, err
}
