package redisstore_test

import (
	"context"
	"crypto/rand"
	"log"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/idem-go/idem/keystore"
	"github.com/idem-go/idem/keystore/redisstore"
)

// It has no checked output: it needs a Redis.
func Example() {
	client := redis.NewClient(&redis.Options{
		Addr:                  "localhost:6379",
		ContextTimeoutEnabled: true, // a call ends with its context
	})
	defer client.Close()
	store, err := redisstore.New(client, redisstore.Config{
		OnListen: func(err error) {
			if err != nil {
				log.Print(err)
			}
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	// Waiters hear at once what other processes have settled.
	go store.Listen(ctx)

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
	if claim.Status != keystore.Acquired {
		log.Fatalf("the intent is %v", claim.Status)
	}
	err = store.Complete(ctx, claim.Owner, keystore.CompleteParams{
		Result: []byte("receipt 1"), Retention: 24 * time.Hour,
	})
	if err != nil {
		log.Fatal(err)
	}
}
