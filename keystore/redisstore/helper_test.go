package redisstore

import (
	"crypto/rand"
	"errors"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/idem-go/idem/keystore"
)

var prefixes atomic.Int64

// newPrefix returns a prefix that nobody else uses, on a server that outlives
// the tests neither.
func newPrefix() string {
	return "test-" + strconv.FormatInt(time.Now().UnixNano(), 36) + "-" + strconv.FormatInt(prefixes.Add(1), 36) + ":"
}

// newStore returns a store on a client of its own. An empty Prefix becomes one
// that nobody else uses.
func newStore(tb testing.TB, addr string, cfg Config) *Store {
	tb.Helper()
	return storeOn(tb, newClient(tb, addr), cfg)
}

func storeOn(tb testing.TB, client redis.UniversalClient, cfg Config) *Store {
	tb.Helper()
	if cfg.Prefix == "" {
		cfg.Prefix = newPrefix()
	}
	s, err := New(client, cfg)
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

func newClient(tb testing.TB, addr string) *redis.Client {
	tb.Helper()
	c := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true})
	tb.Cleanup(func() { _ = c.Close() })
	return c
}

// params are those of a begun claim to a new record, with a lease of an hour.
func params() keystore.ClaimParams {
	p := keystore.ClaimParams{Lease: time.Hour, Keep: time.Hour, Begun: true, Meta: []byte("meta")}
	rand.Read(p.ID[:])
	rand.Read(p.Nonce[:])
	return p
}

// rival returns the parameters of another claim to the same record.
func rival(p keystore.ClaimParams) keystore.ClaimParams {
	rand.Read(p.Nonce[:])
	return p
}

// claim claims and wants the status.
func claim(t *testing.T, s *Store, p keystore.ClaimParams, want keystore.Status) keystore.Claim {
	t.Helper()
	c, err := s.Claim(t.Context(), p)
	if err != nil || c.Status != want {
		t.Fatalf("Claim: %v, %v; want %v", c.Status, err, want)
	}
	return c
}

func acquire(t *testing.T, s *Store, p keystore.ClaimParams) keystore.Owner {
	t.Helper()
	return claim(t, s, p, keystore.Acquired).Owner
}

func completeErr(t *testing.T, s *Store, o keystore.Owner, result string) error {
	return s.Complete(t.Context(), o, keystore.CompleteParams{Result: []byte(result), Retention: time.Hour})
}

func complete(t *testing.T, s *Store, o keystore.Owner, result string) {
	t.Helper()
	ok(t, completeErr(t, s, o, result))
}

func release(t *testing.T, s *Store, o keystore.Owner, how keystore.How) {
	t.Helper()
	ok(t, s.Release(t.Context(), o, keystore.ReleaseParams{How: how}))
}

func records(t *testing.T, s *Store, q keystore.Query) []keystore.Record {
	t.Helper()
	recs, err := s.Records(t.Context(), q)
	ok(t, err)
	return recs
}

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func is(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("got %v, want %v", err, want)
	}
}

// fenced wants the owner to own nothing any more.
func fenced(t *testing.T, s *Store, o keystore.Owner) {
	t.Helper()
	is(t, s.Renew(t.Context(), o, keystore.RenewParams{Lease: time.Hour}), keystore.ErrFenced)
	is(t, completeErr(t, s, o, "of a fenced owner"), keystore.ErrFenced)
	for _, how := range []keystore.How{keystore.Forget, keystore.Reject, keystore.Abandon} {
		is(t, s.Release(t.Context(), o, keystore.ReleaseParams{How: how}), keystore.ErrFenced)
	}
}

// eventually waits for what must happen.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	deadline := time.NewTimer(20 * time.Second)
	defer deadline.Stop()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("%s did not happen", what)
		}
	}
}
