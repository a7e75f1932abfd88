package redisstore

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/idem-go/idem/internal/lincheck"
	"github.com/idem-go/idem/internal/servertest"
	"github.com/idem-go/idem/keystore"
	"github.com/idem-go/idem/keystore/keystoretest"
)

func TestContractBatches(t *testing.T) {
	t.Parallel()
	prefix := newPrefix()
	keystoretest.Run(t, func(t *testing.T) keystore.Store {
		return newStore(t, shared, Config{Prefix: prefix, Batch: true})
	})
}

func TestLinearizableBatches(t *testing.T) {
	t.Parallel()
	cfg := Config{Prefix: newPrefix(), Batch: true}
	lincheck.Run(t, 8, 1300, newStore(t, shared, cfg), newStore(t, shared, cfg))
}

// asBatch makes the calls one batch, and returns when all are answered.
func asBatch(t *testing.T, s *Store, calls ...func()) {
	t.Helper()
	release, free := s.calls.Occupy()
	if !free {
		t.Fatal("something is under way")
	}
	var wg sync.WaitGroup
	for _, call := range calls {
		wg.Go(call)
	}
	for deadline := time.Now().Add(time.Minute); s.calls.Pending() <= len(calls); runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatalf("%d of %d calls wait", s.calls.Pending()-1, len(calls))
		}
	}
	release()
	wg.Wait()
}

// Each call of a batch is answered as it would be alone, and all take one round
// trip.
func TestBatch(t *testing.T) {
	server := servertest.Redis(t, servertest.RedisOptions{})
	client := newClient(t, server.Addr)
	s := storeOn(t, client, Config{Batch: true})
	for _, known := range []bool{false, true} { // the scripts, to the server
		taken, done, owned := params(), params(), params()
		acquire(t, s, taken)
		complete(t, s, acquire(t, s, done), "result")
		owner := acquire(t, s, owned)
		lost := owner
		lost.Token++
		if !known {
			ok(t, client.ScriptFlush(t.Context()).Err())
		}
		var counter trips
		client.AddHook(&counter)
		asBatch(t, s,
			func() { claim(t, s, params(), keystore.Acquired) },
			func() { claim(t, s, rival(taken), keystore.InFlight) },
			func() {
				if c := claim(t, s, rival(done), keystore.Completed); string(c.Record.Result) != "result" {
					t.Errorf("replayed %q", c.Record.Result)
				}
			},
			func() {
				if err := s.Complete(t.Context(), lost, keystore.CompleteParams{Retention: time.Hour}); !errors.Is(err, keystore.ErrFenced) {
					t.Errorf("who has lost it was told %v", err)
				}
			})
		if n := counter.n.Load(); known && n != 1 {
			t.Errorf("%d round trips, want 1", n)
		}
		ok(t, completeErr(t, s, owner, "whole"))
	}
}

// A record is in a batch once: what follows sees what was done.
func TestBatchOfOneRecord(t *testing.T) {
	s := newStore(t, shared, Config{Batch: true})
	p := params()
	var mu sync.Mutex
	got := map[keystore.Status]int{}
	call := func() {
		c, err := s.Claim(t.Context(), rival(p))
		if err != nil {
			t.Error(err)
		}
		mu.Lock()
		defer mu.Unlock()
		got[c.Status]++
	}
	asBatch(t, s, call, call, call)
	if got[keystore.Acquired] != 1 || got[keystore.InFlight] != 2 {
		t.Errorf("answers %v", got)
	}
}

// Where there is no server, nobody is told that there was an answer.
func TestBatchUnreachable(t *testing.T) {
	server := servertest.Redis(t, servertest.RedisOptions{})
	client := redis.NewClient(&redis.Options{Addr: server.Addr, MaxRetries: -1, ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = client.Close() })
	s := storeOn(t, client, Config{Batch: true})
	o := acquire(t, s, params())
	server.Kill()
	fails := func() {
		if c, err := s.Claim(t.Context(), params()); err == nil || c.Status != 0 {
			t.Errorf("a claim was answered %v, %v", c.Status, err)
		}
	}
	for range 2 { // on a connection that is gone, and without any
		asBatch(t, s, fails, fails, func() {
			if err := completeErr(t, s, o, "result"); err == nil {
				t.Error("a completion succeeded")
			}
		})
	}
}

// Who leaves a batch leaves alone.
func TestBatchMemberLeaves(t *testing.T) {
	s := newStore(t, shared, Config{Batch: true})
	ctx, cancel := context.WithCancel(t.Context())
	release, _ := s.calls.Occupy()
	left, stays := make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := s.Claim(ctx, params())
		left <- err
	}()
	go func() {
		_, err := s.Claim(t.Context(), params())
		stays <- err
	}()
	for s.calls.Pending() < 3 {
		runtime.Gosched()
	}
	cancel()
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Errorf("who has left was told %v", err)
	}
	release()
	if err := <-stays; err != nil {
		t.Errorf("who has stayed was told %v", err)
	}
}
