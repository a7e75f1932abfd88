package keystoretest

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/idem-go/idem/keystore"
)

// Bench measures a store: a new intent from claim to result, a replay, a
// renewal, and many goroutines that want one record. newStore is called once
// per sub-benchmark.
func Bench(b *testing.B, newStore func(b *testing.B) keystore.Store) {
	// What is completed expires soon, so that a bounded store does not fill.
	const retention = 10 * time.Millisecond
	result := make([]byte, 1<<10)
	params := keystore.ClaimParams{
		Fingerprint: fingerprintA, Scope: fingerprintA, Lease: long, Keep: retention, Begun: true, Meta: []byte("meta"),
	}

	b.Run("claim+complete", func(b *testing.B) {
		store := newStore(b)
		c := fresh(params)
		b.ReportAllocs()
		for n := uint64(0); b.Loop(); n++ {
			binary.BigEndian.PutUint64(c.ID[:], n*0x9e3779b97f4a7c15) // spread, as digests are
			owner := acquire(b, store, c)
			must(b, store.Complete(b.Context(), owner, keystore.CompleteParams{Result: result, Retention: retention}))
		}
	})

	b.Run("replay", func(b *testing.B) {
		store := newStore(b)
		c := fresh(params)
		must(b, store.Complete(b.Context(), acquire(b, store, c), keystore.CompleteParams{Result: result, Retention: long}))
		c.Nonce = randomNonce()
		b.ReportAllocs()
		for b.Loop() {
			claim, err := store.Claim(b.Context(), c)
			must(b, err)
			if claim.Status != keystore.Completed {
				b.Fatalf("a replay answered %v", claim.Status)
			}
		}
	})

	b.Run("renew", func(b *testing.B) {
		store := newStore(b)
		owner := acquire(b, store, fresh(params))
		b.ReportAllocs()
		for b.Loop() {
			must(b, store.Renew(b.Context(), owner, keystore.RenewParams{Lease: long}))
		}
	})

	b.Run("contended", func(b *testing.B) {
		store := newStore(b)
		shared := fresh(params)
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			c := shared
			for pb.Next() {
				c.Nonce = randomNonce()
				claim, err := store.Claim(b.Context(), c)
				if err == nil && claim.Status == keystore.Acquired {
					err = store.Release(b.Context(), claim.Owner, keystore.ReleaseParams{How: keystore.Forget})
				}
				if err != nil {
					b.Error(err)
					return
				}
			}
		})
	})
}

// fresh returns the parameters of a claim to a record of its own.
func fresh(c keystore.ClaimParams) keystore.ClaimParams {
	c.ID, c.Nonce = random32(), randomNonce()
	return c
}

func acquire(b *testing.B, store keystore.Store, c keystore.ClaimParams) keystore.Owner {
	claim, err := store.Claim(b.Context(), c)
	must(b, err)
	if claim.Status != keystore.Acquired {
		b.Fatalf("Claim of a new record answered %v", claim.Status)
	}
	return claim.Owner
}

func must(b *testing.B, err error) {
	if err != nil {
		b.Fatal(err)
	}
}
