package idem_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/keystore"
)

// TestJoinRefused: who may not share in a running flight is told so at once,
// and the flight goes on.
func TestJoinRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t, idem.Config{Policy: patient})
		g := newGated()
		a := start(t, c, intent, g.call)

		other := intent
		other.Payload = order{"o1", 43}
		_, err := idem.Do(t.Context(), c, other, g.call)
		wantOutcome(t, err, idem.OutcomeRejected, idem.ErrPayloadMismatch)

		_, err = idem.Do(t.Context(), c, intent, answers(nil).call)
		wantOutcome(t, err, idem.OutcomeRejected, idem.ErrResultType)
		if !strings.Contains(err.Error(), "int64") || !strings.Contains(err.Error(), "receipt") {
			t.Errorf("%q names not both types", err)
		}

		close(g.gate)
		res, err := a.wait()
		wantSource(t, res, err, idem.SourceExecuted)
		if g.calls.Load() != 1 {
			t.Errorf("%d calls", g.calls.Load())
		}
	})
}

// Who calls after having been told does not join what has ended.
func TestAfterwards(t *testing.T) {
	c := newClient(t, idem.Config{Policy: idem.Policy{Attempts: 1}})
	for range 200 {
		res, err := idem.Do(t.Context(), c, intent, answers(nil).call)
		wantSource(t, res, err, idem.SourceExecuted)
		s := answers(notExecuted)
		if idem.Do(t.Context(), c, intent, s.call); s.calls() != 1 {
			t.Fatalf("%d calls", s.calls())
		}
	}
}

// TestFlightsApart: what does not name the same intent is not merged.
func TestFlightsApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t, idem.Config{Policy: patient})
		g := newGated()
		all := []*caller[int64]{
			start(t, c, idem.Intent{Scope: "alice", ID: "o1", Payload: 1}, g.call),
			start(t, c, idem.Intent{Scope: "bob", ID: "o1", Payload: 1}, g.call), // B080
			start(t, c, idem.Intent{Scope: "alice", ID: "o2", Payload: 1}, g.call),
			start(t, c, idem.Intent{Scope: "alice", Key: "o1", Payload: 1}, g.call),
			start(t, c, idem.Intent{Scope: "alice", Payload: 1}, g.call), // B056
			start(t, c, idem.Intent{Scope: "alice", Payload: 1}, g.call),
			start(t, newClient(t, idem.Config{Policy: patient}), idem.Intent{Scope: "alice", ID: "o1", Payload: 1}, g.call),
		}
		close(g.gate)
		for i, b := range all {
			if res, err := b.wait(); err != nil || res.Source != idem.SourceExecuted {
				t.Errorf("call %d: %v, %v", i, res.Source, err)
			}
		}
		if n := g.calls.Load(); int(n) != len(all) {
			t.Errorf("%d calls, want %d", n, len(all))
		}
	})
}

func TestReentrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t, idem.Config{})
		other := idem.Intent{Scope: "shop", ID: "o2"}
		do := func(ctx context.Context, c *idem.Client, in idem.Intent, inner func(context.Context) error) error {
			_, err := idem.Do(ctx, c, in, func(ctx context.Context, _ idem.Key) (int, error) { return 0, inner(ctx) })
			return err
		}
		again := func(ctx context.Context) error {
			_, err := idem.Do(ctx, c, intent, never[int](t))
			return err
		}
		began := time.Now()
		for name, err := range map[string]error{
			"directly":                do(t.Context(), c, intent, again),
			"through another intent":  do(t.Context(), c, intent, func(ctx context.Context) error { return do(ctx, c, other, again) }),
			"through an unnamed call": do(t.Context(), c, intent, func(ctx context.Context) error { return do(ctx, c, idem.Intent{}, again) }),
		} {
			if !errors.Is(err, idem.ErrReentrant) {
				t.Errorf("%s: %v, want ErrReentrant", name, err)
			}
		}
		if d := time.Since(began); d != 0 {
			t.Errorf("took %v", d)
		}
		// Other intents, and other clients, are no re-entry.
		if err := do(t.Context(), c, intent, func(ctx context.Context) error {
			return do(ctx, c, other, func(ctx context.Context) error {
				return do(ctx, newClient(t, idem.Config{}), intent, func(context.Context) error { return nil })
			})
		}); err != nil {
			t.Error(err)
		}
	})
}

// TestDyingFlight: when all callers have left for good, the record is
// unresolved; who comes meanwhile waits for that and continues under the same
// key, never beside the dying flight.
func TestDyingFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t)
		c := newClient(t, idem.Config{Store: store, Policy: patient})
		running := 0
		slow := func(ctx context.Context, _ idem.Key) (receipt, error) {
			running++
			<-ctx.Done()
			time.Sleep(time.Minute) // does not end at once
			running--
			return receipt{}, ctx.Err()
		}
		a := start(t, c, intent, slow)
		a.cancel()
		time.Sleep(10 * time.Second) // the grace is over

		began := time.Now()
		_, err := idem.Do(after(t, time.Second), c, intent, slow)
		wantOutcome(t, err, idem.OutcomeUnknown, context.DeadlineExceeded)
		if d := time.Since(began); d != time.Second {
			t.Errorf("left after %v", d)
		}

		s := answers(notExecuted)
		_, err = idem.Do(t.Context(), c, intent, func(ctx context.Context, key idem.Key) (receipt, error) {
			if running != 0 || !record(t, store).Begun {
				t.Error("two calls of one intent run at the same time")
			}
			return s.call(ctx, key)
		})
		e := wantOutcome(t, err, idem.OutcomeUnknown)
		if _, left := a.wait(); e.Key != s.sent(t) || failure(t, left).Key != e.Key {
			t.Errorf("keys %s, %s", e.Key, failure(t, left).Key)
		}
		if rec := record(t, store); !rec.Unresolved() {
			t.Errorf("record %+v", rec)
		}
	})
}

// A flight that is refused after its callers have left is settled as refused.
func TestSettledWithoutCallers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, tt := range []struct {
			err   error
			state keystore.State
		}{{nil, keystore.Done}, {rejected, keystore.Free}} {
			store := newStore(t)
			s := answers(tt.err)
			b := start(t, newClient(t, idem.Config{Store: store}), intent, func(ctx context.Context, key idem.Key) (receipt, error) {
				<-ctx.Done()
				return s.call(ctx, key)
			})
			b.cancel()
			graceOver()
			if rec := record(t, store); rec.State != tt.state {
				t.Errorf("%v: record %v, want %v", tt.err, rec.State, tt.state)
			}
		}
	})
}

// Who leaves a flight is told the key that it sends, of whatever generation.
func TestLeaverHasKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, random := range []bool{false, true} {
			c := newClient(t, idem.Config{Store: newStore(t), RandomKeys: random})
			first := answers(rejected)
			_, err := idem.Do(t.Context(), c, intent, first.call)
			wantOutcome(t, err, idem.OutcomeRejected)

			second := answers(errBoom)
			call := func(ctx context.Context, key idem.Key) (receipt, error) {
				<-ctx.Done()
				return second.call(ctx, key)
			}
			a, b := start(t, c, intent, call), start(t, c, intent, call)
			a.cancel()
			_, left := a.wait()
			b.cancel()
			_, leftToo := b.wait()
			graceOver()
			if key := second.sent(t); key == first.sent(t) || failure(t, left).Key != key || failure(t, leftToo).Key != key {
				t.Errorf("sent %s after %s; the leavers were told %s and %s", key, first.sent(t), failure(t, left).Key, failure(t, leftToo).Key)
			}
		}
	})
}

// TestJoinedErrors: every caller may change what it was given.
func TestJoinedErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t, idem.Config{Policy: idem.Policy{Attempts: 1}})
		errs := make(chan error)
		for range 3 {
			go func() {
				req, _ := http.NewRequestWithContext(idem.WithIntent(t.Context(), intent), "POST", "http://shop.test/charges", nil)
				_, err := c.Transport(roundTripper(func(req *http.Request) (*http.Response, error) {
					time.Sleep(time.Second)
					return replies(500, "X-Trace", "1")(req)
				})).RoundTrip(req)
				errs <- err
			}()
		}
		for range 3 {
			e := wantOutcome(t, <-errs, idem.OutcomeUnknown)
			var last *idem.ResponseError
			if !errors.As(e, &last) || last.Header.Get("X-Trace") != "1" {
				t.Fatal("another caller has changed the error:", e)
			}
			last.Header.Set("X-Trace", "2")
			e.Outcome, e.Cause, e.Last = idem.OutcomeExecuted, errBoom, nil
		}
	})
}
