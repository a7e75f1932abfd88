package redisstore

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/idem-go/idem/internal/servertest"
	"github.com/idem-go/idem/keystore"
)

// A server that became a replica takes no claim from its owner and settles
// nothing, whatever is tried; what is only read goes on.
func TestReadOnlyKeepsOwners(t *testing.T) {
	server := servertest.Redis(t, servertest.RedisOptions{})
	s := newStore(t, server.Addr, Config{})
	running, done := params(), params()
	o := acquire(t, s, running)
	complete(t, s, acquire(t, s, done), "result")
	ok(t, s.client.SlaveOf(t.Context(), "127.0.0.1", "1").Err()) // a master that is not there

	_, claimErr := s.Claim(t.Context(), params())
	for op, err := range map[string]error{
		"claim":    claimErr,
		"renew":    s.Renew(t.Context(), o, keystore.RenewParams{Lease: time.Nanosecond}),
		"complete": completeErr(t, s, o, "result"),
		"release":  s.Release(t.Context(), o, keystore.ReleaseParams{How: keystore.Forget}),
	} {
		if !redis.HasErrorPrefix(rootOf(err), "READONLY") || keystore.Final(err) || !strings.HasPrefix(err.Error(), "redisstore: "+op+": ") {
			t.Errorf("%s on a replica: %v, want the server's error naming store and operation", op, err)
		}
	}
	r := rival(running)
	r.Takeover = true
	claim(t, s, r, keystore.InFlight)
	claim(t, s, rival(done), keystore.Completed)
	for _, q := range []keystore.Query{{ID: &running.ID}, {}} {
		if len(records(t, s, q)) == 0 {
			t.Error("a replica lists no records")
		}
	}

	ok(t, s.client.SlaveOf(t.Context(), "no", "one").Err())
	claim(t, s, r, keystore.InFlight)
	complete(t, s, o, "result")
	claim(t, s, r, keystore.Completed)
}

// rootOf returns what the errors of the store wrap, nil of nil.
func rootOf(err error) error {
	for {
		wrapped, ok := err.(interface{ Unwrap() error })
		if !ok {
			return err
		}
		err = wrapped.Unwrap()
	}
}
