package tabletest

import (
	"context"
	"database/sql"
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/idem-go/idem/keystore"
)

var errEffect = errors.New("the effect failed")

// claimInTx claims in a transaction of its own, and goes on with then where
// that acquires.
func claimInTx(ctx context.Context, s Store, p keystore.ClaimParams, then func(context.Context, keystore.Store, keystore.Owner) error) (c keystore.Claim, err error) {
	err = s.InTx(ctx, func(ctx context.Context, s keystore.Store) (err error) {
		if c, err = s.Claim(ctx, p); err != nil || c.Status != keystore.Acquired || then == nil {
			return err
		}
		return then(ctx, s, c.Owner)
	})
	return c, err
}

// effects creates the table of an application.
func effects(t testing.TB, db *sql.DB) {
	t.Helper()
	run(t, db, "CREATE TABLE effects (id VARBINARY(32) NOT NULL)")
}

// effect has the effect of an intent, in the transaction of the context, and
// completes the record.
func (b Backend) effect(ctx context.Context, s keystore.Store, o keystore.Owner) error {
	tx, ok := b.TxFrom(ctx)
	if !ok {
		return errors.New("there is no transaction in the context")
	}
	if _, err := tx.ExecContext(ctx, "INSERT INTO effects (id) VALUES (?)", o.ID[:]); err != nil {
		return err
	}
	return s.Complete(ctx, o, keystore.CompleteParams{Result: []byte("result"), Retention: long})
}

// happened counts the effects of the intent. A database may be busy for a moment,
// while a connection is closed after a rollback; that the stores ask again then,
// is not the test's matter here.
func happened(t testing.TB, db *sql.DB, id [32]byte) (n int) {
	t.Helper()
	const tries = 1000
	for try := 1; ; try++ {
		err := db.QueryRowContext(t.Context(), "SELECT count(*) FROM effects WHERE id = ?", id[:]).Scan(&n)
		if err == nil {
			return n
		}
		if try == tries {
			t.Fatal(err)
		}
		<-time.After(time.Millisecond)
	}
}

func transactions(t *testing.T, b Backend) {
	dsn := b.NewDSN(t)
	s, db := b.open(t, dsn)
	effects(t, db)

	t.Run("commit", func(t *testing.T) {
		p := params()
		c, err := claimInTx(t.Context(), s, p, b.effect)
		if err != nil || c.Status != keystore.Acquired {
			t.Fatalf("InTx: %v, %v", c.Status, err)
		}
		if got := claim(t, s, rival(p), keystore.Completed); string(got.Record.Result) != "result" || happened(t, db, p.ID) != 1 {
			t.Fatalf("%d effects, the Result is %q", happened(t, db, p.ID), got.Record.Result)
		}
		if c, err = claimInTx(t.Context(), s, rival(p), nil); err != nil || c.Status != keystore.Completed || string(c.Record.Result) != "result" {
			t.Fatalf("a replay in a transaction answered %v with %q, %v", c.Status, c.Record.Result, err)
		}
	})

	for name, then := range map[string]func(context.Context, keystore.Store, keystore.Owner) error{
		"error": func(ctx context.Context, s keystore.Store, o keystore.Owner) error {
			return errors.Join(b.effect(ctx, s, o), errEffect)
		},
		"panic": func(ctx context.Context, s keystore.Store, o keystore.Owner) error {
			panic(b.effect(ctx, s, o))
		},
		"Goexit": func(ctx context.Context, s keystore.Store, o keystore.Owner) error {
			_ = b.effect(ctx, s, o)
			runtime.Goexit()
			return nil
		},
		"cancelled": func(ctx context.Context, s keystore.Store, o keystore.Owner) error {
			if err := b.effect(ctx, s, o); err != nil {
				return err
			}
			ctx.Value(cancelKey{}).(context.CancelFunc)()
			return nil
		},
	} {
		t.Run("rolled back by "+name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			p := params()
			committed := make(chan error, 1)
			go func() {
				defer close(committed)
				defer func() { _ = recover() }()
				_, err := claimInTx(context.WithValue(ctx, cancelKey{}, cancel), s, p, then)
				committed <- err
			}()
			if err, ended := <-committed; ended && err == nil {
				t.Fatal("InTx succeeded")
			}
			if n := happened(t, db, p.ID); n != 0 {
				t.Fatalf("%d effects, want none", n)
			}
			claim(t, s, p, keystore.Acquired) // as new, also with the same nonce
		})
	}

	t.Run("outside", func(t *testing.T) {
		if _, ok := b.TxFrom(t.Context()); ok {
			t.Fatal("TxFrom finds a transaction outside InTx")
		}
	})

	t.Run("B152 the winner is uncommitted", func(t *testing.T) {
		for _, commits := range []bool{true, false} {
			p := params()
			claimed, decide, ended := make(chan struct{}), make(chan error), make(chan error)
			go func() {
				_, err := claimInTx(t.Context(), s, p, func(ctx context.Context, s keystore.Store, o keystore.Owner) error {
					err := b.effect(ctx, s, o)
					close(claimed)
					return errors.Join(err, <-decide)
				})
				ended <- err
			}()
			<-claimed
			loser, _ := b.open(t, dsn) // as another process has it
			start := time.Now()
			c, err := claimInTx(t.Context(), loser, rival(p), nil)
			if err != nil || c.Status != keystore.InFlight || c.Owner != (keystore.Owner{}) || c.Record.ID != p.ID {
				t.Errorf("a claim in a transaction answered %v, %v; want in-flight", c, err)
			}
			if d := time.Since(start); d > 30*time.Second {
				t.Errorf("it waited for %v", d)
			}
			if commits {
				decide <- nil
			} else {
				decide <- errEffect
			}
			if err := <-ended; (err == nil) != commits {
				t.Fatalf("InTx of the winner: %v", err)
			}
			want := keystore.Acquired
			if commits {
				want = keystore.Completed
			}
			if c, err := claimInTx(t.Context(), loser, rival(p), nil); err != nil || c.Status != want {
				t.Errorf("afterwards it answered %v, %v; want %v", c.Status, err, want)
			}
		}
	})

	t.Run("refused while others go on", func(t *testing.T) {
		p := params()
		o := claim(t, s, p, keystore.Acquired).Owner
		err := s.InTx(t.Context(), func(ctx context.Context, in keystore.Store) error {
			// B151: neither answer spoils the transaction.
			for range 2 {
				if c, err := in.Claim(ctx, rival(p)); err != nil || c.Status != keystore.InFlight {
					t.Errorf("Claim answered %v, %v; want in-flight", c.Status, err)
				}
			}
			stale := o
			stale.Token++
			if err := in.Renew(ctx, stale, keystore.RenewParams{Lease: long}); !errors.Is(err, keystore.ErrFenced) {
				t.Errorf("Renew answered %v, want ErrFenced", err)
			}
			if recs, err := in.Records(ctx, keystore.Query{ID: &p.ID}); err != nil || len(recs) != 1 {
				t.Errorf("Records returned %d records, %v", len(recs), err)
			}
			if _, err := in.Purge(ctx, 10); err != nil {
				t.Errorf("Purge: %v", err)
			}
			return b.effect(ctx, in, o)
		})
		if err != nil || happened(t, db, p.ID) != 1 {
			t.Fatalf("InTx: %v, %d effects", err, happened(t, db, p.ID))
		}
		claim(t, s, rival(p), keystore.Completed)
	})
}

type cancelKey struct{}
