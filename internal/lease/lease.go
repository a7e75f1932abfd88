// Package lease keeps claims alive while their owners work.
package lease

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/idem-go/idem/internal/lazyctx"
	"github.com/idem-go/idem/keystore"
)

// Keepers renews the leases of claims in one store, each three times per lease.
// All share one timer, which most claims don't touch: they are settled before
// their first renewal is due.
type Keepers struct {
	store keystore.Store
	lease time.Duration

	// mu guards everything below, and in each Keeper what says so.
	mu sync.Mutex
	// first and last are the ends of the list of those that wait for their next
	// renewal, the earliest first.
	first, last *Keeper
	timer       *time.Timer
	// wake is when the timer is set for; zero if it is not set.
	wake time.Time
}

// New returns what renews leases of this length.
func New(store keystore.Store, length time.Duration) *Keepers {
	return &Keepers{store: store, lease: length}
}

// Keeper renews one claim's lease.
type Keeper struct {
	all   *Keepers
	ctx   context.Context
	owner keystore.Owner
	loser Loser

	// Guarded by Keepers.mu. The renewals end at until, if that is not zero;
	// renewal is the one under way, if any.
	stopped, listed bool
	until, due      time.Time
	prev, next      *Keeper
	renewal         *renewal

	// mu guards aliveTil, until which the lease is alive for certain: it
	// is counted from the moment at which the last successful renewal was
	// sent, not from its reply.
	mu       sync.Mutex
	aliveTil time.Time
}

// Loser is told, at most once, that a record has another owner.
type Loser interface{ LeaseLost() }

// Lost is a function as a Loser.
type Lost func()

// LeaseLost implements Loser.
func (lost Lost) LeaseLost() { lost() }

// renewal is one that is sent by itself.
type renewal struct {
	ctx  context.Context
	stop context.CancelFunc
	done chan struct{}
}

// Keep starts to renew, with k, which is new, the lease of a claim that was sent
// at claimed. loser is told when the store says that the record has another
// owner. ctx's values go to the store; it does not end. The renewals end with
// Stop, which must be called, and at until, if that is not zero.
func (ks *Keepers) Keep(k *Keeper, ctx context.Context, owner keystore.Owner, claimed, until time.Time, loser Loser) {
	k.all, k.ctx, k.owner, k.until, k.loser = ks, ctx, owner, until, loser
	k.aliveTil = claimed.Add(ks.lease)
	due := claimed.Add(ks.interval())
	if soon := time.Now().Add(time.Millisecond); due.Before(soon) {
		due = soon // after what the owner sends at once
	}
	ks.mu.Lock()
	defer ks.mu.Unlock()
	ks.schedule(k, due)
}

func (ks *Keepers) interval() time.Duration { return max(ks.lease/3, time.Millisecond) }

// schedule puts k where its turn is, and sets the timer if it is the first.
func (ks *Keepers) schedule(k *Keeper, due time.Time) {
	k.due = due
	if !k.until.IsZero() && !due.Before(k.until) {
		return
	}
	k.listed = true
	before := ks.last // all wait equally long, so its place is at the end, or near it
	for before != nil && before.due.After(due) {
		before = before.prev
	}
	k.prev = before
	if before == nil {
		k.next, ks.first = ks.first, k
	} else {
		k.next, before.next = before.next, k
	}
	if k.next == nil {
		ks.last = k
	} else {
		k.next.prev = k
	}
	ks.setTimer()
}

func (ks *Keepers) unlist(k *Keeper) {
	if !k.listed {
		return
	}
	if k.prev == nil {
		ks.first = k.next
	} else {
		k.prev.next = k.next
	}
	if k.next == nil {
		ks.last = k.prev
	} else {
		k.next.prev = k.prev
	}
	k.prev, k.next, k.listed = nil, nil, false
}

// setTimer sets the timer for the first in the list. One that is set earlier
// stays, and finds nothing to do.
func (ks *Keepers) setTimer() {
	if ks.first == nil || !ks.wake.IsZero() && !ks.wake.After(ks.first.due) {
		return
	}
	ks.wake = ks.first.due
	if d := time.Until(ks.wake); ks.timer == nil {
		ks.timer = time.AfterFunc(d, ks.renewDue)
	} else {
		ks.timer.Reset(d)
	}
}

// renewDue sends the renewals whose time has come.
func (ks *Keepers) renewDue() {
	ks.mu.Lock()
	defer ks.mu.Unlock()
	ks.wake = time.Time{}
	for k := ks.first; k != nil && !k.due.After(time.Now()); k = ks.first {
		ks.unlist(k)
		k.start()
	}
	ks.setTimer()
}

// start sends a renewal by itself. The caller holds Keepers.mu.
func (k *Keeper) start() {
	r := &renewal{done: make(chan struct{})}
	if k.until.IsZero() {
		r.ctx, r.stop = context.WithCancel(k.ctx)
	} else {
		r.ctx, r.stop = context.WithDeadline(k.ctx, k.until)
	}
	k.renewal = r
	go k.run(r)
}

func (k *Keeper) run(r *renewal) {
	defer close(r.done)
	defer r.stop()
	sent := time.Now()
	err := k.Renew(r.ctx, keystore.RenewParams{})

	// After Stop the record may have been settled by its owner.
	lost := errors.Is(err, keystore.ErrFenced) && r.ctx.Err() == nil
	if lost {
		k.loser.LeaseLost()
	}
	ks := k.all
	ks.mu.Lock()
	defer ks.mu.Unlock()
	k.renewal = nil
	if !k.stopped && !lost {
		ks.schedule(k, sent.Add(ks.interval()))
	}
}

// Renew renews now, with what else p asks for; p.Lease is filled in. It may
// take a whole lease at most: an answer that comes later is of no use.
func (k *Keeper) Renew(ctx context.Context, p keystore.RenewParams) error {
	length, sent := k.all.lease, time.Now()
	var limited lazyctx.Context
	limited.Start(ctx, sent.Add(length), nil)
	defer limited.Cancel(nil)
	p.Lease = length
	err := k.all.store.Renew(&limited, k.owner, p)
	if err == nil {
		k.mu.Lock()
		if til := sent.Add(length); til.After(k.aliveTil) {
			k.aliveTil = til
		}
		k.mu.Unlock()
	}
	return err
}

// Alive tells whether the lease is certainly alive now.
func (k *Keeper) Alive() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return time.Now().Before(k.aliveTil)
}

// Unlimit makes the renewals go on until Stop, unless they have ended by now.
func (k *Keeper) Unlimit() {
	ks := k.all
	ks.mu.Lock()
	defer ks.mu.Unlock()
	ended := !k.listed && k.renewal == nil // or there is none before until
	if k.stopped || k.until.IsZero() || ended && !time.Now().Before(k.until) {
		return
	}
	k.until = time.Time{}
	if ended {
		ks.schedule(k, k.due)
	}
}

// Stop ends the renewals and waits for one that is under way. It may be called
// more than once.
func (k *Keeper) Stop() {
	ks := k.all
	ks.mu.Lock()
	k.stopped = true
	ks.unlist(k)
	under := k.renewal
	ks.mu.Unlock()
	if under != nil {
		under.stop()
		<-under.done
	}
}
