package pgstore_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/keystore"
	"github.com/idem-go/idem/keystore/pgstore"
)

// Compiled, and not run: it needs a server.
func Example() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	if err := pgstore.Migrate(ctx, pool, pgstore.Config{}); err != nil {
		log.Fatal(err)
	}
	store, err := pgstore.New(pool, pgstore.Config{})
	if err != nil {
		log.Fatal(err)
	}

	// Optional: learn of other processes' changes without polling.
	go func() {
		if err := store.Listen(ctx); err != nil {
			log.Print(err)
		}
	}()

	charge := keystore.ClaimParams{
		ID:    keystore.RecordID(keystore.Server, "acme", "key", "order-17"),
		Scope: keystore.ScopeDigest(keystore.Server, "acme"),
		Lease: 30 * time.Second,
		Begun: true,
	}
	rand.Read(charge.Nonce[:])
	claim, err := store.Claim(ctx, charge)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(claim.Status)
}

// An effect in the same database, committed with its record.
func ExampleStore_InTx() {
	pay := func(ctx context.Context, store *pgstore.Store, order string, claim keystore.ClaimParams) error {
		return store.InTx(ctx, func(ctx context.Context, inTx keystore.Store) error {
			claimed, err := inTx.Claim(ctx, claim)
			if err != nil {
				return err
			}
			if claimed.Status != keystore.Acquired {
				return errors.New("not ours: " + claimed.Status.String())
			}
			tx, _ := pgstore.TxFrom(ctx)
			if _, err := tx.Exec(ctx, "UPDATE orders SET paid = true WHERE id = $1", order); err != nil {
				return err
			}
			return inTx.Complete(ctx, claimed.Owner, keystore.CompleteParams{
				Result: []byte("receipt 1"), Retention: 24 * time.Hour,
			})
		})
	}
	_ = pay
}

func ExampleSchema() {
	sql := pgstore.Schema(pgstore.Config{Table: "payment_keys"})
	fmt.Println(sql[:29])
	// Output: CREATE TABLE "payment_keys" (
}
