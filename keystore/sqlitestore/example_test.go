package sqlitestore_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"time"

	_ "modernc.org/sqlite"

	"github.com/idem-go/idem/keystore"
	"github.com/idem-go/idem/keystore/sqlitestore"
)

func Example() {
	dir, err := os.MkdirTemp("", "idem")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	db, err := sql.Open("sqlite", filepath.Join(dir, "idem.db"))
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()

	ctx, cfg := context.Background(), sqlitestore.Config{}
	if err := sqlitestore.Migrate(ctx, db, cfg); err != nil {
		log.Fatal(err)
	}
	store, err := sqlitestore.New(db, cfg)
	if err != nil {
		log.Fatal(err)
	}
	charge := keystore.ClaimParams{
		ID:    keystore.RecordID(keystore.Server, "acme", "key", "order-17"),
		Scope: keystore.ScopeDigest(keystore.Server, "acme"),
		Lease: 30 * time.Second,
	}
	rand.Read(charge.Nonce[:])
	first, err := store.Claim(ctx, charge)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(first.Status)
	err = store.Complete(ctx, first.Owner, keystore.CompleteParams{Result: []byte("receipt 1"), Retention: 24 * time.Hour})
	if err != nil {
		log.Fatal(err)
	}

	rand.Read(charge.Nonce[:])
	second, err := store.Claim(ctx, charge)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%v: %s\n", second.Status, second.Record.Result)
	// Output:
	// acquired
	// completed: receipt 1
}

// The effect is a row in the application's own table. It and its record are
// committed together, or not at all.
func ExampleStore_InTx() {
	db, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	db.SetMaxOpenConns(1) // a database in memory is one connection's

	ctx, cfg := context.Background(), sqlitestore.Config{}
	if err := sqlitestore.Migrate(ctx, db, cfg); err != nil {
		log.Fatal(err)
	}
	store, err := sqlitestore.New(db, cfg)
	if err != nil {
		log.Fatal(err)
	}
	if _, err := db.Exec("CREATE TABLE charges (amount INTEGER)"); err != nil {
		log.Fatal(err)
	}

	for range 2 {
		err := store.InTx(ctx, func(ctx context.Context, store keystore.Store) error {
			charge := keystore.ClaimParams{
				ID:    keystore.RecordID(keystore.Server, "acme", "key", "order-17"),
				Lease: 30 * time.Second,
			}
			rand.Read(charge.Nonce[:])
			claim, err := store.Claim(ctx, charge)
			if err != nil || claim.Status != keystore.Acquired {
				fmt.Println(claim.Status)
				return err
			}
			tx, _ := sqlitestore.TxFrom(ctx)
			if _, err := tx.ExecContext(ctx, "INSERT INTO charges VALUES (?)", 500); err != nil {
				return err
			}
			return store.Complete(ctx, claim.Owner, keystore.CompleteParams{Retention: 24 * time.Hour})
		})
		if err != nil {
			log.Fatal(err)
		}
	}
	var charges int
	if err := db.QueryRow("SELECT count(*) FROM charges").Scan(&charges); err != nil {
		log.Fatal(err)
	}
	fmt.Println("charges:", charges)
	// Output:
	// completed
	// charges: 1
}
