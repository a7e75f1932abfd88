package memstore

import (
	"crypto/rand"
	"encoding/binary"
	"testing"
	"time"

	"github.com/idem-go/idem/keystore"
)

// id returns the ID that begins with that byte.
func id(first byte) [32]byte { return [32]byte{0: first} }

// spread returns the n-th of IDs that are spread over the shards.
func spread(n uint64) (id [32]byte) {
	binary.BigEndian.PutUint64(id[:], n*0x9e3779b97f4a7c15)
	return id
}

// params are those of a begun claim with a lease of an hour.
func params(id [32]byte) keystore.ClaimParams {
	p := keystore.ClaimParams{ID: id, Lease: time.Hour, Keep: time.Hour, Begun: true}
	rand.Read(p.Nonce[:])
	return p
}

// claim acquires the record.
func claim(t *testing.T, s *Store, id [32]byte) keystore.Owner {
	t.Helper()
	c, err := s.Claim(t.Context(), params(id))
	if err != nil || c.Status != keystore.Acquired {
		t.Fatalf("Claim: %v, %v; want acquired", c.Status, err)
	}
	return c.Owner
}

// owner returns the record's current owner.
func owner(s *Store, id [32]byte) keystore.Owner {
	sh := s.lock(id)
	defer sh.mu.Unlock()
	r := sh.rows[id]
	return keystore.Owner{ID: id, Nonce: r.nonce, Token: r.token}
}

func complete(t *testing.T, s *Store, id [32]byte, result []byte, retention time.Duration) {
	t.Helper()
	if err := s.Complete(t.Context(), owner(s, id), keystore.CompleteParams{Result: result, Retention: retention}); err != nil {
		t.Fatalf("Complete: %v", err)
	}
}

func release(t *testing.T, s *Store, id [32]byte, how keystore.How) {
	t.Helper()
	if err := s.Release(t.Context(), owner(s, id), keystore.ReleaseParams{How: how}); err != nil {
		t.Fatalf("Release: %v", err)
	}
}

func purgeAll(t *testing.T, s *Store) (removed int) {
	t.Helper()
	const limit = 1000
	for {
		n, err := s.Purge(t.Context(), limit)
		if err != nil {
			t.Fatal(err)
		}
		removed += n
		if n < limit {
			return removed
		}
	}
}
