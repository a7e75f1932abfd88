package memstore

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idem-go/idem/keystore"
)

// Leases, retentions and ages end at the nanosecond.
func TestTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore(t, Config{})
		wants := func(want keystore.Status) keystore.Claim {
			t.Helper()
			c, err := s.Claim(t.Context(), params(id(1)))
			if err != nil || c.Status != want {
				t.Fatalf("Claim: %v, %v; want %v", c.Status, err, want)
			}
			return c
		}
		wants(keystore.Acquired)
		time.Sleep(time.Hour - 1)
		if rec := wants(keystore.InFlight).Record; rec.LeaseLeft != 1 || rec.Age != time.Hour-1 {
			t.Fatalf("LeaseLeft %v, Age %v a nanosecond before the end of the lease", rec.LeaseLeft, rec.Age)
		}
		time.Sleep(time.Nanosecond)
		if rec := wants(keystore.Unresolved).Record; rec.LeaseLeft != 0 || !rec.Unresolved() {
			t.Fatalf("LeaseLeft %v at the end of the lease", rec.LeaseLeft)
		}
		complete(t, s, id(1), []byte("result"), time.Minute)
		time.Sleep(time.Minute - 1)
		if rec := wants(keystore.Completed).Record; rec.Age != time.Hour+time.Minute-1 {
			t.Fatalf("Age %v, want it to count from the claim", rec.Age)
		}
		time.Sleep(time.Nanosecond)
		if rec := wants(keystore.Acquired).Record; rec.Age != 0 || rec.LeaseLeft != time.Hour {
			t.Fatalf("Age %v, LeaseLeft %v of a new record", rec.Age, rec.LeaseLeft)
		}
	})
}

// A token rises even where the record was removed in between.
func TestTokenOutlivesRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore(t, Config{})
		first := claim(t, s, id(1))
		complete(t, s, id(1), nil, time.Minute)
		time.Sleep(time.Minute)
		purgeAll(t, s)
		if second := claim(t, s, id(1)); second.Token <= first.Token {
			t.Fatalf("the token went from %d to %d", first.Token, second.Token)
		}
	})
}

func TestCancelledContext(t *testing.T) {
	s := newStore(t, Config{})
	o := claim(t, s, id(1))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, claimErr := s.Claim(ctx, params(id(2)))
	_, recordsErr := s.Records(ctx, keystore.Query{})
	for call, err := range map[string]error{
		"Claim":    claimErr,
		"Records":  recordsErr,
		"Renew":    s.Renew(ctx, o, keystore.RenewParams{Lease: 1}),
		"Complete": s.Complete(ctx, o, keystore.CompleteParams{Retention: 1}),
		"Release":  s.Release(ctx, o, keystore.ReleaseParams{How: keystore.Forget}),
	} {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s with a cancelled context: %v", call, err)
		}
	}
	complete(t, s, id(1), nil, time.Hour)
}
