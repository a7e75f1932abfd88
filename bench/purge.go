package main

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/keystore"
	"github.com/idem-go/idem/keystore/pgstore"
)

const (
	purgeName = "pgstore, purge while serving"
	// purgeBatch is that of a keystore.Sweeper.
	purgeBatch = 1000
	// claimers is how many goroutines claim meanwhile.
	claimers = 4
)

// purges is what a purge of many expired rows does to claims.
func purges() []group {
	return []group{{name: purgeName, servers: true, whole: purgeWhileServing}}
}

// purgeWhileServing purges a million rows, a part in each round, and claims all
// the while; before each part it claims for as long without a purge.
func purgeWhileServing(s *stage, o options) ([]row, error) {
	pool, err := newPool(s, 16, false)
	if err != nil {
		return nil, err
	}
	expired := 1_000_000 / o.scale
	table, err := expiredRows(s, pool, expired)
	if err != nil {
		return nil, err
	}
	store, err := pgstore.New(pool, pgstore.Config{Table: table})
	if err != nil {
		return nil, err
	}
	load := &claimLoad{store: store, name: names()}
	var idle, busy []time.Duration
	var took time.Duration
	removed := 0
	quiet := time.Second
	for n := range o.rounds {
		stop := time.Now().Add(quiet)
		calm, err := load.during(s, func() error { return sleep(s, time.Until(stop)) })
		if err != nil {
			return nil, err
		}
		start := time.Now()
		goal := expired * (n + 1) / o.rounds
		loaded, err := load.during(s, func() error {
			for removed < goal {
				n, err := store.Purge(s, purgeBatch)
				if err != nil {
					return err
				}
				if n == 0 {
					return errNothing
				}
				removed += n
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		quiet = time.Since(start)
		took += quiet
		idle, busy = append(idle, calm...), append(busy, loaded...)
	}
	p99 := func(of []time.Duration) float64 { slices.Sort(of); return float64(of[len(of)*99/100]) }
	calm, loaded := p99(idle), p99(busy)
	return []row{
		{Group: purgeName, Name: "p99 of claims, idle", Nanos: calm, Ops: len(idle)},
		{Group: purgeName, Name: "p99 of claims while purging", Nanos: loaded, Ops: len(busy), Checks: []result{
			check{against: "p99 of claims, idle", unit: times}.within(2).judge(loaded / calm),
		}},
		{Group: purgeName, Name: "a purged row", Nanos: float64(took) / float64(removed), Ops: removed},
	}, nil
}

var errNothing = errors.New("there was nothing to purge")

// expiredRows makes a table of records that have expired: copies of one that
// the store has made.
func expiredRows(s *stage, pool *pgxpool.Pool, n int) (table string, err error) {
	store, table, err := newPgStore(s, pool, pgstore.Config{})
	if err != nil {
		return "", err
	}
	claim, err := store.Claim(s, claimOf(names()(0)))
	if err != nil {
		return "", err
	}
	if err := store.Complete(s, claim.Owner, keystore.CompleteParams{Result: stored[:100], Retention: time.Microsecond}); err != nil {
		return "", err
	}
	conn, err := pool.Acquire(s)
	if err != nil {
		return "", err
	}
	defer conn.Release()
	quoted := pgx.Identifier{table}.Sanitize()
	for _, sql := range []string{
		"CREATE TEMP TABLE one AS SELECT * FROM " + quoted,
		"ALTER TABLE one DROP COLUMN id", // the first one
		"DELETE FROM " + quoted,
	} {
		if _, err := conn.Exec(s, sql); err != nil {
			return "", err
		}
	}
	if _, err := conn.Exec(s, "INSERT INTO "+quoted+" SELECT sha256(int8send(n)), one.* FROM one, generate_series(1, $1::bigint) AS n", n); err != nil {
		return "", err
	}
	_, err = conn.Exec(s, "VACUUM ANALYZE "+quoted)
	return table, err
}

// claimLoad are callers with new intents.
type claimLoad struct {
	store keystore.Store
	name  func(int) [32]byte
	next  int
}

// during claims and completes for as long as f runs, and returns how long each
// claim took.
func (l *claimLoad) during(ctx context.Context, f func() error) ([]time.Duration, error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var mu sync.Mutex // guards the rest
	var took []time.Duration
	var failed error
	var all sync.WaitGroup
	for range claimers {
		all.Go(func() {
			for ctx.Err() == nil {
				mu.Lock()
				id := l.name(l.next)
				l.next++
				mu.Unlock()
				d, err := l.claim(context.WithoutCancel(ctx), id)
				mu.Lock()
				took, failed = append(took, d), errors.Join(failed, err)
				mu.Unlock()
				if err != nil {
					return
				}
			}
		})
	}
	err := f()
	stop()
	all.Wait()
	return took, errors.Join(err, failed)
}

func (l *claimLoad) claim(ctx context.Context, id [32]byte) (time.Duration, error) {
	start := time.Now()
	claim, err := l.store.Claim(ctx, claimOf(id))
	d := time.Since(start)
	if err != nil {
		return d, err
	}
	return d, l.store.Complete(ctx, claim.Owner, keystore.CompleteParams{Result: stored[:100], Retention: retention})
}

// sleep waits, or until ctx is done.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
