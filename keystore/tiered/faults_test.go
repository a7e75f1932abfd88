package tiered_test

import (
	"crypto/rand"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/idem-go/idem/internal/servertest"
	"github.com/idem-go/idem/internal/storeurl"
	"github.com/idem-go/idem/keystore"
	"github.com/idem-go/idem/keystore/tiered"
)

// tiers are real servers with a store over both.
type tiers struct {
	keystore.Store
	redis       *servertest.RedisServer
	postgres    *servertest.PostgresServer
	front, back *storeurl.Opened
	// frontErrors counts what OnFrontError was told.
	frontErrors *atomic.Int64
}

func newTiers(t *testing.T, postgres *servertest.PostgresServer) tiers {
	t.Helper()
	s := tiers{redis: servertest.Redis(t, servertest.RedisOptions{}), postgres: postgres, frontErrors: new(atomic.Int64)}
	s.front, s.back = open(t, redisURL(s.redis)), open(t, s.postgres.URL)
	s.Store = store(t, s.front.Store, s.back.Store, tiered.Config{
		FrontTimeout: time.Second,
		OnFrontError: func(error) { s.frontErrors.Add(1) },
	})
	return s
}

// drawn returns the parameters of a claim to a new record.
func drawn() keystore.ClaimParams {
	p := keystore.ClaimParams{Lease: time.Hour, Keep: time.Hour, Begun: true}
	_, _ = rand.Read(p.ID[:])
	return another(p)
}

// another returns the parameters of another claim to the same record, which
// would take it over.
func another(p keystore.ClaimParams) keystore.ClaimParams {
	p.Takeover = true
	_, _ = rand.Read(p.Nonce[:])
	return p
}

func claim(t *testing.T, s keystore.Store, p keystore.ClaimParams, want keystore.Status) keystore.Claim {
	t.Helper()
	c, err := s.Claim(t.Context(), p)
	if err != nil || c.Status != want {
		t.Fatalf("Claim: %v, %v; want %v", c.Status, err, want)
	}
	return c
}

func complete(t *testing.T, s keystore.Store, o keystore.Owner) {
	t.Helper()
	if err := s.Complete(t.Context(), o, keystore.CompleteParams{Result: []byte("result"), Retention: time.Hour}); err != nil {
		t.Fatal(err)
	}
}

func replayed(t *testing.T, s keystore.Store, p keystore.ClaimParams) {
	t.Helper()
	if got := claim(t, s, another(p), keystore.Completed).Record; string(got.Result) != "result" {
		t.Errorf("the result is %q", got.Result)
	}
}

// calls makes every call that only the back can answer.
func calls(t *testing.T, s keystore.Store, o keystore.Owner) map[string]error {
	p := drawn()
	p.ID = o.ID
	_, claimErr := s.Claim(t.Context(), p)
	_, recordsErr := s.Records(t.Context(), keystore.Query{ID: &o.ID})
	return map[string]error{
		"claim":    claimErr,
		"renew":    s.Renew(t.Context(), o, keystore.RenewParams{Lease: time.Hour}),
		"complete": s.Complete(t.Context(), o, keystore.CompleteParams{Retention: time.Hour}),
		"release":  s.Release(t.Context(), o, keystore.ReleaseParams{How: keystore.Forget}),
		"records":  recordsErr,
	}
}

// Without the authoritative store nothing is granted nor settled; the error is
// its own. What is settled is replayed all the same, and who owns a record does
// so still when it is back.
func TestBackUnreachable(t *testing.T) {
	s := newTiers(t, servertest.Postgres(t))
	running, done := drawn(), drawn()
	o := claim(t, s, running, keystore.Acquired).Owner
	complete(t, s, claim(t, s, done, keystore.Acquired).Owner)

	s.postgres.Kill()
	for op, err := range calls(t, s, o) {
		if err == nil || keystore.Final(err) || !strings.HasPrefix(err.Error(), "pgstore: "+op+": ") {
			t.Errorf("%s without the back: %v, want its error, naming store and operation", op, err)
		}
	}
	replayed(t, s, done)

	if err := s.postgres.Restart(); err != nil {
		t.Fatal(err)
	}
	s.back.Postgres.Reset()
	claim(t, s, another(running), keystore.InFlight)
	complete(t, s, o)
	replayed(t, s, running)
}

// What can't be read in the authoritative store is granted to nobody, also
// where the front knows nothing of it.
func TestBackUnreadable(t *testing.T) {
	s := newTiers(t, servertest.Postgres(t))
	for name, tt := range map[string]struct {
		set  string
		want error
	}{
		"by hand":      {"state = 9", keystore.ErrCorrupt},
		"newer format": {"format = 2, lease_until = '2000-01-01'", keystore.ErrFormat},
	} {
		t.Run(name, func(t *testing.T) {
			p := drawn()
			o := claim(t, s, p, keystore.Acquired).Owner
			if _, err := s.back.Postgres.Exec(t.Context(), "UPDATE idem_records SET "+tt.set+" WHERE id = $1", p.ID[:]); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				for op, err := range calls(t, s, o) {
					if !errors.Is(err, tt.want) {
						t.Errorf("%s: %v, want %v", op, err, tt.want)
					}
				}
			}
		})
	}
}

// Whatever is wrong with the front, what it can't say the back does: nothing is
// granted again, and nothing fails. Somebody is told.
func TestFrontAtFault(t *testing.T) {
	postgres := servertest.Postgres(t)
	for name, spoil := range map[string]func(*testing.T, tiers){
		"flushed":     func(t *testing.T, s tiers) { must(t, s.front.Redis.FlushAll(t.Context()).Err()) },
		"unreachable": func(_ *testing.T, s tiers) { s.redis.Kill() },
		"read-only": func(t *testing.T, s tiers) {
			must(t, s.front.Redis.Do(t.Context(), "REPLICAOF", "127.0.0.1", "1").Err())
		},
		"full": func(t *testing.T, s tiers) { must(t, s.front.Redis.ConfigSet(t.Context(), "maxmemory", "1").Err()) },
		"corrupt": func(t *testing.T, s tiers) {
			eachCopy(t, s, func(key string) error { return s.front.Redis.HSet(t.Context(), key, "state", "x").Err() })
		},
		"newer format": func(t *testing.T, s tiers) {
			eachCopy(t, s, func(key string) error { return s.front.Redis.HSet(t.Context(), key, "v", "2").Err() })
		},
		"copy cut off": func(t *testing.T, s tiers) {
			eachCopy(t, s, func(key string) error { return s.front.Redis.HSet(t.Context(), key, "result", "\x01").Err() })
		},
		"another type": func(t *testing.T, s tiers) {
			eachCopy(t, s, func(key string) error { return s.front.Redis.Set(t.Context(), key, "x", 0).Err() })
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newTiers(t, postgres)
			running, done := drawn(), drawn()
			o := claim(t, s, running, keystore.Acquired).Owner
			complete(t, s, claim(t, s, done, keystore.Acquired).Owner)
			if n, err := s.front.Redis.DBSize(t.Context()).Result(); err != nil || n != 1 {
				t.Fatalf("the front has %d copies, %v; the test shows nothing", n, err)
			}

			spoil(t, s)
			replayed(t, s, done)
			claim(t, s, another(running), keystore.InFlight)
			complete(t, s, o)
			replayed(t, s, running)
			late := drawn()
			complete(t, s, claim(t, s, late, keystore.Acquired).Owner)
			replayed(t, s, late)
			if told := s.frontErrors.Load() > 0; told == (name == "flushed") {
				t.Errorf("OnFrontError was called: %t", told)
			}
		})
	}
}

func eachCopy(t *testing.T, s tiers, spoil func(key string) error) {
	t.Helper()
	keys, err := s.front.Redis.Keys(t.Context(), "*").Result()
	must(t, err)
	for _, key := range keys {
		must(t, spoil(key))
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
