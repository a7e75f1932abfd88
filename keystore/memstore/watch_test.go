package memstore

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idem-go/idem/keystore"
)

// B098: many keys, many goroutines each, one owner at a time; nobody polls,
// nobody hangs, and no watch is left behind.
func TestWaitersTakeTurns(t *testing.T) {
	const keys, waiters = 200, 25
	s := newStore(t, Config{})
	var running [keys]bool // guarded by the claims; the race detector tells
	var turns [keys]int
	var wg sync.WaitGroup
	for k := range keys {
		for range waiters {
			wg.Go(func() {
				o, err := waitForClaim(t, s, spread(uint64(k)))
				if err != nil {
					t.Error(err)
					return
				}
				if running[k] {
					t.Errorf("two owners of record %d at once", k)
				}
				running[k] = true
				turns[k]++
				running[k] = false
				if err := s.Release(t.Context(), o, keystore.ReleaseParams{How: keystore.Forget}); err != nil {
					t.Error(err)
				}
			})
		}
	}
	wg.Wait()
	for k, n := range turns {
		if n != waiters {
			t.Errorf("record %d had %d owners, want %d", k, n, waiters)
		}
	}
	if n := watched(s); n != 0 {
		t.Errorf("%d watches are left", n)
	}
}

// waitForClaim claims until it acquires, and waits for nothing but Watch.
func waitForClaim(t *testing.T, s *Store, id [32]byte) (keystore.Owner, error) {
	p := params(id)
	for {
		changed, stop := s.Watch(id)
		c, err := s.Claim(t.Context(), p)
		if err != nil || c.Status == keystore.Acquired {
			stop()
			return c.Owner, err
		}
		<-changed
		stop()
	}
}

func TestWatchStopLeavesNothing(t *testing.T) {
	s := newStore(t, Config{})
	_, stopA := s.Watch(id(1))
	changed, stopB := s.Watch(id(1))
	stopA()
	stopA()
	if n := watched(s); n != 1 {
		t.Fatalf("%d watches, want 1: one watcher is left", n)
	}
	claim(t, s, id(1))
	<-changed
	_, stopC := s.Watch(id(1))
	stopB() // of the earlier watch, must not end the later one
	if n := watched(s); n != 1 {
		t.Fatalf("%d watches, want 1", n)
	}
	stopC()
	if n := watched(s); n != 0 {
		t.Fatalf("%d watches are left", n)
	}
}

// What is no change of state or owner wakes nobody.
func TestWatchSleeps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore(t, Config{})
		p := params(id(1))
		c, err := s.Claim(t.Context(), p)
		if err != nil {
			t.Fatal(err)
		}
		changed, stop := s.Watch(id(1))
		defer stop()
		claim(t, s, id(2)) // another record of the shard
		for range 2 {
			if _, err := s.Claim(t.Context(), p); err != nil { // the same claim again
				t.Fatal(err)
			}
		}
		if err := s.Renew(t.Context(), c.Owner, keystore.RenewParams{Lease: time.Second}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute) // the lease runs out
		select {
		case <-changed:
			t.Fatal("a watcher was woken without a change")
		default:
		}
	})
}

// watched returns how many records are watched.
func watched(s *Store) (n int) {
	for i := range s.shards {
		sh := &s.shards[i]
		sh.mu.Lock()
		n += len(sh.watches)
		sh.mu.Unlock()
	}
	return n
}
