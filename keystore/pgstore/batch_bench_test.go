package pgstore

import (
	"crypto/rand"
	"fmt"
	"runtime"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/internal/servertest"
	"github.com/idem-go/idem/keystore"
)

// BenchmarkClaimComplete measures a new intent from claim to result, on a server
// that waits for its disk: by hand (an INSERT … ON CONFLICT DO NOTHING and an
// UPDATE), without batches, and with them.
func BenchmarkClaimComplete(b *testing.B) {
	server := servertest.Postgres(b, "fsync=on", "full_page_writes=on", "synchronous_commit=on")
	for _, load := range []struct{ callers, conns int }{{1, 16}, {16, 16}, {64, 16}, {64, 64}, {256, 16}} {
		pool := newPool(b, server.URL, conns(int32(load.conns)))
		for _, way := range []struct {
			name  string
			setup func(*testing.B, *pgxpool.Pool) func() error
		}{
			{"pair", byHand},
			{"off", func(b *testing.B, p *pgxpool.Pool) func() error { return byStore(b, p, Config{}) }},
			{"on", func(b *testing.B, p *pgxpool.Pool) func() error { return byStore(b, p, Config{Batch: true}) }},
		} {
			b.Run(fmt.Sprintf("callers=%d/conns=%d/%s", load.callers, load.conns, way.name), func(b *testing.B) {
				once := way.setup(b, pool)
				b.ReportAllocs()
				if load.callers == 1 {
					for b.Loop() {
						if err := once(); err != nil {
							b.Fatal(err)
						}
					}
					return
				}
				b.SetParallelism(load.callers / runtime.GOMAXPROCS(0))
				b.RunParallel(func(pb *testing.PB) {
					for pb.Next() {
						if err := once(); err != nil {
							b.Error(err)
							return
						}
					}
				})
			})
		}
	}
}

// benchResult is what is stored.
var benchResult = make([]byte, 1<<10)

// byStore returns the function that does it once.
func byStore(b *testing.B, pool *pgxpool.Pool, cfg Config) func() error {
	cfg.Table = "idem_" + rand.Text()
	if err := Migrate(b.Context(), pool, cfg); err != nil {
		b.Fatal(err)
	}
	s := openStore(b, pool, cfg)
	return func() error {
		c, err := s.Claim(b.Context(), params())
		if err == nil && c.Status != keystore.Acquired {
			err = fmt.Errorf("a new claim answered %v", c.Status)
		}
		if err != nil {
			return err
		}
		return s.Complete(b.Context(), c.Owner, keystore.CompleteParams{Result: benchResult, Retention: long})
	}
}

// byHand returns the same without a store.
func byHand(b *testing.B, pool *pgxpool.Pool) func() error {
	table := quoted("pair_" + rand.Text())
	if _, err := pool.Exec(b.Context(), "CREATE TABLE "+table+` (id bytea PRIMARY KEY, fingerprint bytea NOT NULL,
		state smallint NOT NULL, created timestamptz NOT NULL DEFAULT now(), result bytea)`); err != nil {
		b.Fatal(err)
	}
	insert := "INSERT INTO " + table + " (id, fingerprint, state) VALUES ($1, $2, 1) ON CONFLICT DO NOTHING"
	update := "UPDATE " + table + " SET state = 2, result = $2 WHERE id = $1"
	return func() error {
		p := params()
		for _, step := range []struct {
			sql   string
			value []byte
		}{{insert, p.Fingerprint[:]}, {update, benchResult}} {
			tag, err := pool.Exec(b.Context(), step.sql, p.ID[:], step.value)
			if err == nil && tag.RowsAffected() != 1 {
				err = fmt.Errorf("%q changed %d rows", step.sql, tag.RowsAffected())
			}
			if err != nil {
				return err
			}
		}
		return nil
	}
}
