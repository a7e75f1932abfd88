package idem_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/keystore"
)

func TestShutdownWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t)
		c := newClient(t, idem.Config{Store: store, Policy: patient})
		g := newGated()
		a := start(t, c, intent, g.call)
		done := make(chan error)
		go func() { done <- c.Shutdown(t.Context()) }()
		time.Sleep(time.Minute)
		synctest.Wait()
		select {
		case err := <-done:
			t.Fatal("B079: did not wait for a flight:", err)
		default:
		}

		// Refused: new intents, unnamed ones, and more callers of a running one.
		_, err := idem.Do(t.Context(), c, idem.Intent{Scope: "shop", ID: "o2"}, g.call)
		wantOutcome(t, err, idem.OutcomeNotExecuted, idem.ErrShutdown)
		_, err = idem.Do(t.Context(), c, idem.Intent{}, g.call)
		wantOutcome(t, err, idem.OutcomeNotExecuted, idem.ErrShutdown)
		_, err = idem.Do(t.Context(), c, intent, g.call)
		wantOutcome(t, err, idem.OutcomeUnknown, idem.ErrShutdown)

		close(g.gate)
		if err := <-done; err != nil {
			t.Error(err)
		}
		if rec := record(t, store); rec.State != keystore.Done {
			t.Errorf("returned before the record was settled: %v", rec.State)
		}
		res, err := a.wait()
		wantSource(t, res, err, idem.SourceExecuted)
		if g.calls.Load() != 1 {
			t.Errorf("%d calls", g.calls.Load())
		}

		ended, cancel := context.WithCancel(t.Context())
		cancel()
		for range 20 { // again, and with nothing to wait for
			if err := c.Shutdown(ended); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func TestShutdownCancels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t)
		c := newClient(t, idem.Config{Store: store, Policy: patient})
		g := newGated()
		a, b := start(t, c, intent, g.call), start(t, c, intent, g.call)
		began := time.Now()
		if err := c.Shutdown(after(t, time.Minute)); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != time.Minute {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		for _, caller := range []*caller[int64]{a, b} {
			_, err := caller.wait()
			wantOutcome(t, err, idem.OutcomeUnknown, idem.ErrShutdown)
		}
		if rec := record(t, store); !rec.Unresolved() {
			t.Errorf("B079: record %+v", rec)
		}
		if err := c.Shutdown(t.Context()); err != nil { // all have ended
			t.Error(err)
		}
		// The next process takes the intent up.
		res, err := idem.Do(t.Context(), newClient(t, idem.Config{Store: store}), intent, succeed)
		wantSource(t, res, err, idem.SourceExecuted)
		if res.Key != failure(t, a.err).Key {
			t.Errorf("keys %s, %s", failure(t, a.err).Key, res.Key)
		}
	})
}

// A flight that waits for another owner, or between attempts, ends as well.
func TestShutdownCancelsWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t)
		g := newGated()
		owner := start(t, newClient(t, idem.Config{Store: store, Policy: patient}), intent, g.call)
		c := newClient(t, idem.Config{Store: store, Policy: idem.Policy{InFlightWait: time.Hour, BaseDelay: time.Hour, MaxDelay: time.Hour, Overall: 20 * time.Hour}})
		waiting := start(t, c, intent, g.call)
		pausing := start(t, c, idem.Intent{Scope: "shop", ID: "o2"}, answers(notExecuted).call)

		if err := c.Shutdown(after(t, time.Millisecond)); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		_, err := waiting.wait()
		wantOutcome(t, err, idem.OutcomeInFlight, idem.ErrShutdown)
		_, err = pausing.wait()
		wantOutcome(t, err, idem.OutcomeNotExecuted, idem.ErrShutdown, errBoom)
		close(g.gate)
		res, err := owner.wait()
		wantSource(t, res, err, idem.SourceExecuted)
	})
}
