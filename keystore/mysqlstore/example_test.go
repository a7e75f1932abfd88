package mysqlstore_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"log"
	"time"

	_ "github.com/go-sql-driver/mysql"

	"github.com/idem-go/idem/keystore"
	"github.com/idem-go/idem/keystore/mysqlstore"
)

// The effect is a row in the application's own table. It and its record are
// committed together, or not at all.
func Example() {
	db, err := sql.Open("mysql", "app:secret@tcp(db.example.com)/shop?interpolateParams=true")
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()

	ctx, cfg := context.Background(), mysqlstore.Config{}
	if err := mysqlstore.Migrate(ctx, db, cfg); err != nil {
		log.Fatal(err)
	}
	store, err := mysqlstore.New(db, cfg)
	if err != nil {
		log.Fatal(err)
	}
	err = store.InTx(ctx, func(ctx context.Context, store keystore.Store) error {
		charge := keystore.ClaimParams{
			ID:    keystore.RecordID(keystore.Server, "acme", "key", "order-17"),
			Scope: keystore.ScopeDigest(keystore.Server, "acme"),
			Lease: 30 * time.Second,
		}
		rand.Read(charge.Nonce[:])
		claim, err := store.Claim(ctx, charge)
		if err != nil || claim.Status != keystore.Acquired {
			return err
		}
		tx, _ := mysqlstore.TxFrom(ctx)
		if _, err := tx.ExecContext(ctx, "INSERT INTO charges (amount) VALUES (?)", 500); err != nil {
			return err
		}
		return store.Complete(ctx, claim.Owner, keystore.CompleteParams{Retention: 24 * time.Hour})
	})
	if err != nil {
		log.Fatal(err)
	}
}
