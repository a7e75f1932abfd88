package pgstore

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/idem-go/idem/keystore"
)

var errFailed = errors.New("the handler has failed")

// withPayments gives the store's database a table for effects.
func withPayments(t *testing.T, s *Store) *Store {
	t.Helper()
	run(t, s, "CREATE TABLE {table}_payments (id bytea)")
	t.Cleanup(func() {
		if _, err := s.pool.Exec(context.Background(), inTable(s, "DROP TABLE {table}_payments")); err != nil {
			t.Error(err)
		}
	})
	return s
}

// pay claims, has an effect and completes, in the transaction of ctx.
func pay(ctx context.Context, s *Store, inTx keystore.Store, p keystore.ClaimParams) error {
	c, err := inTx.Claim(ctx, p)
	if err != nil {
		return err
	}
	if c.Status != keystore.Acquired {
		return errors.New("the claim answered " + c.Status.String())
	}
	tx, ok := TxFrom(ctx)
	if !ok {
		return errors.New("no transaction in the context")
	}
	if _, err := tx.Exec(ctx, inTable(s, "INSERT INTO {table}_payments VALUES ($1)"), p.ID[:]); err != nil {
		return err
	}
	return inTx.Complete(ctx, c.Owner, keystore.CompleteParams{Result: []byte("paid"), Retention: long})
}

func payments(t *testing.T, s *Store) int {
	t.Helper()
	return query[int](t, s, "SELECT count(*) FROM {table}_payments")
}

// Effect and record are committed together, or not at all.
func TestTransaction(t *testing.T) {
	store := withPayments(t, newStore(t, newPool(t, serverURL)))
	if _, ok := TxFrom(t.Context()); ok {
		t.Error("a transaction outside InTx")
	}
	ends := map[string]func(keystore.ClaimParams){
		"error": func(p keystore.ClaimParams) {
			err := store.InTx(t.Context(), func(ctx context.Context, inTx keystore.Store) error {
				return errors.Join(pay(ctx, store, inTx, p), errFailed)
			})
			if !errors.Is(err, errFailed) {
				t.Errorf("InTx of a function that fails: %v", err)
			}
		},
		"panic": func(p keystore.ClaimParams) {
			defer func() {
				if recover() != errFailed {
					t.Error("the panic is gone")
				}
			}()
			_ = store.InTx(t.Context(), func(ctx context.Context, inTx keystore.Store) error {
				_ = pay(ctx, store, inTx, p)
				panic(errFailed)
			})
		},
		"cancelled": func(p keystore.ClaimParams) {
			ctx, cancel := context.WithCancel(t.Context())
			err := store.InTx(ctx, func(ctx context.Context, inTx keystore.Store) error {
				defer cancel()
				return pay(ctx, store, inTx, p)
			})
			wantErr(t, err, context.Canceled, "pgstore: commit")
		},
	}
	for name, end := range ends {
		p := params()
		end(p)
		if n := payments(t, store); n != 0 {
			t.Fatalf("%s: %d payments were committed", name, n)
		}
		claim(t, store, p, keystore.Acquired)
	}
	p := params()
	if err := store.InTx(t.Context(), func(ctx context.Context, inTx keystore.Store) error { return pay(ctx, store, inTx, p) }); err != nil {
		t.Fatal(err)
	}
	if n := payments(t, store); n != 1 {
		t.Fatalf("%d payments, want 1", n)
	}
	claim(t, store, rival(p), keystore.Completed)
	if n := store.pool.Stat().AcquiredConns(); n != 0 {
		t.Errorf("%d connections were not given back", n)
	}
}

// hold runs fn in a transaction that stays open until the function returned is
// called.
func hold(t *testing.T, s *Store, fn func(context.Context, keystore.Store) error) (end func()) {
	t.Helper()
	held, release, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- s.InTx(t.Context(), func(ctx context.Context, inTx keystore.Store) error {
			err := fn(ctx, inTx)
			close(held)
			<-release
			return err
		})
	}()
	closes(t, held)
	return sync.OnceFunc(func() {
		close(release)
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// A record that an open transaction has changed is InFlight at once, whatever
// it was before.
func TestClaimNeverWaits(t *testing.T) {
	pool := newPool(t, serverURL)
	store := withPayments(t, newStore(t, pool))
	dead := func(t *testing.T, p keystore.ClaimParams) keystore.Owner {
		o := claim(t, store, p, keystore.Acquired).Owner
		release(t, store, o, keystore.Abandon)
		return o
	}
	claims := func(p keystore.ClaimParams) func(context.Context, keystore.Store) error {
		return func(ctx context.Context, inTx keystore.Store) error {
			_, err := inTx.Claim(ctx, rival(p))
			return err
		}
	}
	for name, tt := range map[string]struct {
		prepare func(*testing.T, keystore.ClaimParams) func(context.Context, keystore.Store) error
		// inTxOnly: outside a transaction a claim waits.
		inTxOnly bool
	}{
		"new": {prepare: func(_ *testing.T, p keystore.ClaimParams) func(context.Context, keystore.Store) error {
			return claims(p)
		}},
		"free": {prepare: func(t *testing.T, p keystore.ClaimParams) func(context.Context, keystore.Store) error {
			release(t, store, claim(t, store, p, keystore.Acquired).Owner, keystore.Reject)
			return claims(p)
		}},
		"dead": {prepare: func(t *testing.T, p keystore.ClaimParams) func(context.Context, keystore.Store) error {
			dead(t, p)
			return claims(p)
		}},
		"expired": {prepare: func(t *testing.T, p keystore.ClaimParams) func(context.Context, keystore.Store) error {
			complete(t, store, claim(t, store, p, keystore.Acquired).Owner, "old")
			run(t, store, "UPDATE {table} SET expires = '2000-01-01' WHERE id = $1", p.ID[:])
			return claims(p)
		}},
		"dead, completed by its owner": {inTxOnly: true, prepare: func(t *testing.T, p keystore.ClaimParams) func(context.Context, keystore.Store) error {
			o := dead(t, p)
			return func(ctx context.Context, inTx keystore.Store) error {
				return inTx.Complete(ctx, o, keystore.CompleteParams{Result: []byte("paid"), Retention: long})
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			p := params()
			end := hold(t, store, tt.prepare(t, p))
			defer end()
			err := store.InTx(t.Context(), func(ctx context.Context, inTx keystore.Store) error {
				inFlight(t, inTx, rival(p))
				// B151: the transaction is still good for another one.
				return pay(ctx, store, inTx, params())
			})
			if err != nil {
				t.Error(err)
			}
			if !tt.inTxOnly {
				inFlight(t, store, rival(p))
			}
			end()
			want := keystore.InFlight
			if tt.inTxOnly {
				want = keystore.Completed
			}
			claim(t, store, rival(p), want)
		})
	}
}

// inFlight claims a record that can't be seen, and wants a view to wait by.
func inFlight(t *testing.T, s keystore.Store, p keystore.ClaimParams) {
	t.Helper()
	rec := claim(t, s, p, keystore.InFlight).Record
	if rec.ID != p.ID || rec.Fingerprint != p.Fingerprint || rec.State != keystore.Running ||
		rec.Token == 0 || rec.LeaseLeft <= 0 || string(rec.Meta) != "meta" {
		t.Errorf("the record of the claim in flight is %+v", rec)
	}
}

// B151, B153: what others have committed since the transaction began can't be
// seen under these levels. The claim says InFlight, and the transaction goes on.
func TestClaimInOldSnapshot(t *testing.T) {
	for _, level := range []string{"repeatable read", "serializable"} {
		for name, prepare := range map[string]func(*Store, keystore.ClaimParams){
			"new": func(*Store, keystore.ClaimParams) {},
			"dead": func(s *Store, p keystore.ClaimParams) {
				release(t, s, claim(t, s, p, keystore.Acquired).Owner, keystore.Abandon)
			},
		} {
			t.Run(level+", "+name, func(t *testing.T) {
				store := withPayments(t, newStore(t, newPool(t, serverURL, isolation(level))))
				p := params()
				prepare(store, p)
				err := store.InTx(t.Context(), func(ctx context.Context, inTx keystore.Store) error {
					tx, _ := TxFrom(ctx)
					if _, err := tx.Exec(ctx, "SELECT"); err != nil { // takes the snapshot
						return err
					}
					claim(t, store, rival(p), keystore.Acquired)
					claim(t, inTx, rival(p), keystore.InFlight)
					_, err := tx.Exec(ctx, inTable(store, "INSERT INTO {table}_payments VALUES ('')"))
					return err
				})
				if err != nil || payments(t, store) != 1 {
					t.Fatalf("the transaction: %v, %d payments; want 1", err, payments(t, store))
				}
			})
		}
	}
}

func TestWaitersLeaveConnections(t *testing.T) {
	const waiters = 50
	store := withPayments(t, newStore(t, newPool(t, serverURL, conns(4))))
	p := params()
	end := hold(t, store, func(ctx context.Context, inTx keystore.Store) error { return pay(ctx, store, inTx, p) })
	defer end()
	var inFlight, done sync.WaitGroup
	inFlight.Add(waiters)
	for range waiters {
		done.Go(func() {
			first := sync.OnceFunc(inFlight.Done)
			defer first()
			for {
				changed, stop := store.Watch(p.ID)
				var status keystore.Status
				err := store.InTx(t.Context(), func(ctx context.Context, inTx keystore.Store) error {
					c, err := inTx.Claim(ctx, rival(p))
					status = c.Status
					return err
				})
				if err != nil || status == keystore.Completed {
					stop()
					if err != nil {
						t.Error(err)
					}
					return
				}
				first()
				<-changed
				stop()
			}
		})
	}
	inFlight.Wait() // all were answered while the first transaction is open
	if n := store.pool.Stat().AcquiredConns(); n > 4 {
		t.Errorf("%d connections are in use", n)
	}
	claim(t, store, params(), keystore.Acquired)
	end()
	done.Wait()
}

func TestNestedTransaction(t *testing.T) {
	store := withPayments(t, newStore(t, newPool(t, serverURL)))
	p, q := params(), params()
	changed, stop := store.Watch(p.ID)
	defer stop()
	err := store.InTx(t.Context(), func(ctx context.Context, inTx keystore.Store) error {
		nested := inTx.(keystore.Transactor)
		err := nested.InTx(ctx, func(ctx context.Context, inTx keystore.Store) error {
			return errors.Join(pay(ctx, store, inTx, q), errFailed)
		})
		if !errors.Is(err, errFailed) {
			t.Errorf("the nested transaction that fails: %v", err)
		}
		if err := nested.InTx(ctx, func(ctx context.Context, inTx keystore.Store) error { return pay(ctx, store, inTx, p) }); err != nil {
			return err
		}
		select {
		case <-changed:
			t.Error("a watcher was told before the commit")
		default:
		}
		return nil
	})
	if err != nil || payments(t, store) != 1 {
		t.Fatalf("the transaction: %v, %d payments; want 1", err, payments(t, store))
	}
	closes(t, changed)
	claim(t, store, rival(p), keystore.Completed)
	claim(t, store, rival(q), keystore.Acquired)
}

// Processes that die anywhere between a claim and its commit leave effect and
// record, or neither.
func TestKilledBetweenClaimAndCommit(t *testing.T) {
	t.Parallel()
	const kills, atOnce = 200, 4
	store := withPayments(t, newStore(t, newPool(t, serverURL)))
	var wg sync.WaitGroup
	var interrupted atomic.Int64
	for range atOnce {
		wg.Go(func() {
			for range kills / atOnce {
				c := startChild(t, "pay", store)
				stages := 1 + rand.N(3*payStages) // anywhere in one of three payments, or later
				if _, err := io.CopyN(io.Discard, c.out, int64(stages)); err != nil {
					t.Errorf("a child has ended by itself: %v", err)
				}
				_ = c.cmd.Process.Kill()
				more, err := io.Copy(io.Discard, c.out)
				c.kill()
				if err != nil {
					t.Error(err)
				}
				if (stages+int(more))%payStages != 0 {
					interrupted.Add(1)
				}
				unmatched := query[int](t, store, `SELECT count(*) FROM {table} AS r FULL JOIN {table}_payments AS p USING (id)
					WHERE p.id IS NULL OR r.state IS DISTINCT FROM 3`)
				if unmatched != 0 {
					t.Errorf("after a kill, %d payments or records lack the other", unmatched)
				}
			}
		})
	}
	wg.Wait()
	if made := payments(t, store); made == 0 || interrupted.Load() == 0 {
		t.Errorf("%d payments were made and %d interrupted; want some of both", made, interrupted.Load())
	}
}
