package redisstore

import (
	"errors"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/idem-go/idem/internal/servertest"
	"github.com/idem-go/idem/keystore"
)

// The limit that the package's documentation states: a server that keeps
// nothing on disk loses claims, and then an intent is granted twice. The first
// owner finds out.
func TestClaimsAreLostWithoutPersistence(t *testing.T) {
	server := servertest.Redis(t, servertest.RedisOptions{})
	s := newStore(t, server.Addr, Config{})
	for name, lose := range map[string]func(){
		"FLUSHALL": func() { ok(t, s.client.FlushAll(t.Context()).Err()) },
		"kill -9": func() {
			server.Kill()
			ok(t, server.Restart())
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := params()
			first := acquire(t, s, p)
			lose()
			second := acquire(t, s, rival(p))
			fenced(t, s, first)
			complete(t, s, second, "result")
		})
	}
}

// With appendfsync always a killed server loses nothing that it acknowledged:
// of many claims for each record, before, between and after two kills, one
// wins, and its result is the one that stays.
func TestKilledServerLosesNothingAcknowledged(t *testing.T) {
	t.Parallel()
	server := servertest.Redis(t, servertest.RedisOptions{AOF: true})
	s := newStore(t, server.Addr, Config{})
	const workers, intents = 8, 150
	ids := make([]keystore.ClaimParams, intents)
	for i := range ids {
		ids[i] = params()
	}
	var settled atomic.Int64 // acknowledged completions
	var wg sync.WaitGroup
	wins := make([]map[[32]byte]keystore.Owner, workers)
	for w := range workers {
		wins[w] = map[[32]byte]keystore.Owner{}
		wg.Go(func() {
			for _, p := range ids {
				p = rival(p)
				c := untilAnswered(t, func() (keystore.Claim, error) { return s.Claim(t.Context(), p) })
				if c.Status != keystore.Acquired {
					continue
				}
				wins[w][p.ID] = c.Owner
				untilAnswered(t, func() (struct{}, error) { return struct{}{}, completeErr(t, s, c.Owner, string(c.Owner.Nonce[:])) })
				settled.Add(1)
			}
		})
	}
	for _, at := range []int64{intents / 3, 2 * intents / 3} {
		eventually(t, "the work", func() bool { return settled.Load() >= at })
		server.Kill()
		ok(t, server.Restart())
	}
	wg.Wait()
	for _, p := range ids {
		var winners []keystore.Owner
		for _, won := range wins {
			if o, ok := won[p.ID]; ok {
				winners = append(winners, o)
			}
		}
		if len(winners) != 1 {
			t.Fatalf("a record has %d winners, want 1", len(winners))
		}
		got := claim(t, s, rival(p), keystore.Completed).Record
		if got.Token != winners[0].Token || string(got.Result) != string(winners[0].Nonce[:]) {
			t.Fatal("the record has not the winner's result")
		}
	}
}

// untilAnswered repeats the call until the server has answered it. A call that
// is answered ErrFenced was not expected to be.
func untilAnswered[T any](t *testing.T, call func() (T, error)) (got T) {
	for t.Context().Err() == nil {
		var err error
		if got, err = call(); err == nil {
			return got
		}
		if errors.Is(err, keystore.ErrFenced) {
			t.Error(err)
			return got
		}
	}
	return got
}

func TestFullServer(t *testing.T) {
	server := servertest.Redis(t, servertest.RedisOptions{Args: []string{"--maxmemory-policy", "noeviction"}})
	s := newStore(t, server.Addr, Config{})
	p := params()
	o := acquire(t, s, p)
	ok(t, s.client.ConfigSet(t.Context(), "maxmemory", "1").Err())
	full := params()
	_, err := s.Claim(t.Context(), full)
	is(t, err, keystore.ErrFull)
	claim(t, s, rival(p), keystore.InFlight) // reading goes on
	if err := completeErr(t, s, o, "result"); err == nil || errors.Is(err, keystore.ErrFenced) {
		t.Errorf("Complete on a full server: %v", err)
	}
	ok(t, s.client.ConfigSet(t.Context(), "maxmemory", "0").Err())
	if n := len(records(t, s, keystore.Query{})); n != 1 {
		t.Errorf("there are %d records, want 1: the refused claim must leave nothing", n)
	}
	complete(t, s, o, "result")
}

func TestUnreachableServer(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1})
	t.Cleanup(func() { _ = client.Close() })
	failing(t, storeOn(t, client, Config{}), func(err error) bool {
		var netErr *net.OpError
		return errors.As(err, &netErr)
	})
}

// A replica, or a master that was demoted, grants nothing.
func TestReadOnlyServer(t *testing.T) {
	master := servertest.Redis(t, servertest.RedisOptions{})
	replica := startReplica(t, master)
	client := redis.NewClient(&redis.Options{Addr: replica.Addr, MaxRetries: -1})
	t.Cleanup(func() { _ = client.Close() })
	s := storeOn(t, client, Config{})
	_, err := s.Claim(t.Context(), params())
	if !redis.HasErrorPrefix(errors.Unwrap(err), "READONLY") {
		t.Errorf("a claim on a replica: %v", err)
	}
}

// failing wants every call to fail with the backend's error, which names the
// store and the operation.
func failing(t *testing.T, s *Store, backend func(error) bool) {
	t.Helper()
	ctx := t.Context()
	_, claimErr := s.Claim(ctx, params())
	_, recordsErr := s.Records(ctx, keystore.Query{})
	_, recordErr := s.Records(ctx, keystore.Query{ID: &[32]byte{1}})
	for _, tt := range []struct {
		op  string
		err error
	}{
		{"claim", claimErr},
		{"records", recordsErr},
		{"records", recordErr},
		{"renew", s.Renew(ctx, keystore.Owner{}, keystore.RenewParams{Lease: time.Hour})},
		{"complete", s.Complete(ctx, keystore.Owner{}, keystore.CompleteParams{Retention: time.Hour})},
		{"release", s.Release(ctx, keystore.Owner{}, keystore.ReleaseParams{How: keystore.Forget})},
	} {
		if tt.err == nil || !backend(tt.err) || !strings.HasPrefix(tt.err.Error(), "redisstore: "+tt.op+": ") {
			t.Errorf("%s: %v", tt.op, tt.err)
		}
	}
}
