package pgstore

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/internal/lincheck"
	"github.com/idem-go/idem/internal/servertest"
	"github.com/idem-go/idem/keystore"
)

// B087: racers in several processes, and one winner for each key.
func TestRaceOfProcesses(t *testing.T) {
	t.Parallel()
	store := newStore(t, newPool(t, serverURL, conns(8)))
	var wg sync.WaitGroup
	for i := range raceKeys {
		wg.Go(func() {
			p := params()
			p.ID = raceID(store.cfg.Table, "dead", i)
			c, err := store.Claim(t.Context(), p)
			if err == nil {
				err = store.Release(t.Context(), c.Owner, keystore.ReleaseParams{How: keystore.Abandon})
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()

	children := make([]*child, raceChildren)
	for i := range children {
		children[i] = startChild(t, "race", store)
	}
	for _, c := range children {
		if line, err := c.out.ReadString('\n'); err != nil {
			t.Fatalf("a child did not start: %q, %v", line, err)
		}
	}
	for _, c := range children {
		fmt.Fprintln(c.in, "go")
	}
	winners := map[string]int{}
	for _, c := range children {
		var won []map[string][]int
		if err := json.NewDecoder(c.out).Decode(&won); err != nil {
			t.Fatalf("a child told no result: %v", err)
		}
		for _, racer := range won {
			for kind, keys := range racer {
				for _, i := range keys {
					winners[fmt.Sprint(kind, " ", i)]++
				}
			}
		}
	}
	for _, kind := range []string{"fresh", "dead"} {
		for i := range raceKeys {
			if n := winners[fmt.Sprint(kind, " ", i)]; n != 1 {
				t.Errorf("key %s %d has %d winners of %d racers, want 1", kind, i, n, raceChildren*racersEach)
			}
		}
	}
}

func TestLinearizable(t *testing.T) {
	t.Parallel()
	const workers, callsEach = 8, 1300
	pool := newPool(t, serverURL, conns(4))
	a := newStore(t, pool)
	b := openStore(t, newPool(t, serverURL, conns(4), isolation("serializable")), a.cfg)
	lincheck.Run(t, workers, callsEach, a, b)
}

// The server dies in the middle of it all. What it said it had done is done,
// what it did not say may be, and no record has two winners.
func TestServerKilled(t *testing.T) {
	t.Run("calls", func(t *testing.T) {
		t.Parallel()
		killServer(t, func(*Store) {})
	})
	t.Run("batches", func(t *testing.T) {
		t.Parallel()
		killServer(t, func(s *Store) { force(s) })
	})
}

func killServer(t *testing.T, prepare func(*Store)) {
	server := servertest.Postgres(t)
	pool := newPool(t, server.URL, conns(8))
	cfg := Config{Table: "killed"}
	if err := Migrate(t.Context(), pool, cfg); err != nil {
		t.Fatal(err)
	}
	store := openStore(t, pool, cfg)
	prepare(store)

	const workers, callsEach, kills = 8, 400, 3
	var h lincheck.History
	ids := lincheck.IDs(workers * callsEach / 40)
	var up sync.RWMutex // held while the server is down
	untilUp := func() {
		up.RLock()
		defer up.RUnlock()
	}
	var wg sync.WaitGroup
	done := make(chan struct{})
	for i := range workers {
		wg.Go(func() {
			w := lincheck.NewWorker(&h, i, store, ids)
			for n := 0; n < callsEach; {
				if err := w.Call(t.Context()); err == nil {
					n++
					continue
				}
				untilUp()
			}
		})
	}
	go func() { wg.Wait(); close(done) }()
	for i := range kills {
		// After a part of the calls, wherever they are then.
		for h.Len() < workers*callsEach*(i+1)/(kills+1) {
			pauseOrDone(done)
		}
		up.Lock()
		server.Kill()
		err := server.Restart()
		pool.Reset()
		up.Unlock()
		if err != nil {
			t.Fatal(err)
		}
	}
	<-done
	h.Check(t)
}

// pauseOrDone waits a moment, unless it is over.
func pauseOrDone(done <-chan struct{}) {
	timer := time.NewTimer(rand.N(5 * time.Millisecond))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-done:
	}
}

// B088, B152: the winner has inserted the record in a transaction that knows
// nothing of this package's ways, and has not committed yet.
func TestUncommittedWinner(t *testing.T) {
	for _, level := range []string{"read committed", "serializable"} {
		for end, want := range map[string]keystore.Status{
			"commit": keystore.InFlight, "rollback": keystore.Acquired, "delete, commit": keystore.Acquired,
			"complete, commit": keystore.Completed, "mismatch, commit": keystore.Mismatch,
		} {
			t.Run(level+", "+end, func(t *testing.T) {
				store := newStore(t, newPool(t, serverURL, isolation(level)))
				p := params()
				tx, err := store.pool.Begin(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				defer tx.Rollback(context.Background())
				winner := rival(p)
				if end == "mismatch, commit" {
					winner.Fingerprint[0]++
				}
				if a, err := store.ask(t.Context(), tx, store.sql.claim, winner); err != nil || !a.granted {
					t.Fatalf("the winner: %+v, %v", a, err)
				}
				lost := make(chan error, 1)
				var c keystore.Claim
				go func() {
					var err error
					c, err = store.Claim(t.Context(), p)
					lost <- err
				}()
				untilBlocked(t, store)
				endTx(t, store, tx, end, winner)
				if err := <-lost; err != nil || c.Status != want {
					t.Fatalf("the loser: %v, %v; want %v", c.Status, err, want)
				}
			})
		}
	}
}

func endTx(t *testing.T, s *Store, tx pgx.Tx, end string, p keystore.ClaimParams) {
	t.Helper()
	var err error
	switch end {
	case "rollback":
		err = tx.Rollback(t.Context())
	case "delete, commit":
		_, err = tx.Exec(t.Context(), inTable(s, "DELETE FROM {table}"))
	case "complete, commit":
		_, err = tx.Exec(t.Context(), s.sql.complete, p.ID[:], p.Nonce[:], int64(1), micros(long), []byte("result"))
	}
	if err == nil && end != "rollback" {
		err = tx.Commit(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// untilBlocked waits until some session waits for another one to use the table.
func untilBlocked(t *testing.T, s *Store) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for query[int](t, s, `SELECT count(*) FROM pg_stat_activity
		WHERE cardinality(pg_blocking_pids(pid)) > 0 AND strpos(query, $1) > 0`, s.cfg.Table) == 0 {
		if time.Now().After(deadline) {
			t.Fatalf("nobody was blocked within %v", patience)
		}
	}
}

// B153: what the server aborts in favour of others is repeated inside. The
// contract's races run under serializable as well; here it happens for sure.
func TestAbortedIsRepeated(t *testing.T) {
	for _, level := range []string{"repeatable read", "serializable"} {
		t.Run(level, func(t *testing.T) {
			store := newStore(t, newPool(t, serverURL, isolation(level), conns(16)))
			o := claim(t, store, params(), keystore.Acquired).Owner
			var wg sync.WaitGroup
			for range 16 {
				wg.Go(func() {
					for range 25 {
						if err := store.Renew(t.Context(), o, keystore.RenewParams{Lease: long}); err != nil {
							t.Error(err)
							return
						}
					}
				})
			}
			wg.Wait()
		})
	}
}
