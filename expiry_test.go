package idem_test

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idem-go/idem"
)

// TestKeyExpired: what the server may have forgotten is not sent again.
func TestKeyExpired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t)
		c := newClient(t, idem.Config{Store: store, Contract: idem.Contract{Retention: time.Hour}}) // margin: 5 s for an attempt, 1 %
		first := answers(unknown)
		_, err := idem.Do(t.Context(), c, intent, first.call)
		wantOutcome(t, err, idem.OutcomeUnknown)
		sent := record(t, store).Age

		time.Sleep(time.Hour - 41*time.Second - sent - 1)
		again := answers(errBoom)
		_, err = idem.Do(t.Context(), c, intent, again.call)
		wantOutcome(t, err, idem.OutcomeUnknown)
		if again.sent(t) != first.sent(t) {
			t.Error("another key")
		}

		// B086: counted from the first send, whatever was sent since.
		time.Sleep(time.Nanosecond)
		was := record(t, store)
		for range 2 {
			_, err = idem.Do(t.Context(), c, intent, never[receipt](t))
			e := wantOutcome(t, err, idem.OutcomeUnknown, idem.ErrKeyExpired, idem.ErrOutcomeUnknown)
			if rec := record(t, store); e.Key != first.sent(t) || !rec.Unresolved() || rec.Token != was.Token {
				t.Errorf("key %s, record %+v, was %+v", e.Key, rec, was)
			}
			time.Sleep(24 * time.Hour)
		}
	})
}

// B086: the key may expire while a slow store takes its time to grant the claim.
func TestKeyExpiresAtClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := newStore(t)
		cfg := idem.Config{Store: mem, Contract: idem.Contract{Retention: time.Hour}}
		_, err := idem.Do(t.Context(), newClient(t, cfg), intent, answers(errBoom).call)
		wantOutcome(t, err, idem.OutcomeUnknown)
		time.Sleep(time.Hour - 41*time.Second - time.Second)

		store := &hookStore{Store: mem}
		store.hook = func(method string, call func() error) error {
			if method == "claim" && store.count("claim") == 2 { // to take over
				time.Sleep(4 * time.Second)
			}
			return call()
		}
		cfg.Store = store
		_, err = idem.Do(t.Context(), newClient(t, cfg), intent, never[receipt](t))
		wantOutcome(t, err, idem.OutcomeUnknown, idem.ErrKeyExpired)
		if rec := record(t, mem); !rec.Unresolved() {
			t.Errorf("the claim stands for %v", rec.LeaseLeft)
		}
	})
}

// B147: no attempt starts, after its wait, when the server may have begun to
// forget the key; nor is there a wait for one.
func TestKeyExpiresBetweenAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// Without a margin of 6 s, 94 s are left.
		cfg := idem.Config{Store: newStore(t), Scope: "shop", Contract: idem.Contract{Retention: 100 * time.Second},
			Policy: idem.Policy{Overall: 90 * time.Second, Attempts: 1}}
		began := time.Now()
		var last time.Duration
		send := func() error {
			base := replies(503, "Retry-After", "5")
			req, err := http.NewRequestWithContext(idem.WithIntent(t.Context(), idem.Intent{ID: "o"}), "POST", "http://example.com/", nil)
			if err != nil {
				t.Fatal(err)
			}
			_, err = newClient(t, cfg).Transport(roundTripper(func(r *http.Request) (*http.Response, error) {
				last = time.Since(began)
				return base(r)
			})).RoundTrip(req)
			return err
		}
		wantOutcome(t, send(), idem.OutcomeUnknown)
		time.Sleep(80 * time.Second)
		cfg.Policy.Attempts = 100
		wantOutcome(t, send(), idem.OutcomeUnknown, idem.ErrKeyExpired)
		if last < 88*time.Second || last >= 94*time.Second || time.Since(began) != last {
			t.Errorf("last sent after %v, told after %v", last, time.Since(began))
		}
	})
}

// B147: the answer to the claim may come so late that the key has expired.
func TestKeyExpiresWhileClaiming(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := newStore(t)
		cfg := idem.Config{Store: mem, Contract: short}
		_, err := idem.Do(t.Context(), newClient(t, cfg), intent, answers(errBoom).call)
		wantOutcome(t, err, idem.OutcomeUnknown)
		time.Sleep(time.Hour - 41*time.Second - time.Second)
		cfg.Store = &hookStore{Store: mem, hook: func(method string, call func() error) error {
			if method == "claim" { // one to see it, one to take it over
				defer time.Sleep(600 * time.Millisecond)
			}
			return call()
		}}
		_, err = idem.Do(t.Context(), newClient(t, cfg), intent, never[receipt](t))
		wantOutcome(t, err, idem.OutcomeUnknown, idem.ErrKeyExpired)
		if rec := record(t, mem); !rec.Unresolved() {
			t.Errorf("record %+v", rec)
		}
	})
}

// TestRetryHorizon: how long a server must remember keys at least.
func TestRetryHorizon(t *testing.T) {
	cfg := idem.Config{Contract: short}
	if h := newClient(t, cfg).RetryHorizon(); h != 30*time.Second {
		t.Errorf("without a store: %v", h)
	}
	cfg.Store = newStore(t)
	if h := newClient(t, cfg).RetryHorizon(); h != time.Hour {
		t.Errorf("with a store: %v", h)
	}
}
