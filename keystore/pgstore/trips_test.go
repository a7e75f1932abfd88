package pgstore

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/keystore"
)

// wire counts the round trips of a pool's connections, and can lose an answer.
type wire struct {
	trips atomic.Int64
	lose  atomic.Bool
}

// wireConn is a connection of a wire. A round trip is a read after a write.
type wireConn struct {
	net.Conn
	wire *wire
	sent atomic.Bool
}

func (w *wire) option(cfg *pgxpool.Config) {
	cfg.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
		return &wireConn{Conn: conn, wire: w}, err
	}
}

func (c *wireConn) Write(b []byte) (int, error) {
	c.sent.Store(true)
	return c.Conn.Write(b)
}

func (c *wireConn) Read(b []byte) (int, error) {
	if c.sent.Swap(false) {
		c.wire.trips.Add(1)
	}
	n, err := c.Conn.Read(b)
	if err == nil && c.wire.lose.Swap(false) {
		return 0, errors.Join(net.ErrClosed, c.Close())
	}
	return n, err
}

func TestRoundTrips(t *testing.T) {
	for _, m := range []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeExec} {
		t.Run(m.String(), func(t *testing.T) {
			var w wire
			store := newStore(t, newPool(t, serverURL, conns(1), mode(m), w.option))
			calls := func(t *testing.T, trips int64) {
				one := func(what string, call func()) {
					t.Helper()
					before := w.trips.Load()
					call()
					if got := w.trips.Load() - before; trips > 0 && got != trips {
						t.Errorf("%s took %d round trips, want %d", what, got, trips)
					}
				}
				p := params()
				var o keystore.Owner
				one("a new claim", func() { o = claim(t, store, p, keystore.Acquired).Owner })
				one("a repeated claim", func() { claim(t, store, p, keystore.Acquired) })
				one("a duplicate", func() { claim(t, store, rival(p), keystore.InFlight) })
				one("a renewal", func() {
					if err := store.Renew(t.Context(), o, keystore.RenewParams{Lease: long, Begun: true}); err != nil {
						t.Error(err)
					}
				})
				one("an abandoning", func() { release(t, store, o, keystore.Abandon) })
				one("an unresolved claim", func() { claim(t, store, rival(p), keystore.Unresolved) })
				one("a take-over", func() {
					r := rival(p)
					r.Takeover = true
					o = claim(t, store, r, keystore.Acquired).Owner
				})
				one("a release", func() { release(t, store, o, keystore.Forget) })
				one("a claim of a free record", func() { o = claim(t, store, rival(p), keystore.Acquired).Owner })
				one("a completion", func() { complete(t, store, o, "result") })
				one("a replay", func() { claim(t, store, rival(p), keystore.Completed) })
				p.Fingerprint[0]++
				one("a mismatch", func() { claim(t, store, rival(p), keystore.Mismatch) })
			}
			if m == pgx.QueryExecModeCacheStatement {
				calls(t, 0) // prepares the statements
			}
			calls(t, 1)
		})
	}
}

// What changes nothing takes no transaction ID and writes nothing to the log.
func TestReplayWritesNothing(t *testing.T) {
	store := newStore(t, newPool(t, serverURL, conns(1)))
	p, running := params(), params()
	complete(t, store, claim(t, store, p, keystore.Acquired).Owner, "result")
	claim(t, store, running, keystore.Acquired)
	duplicates := func() {
		for range 200 {
			claim(t, store, rival(p), keystore.Completed)
			claim(t, store, rival(running), keystore.InFlight)
		}
	}
	duplicates()
	written := func() bool {
		const position = "SELECT pg_current_wal_insert_lsn()::text"
		before := query[string](t, store, position)
		duplicates()
		return query[string](t, store, position) != before
	}
	for try := 1; written(); try++ { // the server writes for itself now and then
		if try == 5 {
			t.Fatalf("each of %d times, replays have moved the position of the log", try)
		}
	}

	err := pgx.BeginFunc(t.Context(), store.pool, func(tx pgx.Tx) error {
		for _, sql := range []string{store.sql.claim, store.sql.claimInTx} {
			if a, err := store.ask(t.Context(), tx, sql, rival(p)); err != nil || string(a.row.result) != "result" {
				t.Errorf("a replay answered %q, %v", a.row.result, err)
			}
		}
		var id pgtype.Text
		if err := tx.QueryRow(t.Context(), "SELECT pg_current_xact_id_if_assigned()::text").Scan(&id); err != nil || id.Valid {
			t.Errorf("a replay has taken the transaction ID %q, %v", id.String, err)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// A heartbeat touches no index: all its updates are heap-only.
func TestRenewIsHeapOnly(t *testing.T) {
	const renewals = 5
	store := newStore(t, newPool(t, serverURL))
	o := claim(t, store, params(), keystore.Acquired).Owner
	err := store.InTx(t.Context(), func(ctx context.Context, inTx keystore.Store) error {
		for range renewals {
			if err := inTx.Renew(ctx, o, keystore.RenewParams{Lease: long, Begun: true}); err != nil {
				return err
			}
		}
		tx, _ := TxFrom(ctx)
		var updated, heapOnly int
		err := tx.QueryRow(ctx, inTable(store, `SELECT pg_stat_get_xact_tuples_updated(t), pg_stat_get_xact_tuples_hot_updated(t)
			FROM to_regclass('{table}') AS t`)).Scan(&updated, &heapOnly)
		if err == nil && (updated != renewals || heapOnly != renewals) {
			t.Errorf("%d renewals are %d updates, of which %d heap-only; want all", renewals, updated, heapOnly)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// B093: the claim is committed, its answer is lost, and the repeat knows it.
func TestLostAnswer(t *testing.T) {
	var w wire
	store := newStore(t, newPool(t, serverURL, mode(pgx.QueryExecModeExec), w.option))
	lost := func(call string, err error) {
		t.Helper()
		if err == nil || w.lose.Load() {
			t.Fatalf("%s whose answer was lost returned %v", call, err)
		}
	}
	p := params()
	w.lose.Store(true)
	_, err := store.Claim(t.Context(), p)
	lost("Claim", err)
	c := claim(t, store, p, keystore.Acquired)
	if c.Owner.Token != 1 {
		t.Errorf("the repeat was granted token %d, want 1: it took its own claim for another's", c.Owner.Token)
	}
	w.lose.Store(true)
	lost("Complete", store.Complete(t.Context(), c.Owner, keystore.CompleteParams{Result: []byte("first"), Retention: long}))
	complete(t, store, c.Owner, "second")
	if got := claim(t, store, rival(p), keystore.Completed).Record.Result; string(got) != "first" {
		t.Errorf("the result is %q, want that of the first Complete", got)
	}
}
