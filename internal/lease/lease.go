// Package lease keeps a claim alive while its owner works.
package lease

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/idem-go/idem/keystore"
)

// Keeper renews one claim's lease in the background, three times per lease.
type Keeper struct {
	store keystore.Store
	owner keystore.Owner
	lease time.Duration
	lost  func()
	stop  context.CancelFunc
	done  chan struct{}

	// mu guards aliveTil, until which the lease is alive for certain: it
	// is counted from the moment at which the last successful renewal was
	// sent, not from its reply.
	mu       sync.Mutex
	aliveTil time.Time
}

// Keep starts to renew the lease of a claim that was sent at claimed. lost is
// called, at most once, when the store says that the record has another owner.
// ctx's values go to the store; its end does not stop the renewals: Stop does,
// and must be called.
func Keep(ctx context.Context, store keystore.Store, owner keystore.Owner, length time.Duration, claimed time.Time, lost func()) *Keeper {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	k := &Keeper{store: store, owner: owner, lease: length, lost: lost,
		stop: cancel, done: make(chan struct{}), aliveTil: claimed.Add(length)}
	go k.run(ctx)
	return k
}

func (k *Keeper) run(ctx context.Context) {
	defer close(k.done)
	tick := time.NewTicker(max(k.lease/3, time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if err := k.renew(ctx, keystore.RenewParams{}); errors.Is(err, keystore.ErrFenced) {
			// After Stop the record may have been settled by its owner.
			if ctx.Err() == nil {
				k.lost()
			}
			return
		}
	}
}

// renew sends one renewal, which may take a whole lease at most: an answer
// that comes later is of no use.
func (k *Keeper) renew(ctx context.Context, p keystore.RenewParams) error {
	ctx, cancel := context.WithTimeout(ctx, k.lease)
	defer cancel()
	sent := time.Now()
	p.Lease = k.lease
	err := k.store.Renew(ctx, k.owner, p)
	if err == nil {
		k.mu.Lock()
		if til := sent.Add(k.lease); til.After(k.aliveTil) {
			k.aliveTil = til
		}
		k.mu.Unlock()
	}
	return err
}

// Renew renews now, with what else p asks for; p.Lease is filled in.
func (k *Keeper) Renew(ctx context.Context, p keystore.RenewParams) error { return k.renew(ctx, p) }

// Alive tells whether the lease is certainly alive now.
func (k *Keeper) Alive() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return time.Now().Before(k.aliveTil)
}

// Stop ends the renewals and waits for one that is under way. It may be called
// more than once.
func (k *Keeper) Stop() {
	k.stop()
	<-k.done
}
