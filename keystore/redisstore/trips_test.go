package redisstore

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/idem-go/idem/internal/servertest"
	"github.com/idem-go/idem/keystore"
)

// trips counts round trips.
type trips struct{ n atomic.Int64 }

func (*trips) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

func (c *trips) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		c.n.Add(1)
		return next(ctx, cmd)
	}
}

func (c *trips) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		c.n.Add(1)
		return next(ctx, cmds)
	}
}

func TestEveryCallIsOneRoundTrip(t *testing.T) {
	client := newClient(t, shared)
	s := storeOn(t, client, Config{})
	// The server has the scripts from here on.
	for _, how := range []keystore.How{keystore.Forget, keystore.Abandon} {
		o := acquire(t, s, params())
		ok(t, s.Renew(t.Context(), o, keystore.RenewParams{Lease: time.Hour}))
		release(t, s, o, how)
	}
	complete(t, s, acquire(t, s, params()), "result")
	records(t, s, keystore.Query{ID: new([32]byte)})

	var counter trips
	client.AddHook(&counter)
	one := func(call string, do func()) {
		t.Helper()
		counter.n.Store(0)
		do()
		if n := counter.n.Load(); n != 1 {
			t.Errorf("%s took %d round trips, want 1", call, n)
		}
	}
	p := params()
	var o keystore.Owner
	one("a claim", func() { o = acquire(t, s, p) })
	one("a losing claim", func() { claim(t, s, rival(p), keystore.InFlight) })
	one("a renewal", func() { ok(t, s.Renew(t.Context(), o, keystore.RenewParams{Lease: time.Hour})) })
	one("a release", func() { release(t, s, o, keystore.Abandon) })
	one("a completion", func() { complete(t, s, o, "result") })
	one("a replay", func() { claim(t, s, rival(p), keystore.Completed) })
	one("a fenced call", func() { is(t, s.Renew(t.Context(), o, keystore.RenewParams{Lease: 1}), keystore.ErrFenced) })
	one("a look", func() { records(t, s, keystore.Query{ID: &p.ID}) })
}

func TestReplayWritesNothing(t *testing.T) {
	s := newStore(t, servertest.Redis(t, servertest.RedisOptions{}).Addr, Config{})
	done, running, unresolved := params(), params(), params()
	complete(t, s, acquire(t, s, done), "result")
	acquire(t, s, running)
	release(t, s, acquire(t, s, unresolved), keystore.Abandon)

	before := writes(t, s)
	for range 10 {
		claim(t, s, rival(done), keystore.Completed)
		claim(t, s, rival(running), keystore.InFlight)
		claim(t, s, rival(unresolved), keystore.Unresolved)
		other := rival(done)
		other.Fingerprint[0]++
		claim(t, s, other, keystore.Mismatch)
		records(t, s, keystore.Query{})
	}
	if after := writes(t, s); after != before {
		t.Errorf("calls that only read have changed the server's data %d times", after-before)
	}
}

// writes is how many changes the server has made to its data.
func writes(t *testing.T, s *Store) (n int64) {
	t.Helper()
	const field = "rdb_changes_since_last_save:"
	info, err := s.client.Info(t.Context(), "persistence").Result()
	ok(t, err)
	_, info, _ = strings.Cut(info, field)
	if _, err := fmt.Sscan(info, &n); err != nil {
		t.Fatalf("no %s in INFO: %v", field, err)
	}
	return n
}
