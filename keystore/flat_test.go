package keystore_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/idem-go/idem/internal/servertest"
	"github.com/idem-go/idem/internal/storeurl"
	"github.com/idem-go/idem/keystore"
)

// Under steady load a database's table stays as large as what was settled within
// the retention and one sweep, while everything that is claimed goes through it;
// and without load nothing is left. (Redis expires records by itself.)
func TestTableStaysFlat(t *testing.T) {
	postgres, mariadb := servertest.Postgres(t), servertest.MariaDB(t, servertest.MariaDBOptions{})
	admin, err := sql.Open("mysql", mariadb.DSN(""))
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	if _, err := admin.ExecContext(t.Context(), "CREATE DATABASE flat"); err != nil {
		t.Fatal(err)
	}
	for name, url := range map[string]string{
		"sqlite":   "sqlite:" + filepath.Join(t.TempDir(), "idem.db"),
		"postgres": postgres.URL,
		"mariadb":  "mysql:" + mariadb.DSN("flat"),
	} {
		t.Run(name, func(t *testing.T) {
			store, err := storeurl.Open(t.Context(), url)
			if err != nil {
				t.Fatal(err)
			}
			defer store.Close()
			if err := store.Migrate(t.Context()); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			var sweeping sync.WaitGroup
			for range 2 { // as two processes would
				sweeping.Go(func() {
					_ = keystore.Sweeper{Store: store.Store, Every: 10 * time.Millisecond, Batch: 100,
						OnError: func(err error) {
							if ctx.Err() == nil {
								t.Error(err)
							}
						}}.Run(ctx)
				})
			}
			const rounds, perRound, bound = 6, 300, 200
			for range rounds {
				var load sync.WaitGroup
				for range 3 {
					load.Go(func() {
						for range perRound / 3 {
							settleOne(t, store.Store)
						}
					})
				}
				load.Wait()
				atMost(t, store, bound) // the sweepers keep up
			}
			atMost(t, store, 0)
			cancel()
			sweeping.Wait()
		})
	}
}

func settleOne(t *testing.T, s keystore.Store) {
	p := keystore.ClaimParams{Lease: time.Minute}
	_, _ = rand.Read(p.ID[:])
	_, _ = rand.Read(p.Nonce[:])
	c, err := s.Claim(t.Context(), p)
	if err == nil {
		err = s.Complete(t.Context(), c.Owner, keystore.CompleteParams{Result: []byte("done"), Retention: 20 * time.Millisecond})
	}
	if err != nil {
		t.Error(err)
	}
}

// atMost waits until the table has at most so many rows.
func atMost(t *testing.T, store *storeurl.Opened, bound int) {
	t.Helper()
	const count = "SELECT count(*) FROM idem_records"
	deadline := time.After(time.Minute)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		var rows int
		var err error
		if store.Postgres != nil {
			err = store.Postgres.QueryRow(t.Context(), count).Scan(&rows)
		} else {
			err = store.SQL.QueryRowContext(t.Context(), count).Scan(&rows)
		}
		if err != nil {
			t.Fatal(err)
		}
		if rows <= bound {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("%d rows stay, want %d at most", rows, bound)
		}
	}
}
