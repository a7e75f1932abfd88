package redisstore

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/idem-go/idem/internal/servertest"
	"github.com/idem-go/idem/keystore"
)

// execute has workers carry out intents side by side, each of them all, and
// returns how often each intent was executed. meanwhile is called between the
// parts of the work, whose number it is told.
func execute(t *testing.T, s *Store, intents []keystore.ClaimParams, parts int, meanwhile func(part int)) []int64 {
	t.Helper()
	const workers = 8
	executed := make([]atomic.Int64, len(intents))
	var seen atomic.Int64 // intents, by any worker
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for i, p := range intents {
				p = rival(p)
				c := untilAnswered(t, func() (keystore.Claim, error) { return s.Claim(t.Context(), p) })
				if c.Status == keystore.Acquired {
					executed[i].Add(1)
					untilAnswered(t, func() (struct{}, error) { return struct{}{}, completeErr(t, s, c.Owner, "result") })
				}
				seen.Add(1)
			}
		})
	}
	for part := range parts {
		want := int64(workers * len(intents) * (part + 1) / (parts + 1))
		eventually(t, "the work", func() bool { return seen.Load() >= want })
		meanwhile(part)
	}
	wg.Wait()
	counts := make([]int64, len(intents))
	for i := range counts {
		counts[i] = executed[i].Load()
	}
	return counts
}

func newIntents(n int) []keystore.ClaimParams {
	all := make([]keystore.ClaimParams, n)
	for i := range all {
		all[i] = params()
	}
	return all
}

// Scripts and connections are lost in the middle of the load, again and again,
// and a server that syncs its append-only file always is killed: no intent is
// executed twice.
func TestLoadWithLosses(t *testing.T) {
	t.Parallel()
	server := servertest.Redis(t, servertest.RedisOptions{AOF: true})
	s := newStore(t, server.Addr, Config{})
	admin := newClient(t, server.Addr)
	lose := []func(){
		func() { ok(t, admin.ScriptFlush(t.Context()).Err()) },
		func() { ok(t, admin.ClientKillByFilter(t.Context(), "TYPE", "normal", "SKIPME", "yes").Err()) },
		func() { server.Kill(); ok(t, server.Restart()) },
	}
	for i, n := range execute(t, s, newIntents(300), 9, func(part int) { lose[part%len(lose)]() }) {
		if n != 1 {
			t.Errorf("intent %d was executed %d times, want once", i, n)
		}
	}
}

// FLUSHALL forgets everything, append-only file or not: what comes again after
// it is executed again, as the package's documentation says, and only that.
func TestLoadWithFlush(t *testing.T) {
	server := servertest.Redis(t, servertest.RedisOptions{AOF: true})
	s := newStore(t, server.Addr, Config{})
	intents := newIntents(50)
	for range 3 {
		for _, want := range []int64{1, 0} {
			for i, n := range execute(t, s, intents, 0, nil) {
				if n != want {
					t.Errorf("intent %d was executed %d times, want %d", i, n, want)
				}
			}
		}
		ok(t, s.client.FlushAll(t.Context()).Err())
	}
}

// Under steady load the database stays as large as what was settled a moment
// ago: Redis removes records by itself, beside a sweeper that finds nothing.
func TestDatabaseStaysFlat(t *testing.T) {
	t.Parallel()
	server := servertest.Redis(t, servertest.RedisOptions{})
	s := newStore(t, server.Addr, Config{})
	ctx, cancel := context.WithCancel(t.Context())
	var sweeping sync.WaitGroup
	sweeping.Go(func() {
		_ = keystore.Sweeper{Store: s, Every: 10 * time.Millisecond, OnError: func(err error) {
			if ctx.Err() == nil {
				t.Error(err)
			}
		}}.Run(ctx)
	})
	const rounds, workers, perWorker, bound = 6, 3, 200, 200
	atMost := func(bound int64) {
		t.Helper()
		eventually(t, "the end of what is over", func() bool {
			size, err := s.client.DBSize(t.Context()).Result()
			ok(t, err)
			return size <= bound
		})
	}
	for range rounds {
		var load sync.WaitGroup
		for range workers {
			load.Go(func() {
				for i := range perWorker {
					p := params()
					p.Keep = time.Millisecond
					c, err := s.Claim(t.Context(), p)
					switch {
					case err != nil:
					case i%4 == 0:
						err = s.Release(t.Context(), c.Owner, keystore.ReleaseParams{How: keystore.Reject})
					default:
						err = s.Complete(t.Context(), c.Owner, keystore.CompleteParams{Result: []byte("done"), Retention: 20 * time.Millisecond})
					}
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
		load.Wait()
		atMost(bound)
	}
	atMost(0)
	cancel()
	sweeping.Wait()
}
