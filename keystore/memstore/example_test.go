package memstore_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"log"
	"time"

	"github.com/idem-go/idem/keystore"
	"github.com/idem-go/idem/keystore/memstore"
)

func Example() {
	store, err := memstore.New(memstore.Config{MaxRecords: 10_000})
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
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

	// A duplicate, while the first one runs.
	rand.Read(charge.Nonce[:])
	second, err := store.Claim(ctx, charge)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(second.Status)

	err = store.Complete(ctx, first.Owner, keystore.CompleteParams{
		Result: []byte("receipt 1"), Retention: 24 * time.Hour,
	})
	if err != nil {
		log.Fatal(err)
	}
	second, err = store.Claim(ctx, charge)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%v: %s\n", second.Status, second.Record.Result)
	// Output:
	// acquired
	// in-flight
	// completed: receipt 1
}
