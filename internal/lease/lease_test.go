package lease_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/idem-go/idem/internal/lease"
	"github.com/idem-go/idem/keystore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// renewals is a store that only renews.
type renewals struct {
	keystore.Store
	n      atomic.Int32
	answer func(ctx context.Context, n int, p keystore.RenewParams) error
}

func (r *renewals) Renew(ctx context.Context, o keystore.Owner, p keystore.RenewParams) error {
	n := int(r.n.Add(1))
	if o.Token != 7 || p.Lease != length {
		return errors.New("wrong owner or lease")
	}
	if r.answer == nil {
		return nil
	}
	return r.answer(ctx, n, p)
}

const length = 30 * time.Second

func keep(ctx context.Context, store keystore.Store, lost func()) *lease.Keeper {
	k := new(lease.Keeper)
	lease.New(store, length).Keep(k, context.WithoutCancel(ctx), keystore.Owner{Token: 7}, time.Now(), time.Time{}, lease.Lost(lost))
	return k
}

func never(t *testing.T) func() { return func() { t.Error("lost") } }

func TestRenewsThreeTimesPerLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &renewals{}
		ctx, cancel := context.WithCancel(t.Context())
		k := keep(ctx, store, never(t))
		cancel() // its end does not stop the renewals
		time.Sleep(10*length + time.Second)
		if n := store.n.Load(); n != 30 || !k.Alive() {
			t.Errorf("%d renewals, alive %v", n, k.Alive())
		}
		k.Stop()
		k.Stop()
		time.Sleep(length - time.Second - time.Millisecond)
		if n := store.n.Load(); n != 30 || !k.Alive() {
			t.Errorf("after Stop: %d renewals, alive %v", n, k.Alive())
		}
		time.Sleep(time.Second)
		if k.Alive() {
			t.Error("alive for ever")
		}
	})
}

func TestLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &renewals{answer: func(_ context.Context, n int, _ keystore.RenewParams) error {
			if n >= 2 {
				return keystore.ErrFenced
			}
			return nil
		}}
		var lost atomic.Int32
		k := keep(t.Context(), store, func() { lost.Add(1) })
		time.Sleep(10 * length)
		if lost.Load() != 1 || store.n.Load() != 2 {
			t.Errorf("lost %d times after %d renewals", lost.Load(), store.n.Load())
		}
		k.Stop()
	})
}

// A store that fails is asked again; a lease that it did not renew is not
// certain to be alive.
func TestStoreFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var down atomic.Bool
		down.Store(true)
		store := &renewals{answer: func(context.Context, int, keystore.RenewParams) error {
			if down.Load() {
				return errors.New("down")
			}
			return nil
		}}
		k := keep(t.Context(), store, never(t))
		defer k.Stop()
		time.Sleep(length - time.Millisecond)
		if !k.Alive() {
			t.Error("not alive before the claim's own lease is over")
		}
		time.Sleep(length)
		if k.Alive() {
			t.Error("alive without a renewal")
		}
		down.Store(false)
		time.Sleep(length)
		if !k.Alive() {
			t.Error("not alive after a renewal")
		}
	})
}

// The lease counts from when the renewal was sent.
func TestSlowStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &renewals{answer: func(ctx context.Context, n int, _ keystore.RenewParams) error {
			if n > 1 {
				<-ctx.Done() // hangs until it is given up
				return ctx.Err()
			}
			time.Sleep(25 * time.Second)
			return nil
		}}
		k := keep(t.Context(), store, never(t))
		time.Sleep(40*time.Second - time.Millisecond)
		if !k.Alive() {
			t.Error("not alive within a lease of the renewal at 10 s")
		}
		time.Sleep(2 * time.Millisecond)
		if k.Alive() {
			t.Error("counted from the reply")
		}
		time.Sleep(5 * length)
		if n := store.n.Load(); n < 4 {
			t.Errorf("%d renewals: one that hangs must be given up", n)
		}
		k.Stop() // cuts off the one under way
	})
}

func TestRenewNow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &renewals{answer: func(_ context.Context, _ int, p keystore.RenewParams) error {
			if !p.Begun {
				return errors.New("not begun")
			}
			return nil
		}}
		k := keep(t.Context(), store, never(t))
		defer k.Stop()
		time.Sleep(5 * time.Second)
		if err := k.Renew(t.Context(), keystore.RenewParams{Begun: true}); err != nil {
			t.Error(err)
		}
		time.Sleep(length - time.Millisecond)
		if !k.Alive() {
			t.Error("not alive")
		}
	})
}

// Once stopped, the owner may settle the record; what a renewal finds then is
// no loss.
func TestFencedAfterStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &renewals{answer: func(ctx context.Context, _ int, _ keystore.RenewParams) error {
			<-ctx.Done()
			return keystore.ErrFenced
		}}
		k := keep(t.Context(), store, never(t))
		time.Sleep(11 * time.Second)
		k.Stop()
	})
}

// Of those that share a timer, each is renewed three times per lease of its own,
// and no longer than it asks for.
func TestKeepers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &renewals{}
		all := lease.New(store, length)
		start := time.Now()
		keep := func(until time.Time) *lease.Keeper {
			k := new(lease.Keeper)
			all.Keep(k, context.WithoutCancel(t.Context()), keystore.Owner{Token: 7}, time.Now(), until, lease.Lost(never(t)))
			return k
		}
		check := func(at time.Duration, want int32) {
			t.Helper()
			time.Sleep(time.Until(start.Add(at - time.Millisecond)))
			if n := store.n.Load(); n != want-1 {
				t.Errorf("%d renewals before %v, want %d", n, at, want-1)
			}
			time.Sleep(2 * time.Millisecond)
			if n := store.n.Load(); n != want {
				t.Errorf("%d renewals at %v, want %d", n, at, want)
			}
		}
		a := keep(time.Time{})
		time.Sleep(4 * time.Second)
		b := keep(time.Now().Add(25 * time.Second)) // until 29 s
		c := keep(time.Time{})
		c.Stop()
		check(10*time.Second, 1)
		check(14*time.Second, 2)
		check(20*time.Second, 3)
		a.Stop()
		check(24*time.Second, 4)
		time.Sleep(time.Minute)
		if n := store.n.Load(); n != 4 {
			t.Errorf("%d renewals after the end", n)
		}
		b.Unlimit() // too late
		start = time.Now()
		d := keep(start.Add(5 * time.Second)) // before its first renewal
		time.Sleep(4 * time.Second)
		d.Unlimit()
		check(10*time.Second, 5)
		check(20*time.Second, 6)
		b.Stop()
		d.Stop()
		time.Sleep(time.Minute)
		if n := store.n.Load(); n != 6 {
			t.Errorf("%d renewals after Stop", n)
		}
	})
}
