package memstore

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idem-go/idem/keystore"
)

// B100: expired records give their memory back, maps and heaps included.
func TestMemoryComesBack(t *testing.T) {
	const n = 30_000
	for name, free := range map[string]func(*testing.T, *Store){
		"B100 by Purge": func(t *testing.T, s *Store) {
			if got := purgeAll(t, s); got != n {
				t.Fatalf("Purge removed %d records, want %d", got, n)
			}
		},
		"B100 by claims alone": func(t *testing.T, s *Store) {
			for i := range uint64(n) {
				claim(t, s, spread(i%1000))
				release(t, s, spread(i%1000), keystore.Forget)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStore(t, Config{})
				empty := heapInUse()
				for i := range uint64(n) {
					claim(t, s, spread(i))
					complete(t, s, spread(i), make([]byte, 64), time.Minute)
				}
				full := heapInUse() - empty
				time.Sleep(time.Minute)
				free(t, s)
				if left := heapInUse() - empty; left > full/20 {
					t.Errorf("%d KiB of %d KiB are left when all records have expired", left>>10, full>>10)
				}
				runtime.KeepAlive(s)
			})
		})
	}
}

func heapInUse() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// The order of the expiry must follow every change of a record's times.
func TestExpiryFollowsChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore(t, Config{})
		purges := func(want int, why string) {
			t.Helper()
			if got := purgeAll(t, s); got != want {
				t.Fatalf("Purge removed %d records, want %d: %s", got, want, why)
			}
		}
		p := params(id(1)) // all in one shard
		p.Begun = false
		c, err := s.Claim(t.Context(), p)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(119 * time.Minute)
		purges(0, "dead, but within its Keep")
		if err := s.Renew(t.Context(), c.Owner, keystore.RenewParams{Lease: time.Hour}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(119 * time.Minute)
		purges(0, "renewed")
		if err := s.Renew(t.Context(), c.Owner, keystore.RenewParams{Lease: time.Hour, Begun: true}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(1000 * time.Hour)
		purges(0, "unresolved")
		complete(t, s, id(1), nil, time.Minute)
		time.Sleep(time.Minute)
		purges(1, "its retention is over")
	})
}

func TestPurgeStopsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore(t, Config{})
		claim(t, s, id(1))
		complete(t, s, id(1), nil, time.Minute)
		time.Sleep(time.Minute)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if n, err := s.Purge(ctx, 1); n != 0 || !errors.Is(err, context.Canceled) {
			t.Fatalf("Purge with a cancelled context: %d, %v", n, err)
		}
		if n, err := s.Purge(t.Context(), 1); n != 1 || err != nil {
			t.Fatalf("Purge: %d, %v; want 1 record removed", n, err)
		}
	})
}

// Records of one shard expire in the order of their times, however these were
// set.
func TestExpiryOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 50
		s := newStore(t, Config{})
		inShard := func(i int) [32]byte { return [32]byte{31: byte(i)} }
		for i := range n {
			p := params(inShard(i))
			p.Begun = false // expires by itself, and so has a place to move from
			if _, err := s.Claim(t.Context(), p); err != nil {
				t.Fatal(err)
			}
		}
		for i := range n {
			minute := (i*37)%n + 1 // each once, out of order
			complete(t, s, inShard(i), nil, time.Duration(minute)*time.Minute)
		}
		for minute := range n {
			time.Sleep(time.Minute)
			if got := purgeAll(t, s); got != 1 {
				t.Fatalf("Purge removed %d records after %d minutes, want the one that expired", got, minute+1)
			}
		}
	})
}
