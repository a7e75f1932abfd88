// Package await waits for another owner's record to change. All waiters of one
// record in a process share one poll of the store.
package await

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/idem-go/idem/keystore"
)

// How often a record is read while nothing is heard of it. With a Waiter the
// poll only makes up for a lost notification.
const (
	pollAlone      = 50 * time.Millisecond
	pollWithWaiter = 250 * time.Millisecond
	readTimeout    = 5 * time.Second
)

var (
	// ErrGone: the record that was waited for has vanished, though nothing
	// removes a running one. Its owner may still be at work.
	ErrGone = errors.New("await: the running record has vanished from the store")
	// ErrStopped: Stop was called.
	ErrStopped = errors.New("await: stopped")
)

// Waiters waits for records of one store. It holds nothing, and runs no
// goroutine, while nobody waits.
type Waiters struct {
	store keystore.Store

	mu      sync.Mutex
	polls   map[[32]byte]*poll
	stopped bool
	running sync.WaitGroup
}

// poll is one shared look at a record. rec and err are set when done is closed.
type poll struct {
	id      [32]byte
	cancel  context.CancelFunc
	waiters int // guarded by Waiters.mu
	done    chan struct{}
	rec     keystore.Record
	err     error
}

// New returns the waiters of store.
func New(store keystore.Store) *Waiters {
	return &Waiters{store: store, polls: map[[32]byte]*poll{}}
}

// Change returns when seen, a running record of another owner, has changed or
// its lease has run out, so that another Claim can tell more; or when ctx is
// done, with its error. Other errors: ErrGone, ErrStopped, and a store's error,
// which is returned after one poll's time: the caller decides whether to go on.
func (w *Waiters) Change(ctx context.Context, seen keystore.Record) error {
	for {
		now, err := w.look(ctx, seen.ID)
		switch {
		case err != nil:
			return err
		case now.State == 0:
			return ErrGone
		case now.State != keystore.Running || now.Token != seen.Token || now.LeaseLeft <= 0:
			return nil
		}
	}
}

// Stop ends all waiting, now and later, with ErrStopped, and returns when no
// goroutine is left. It may be called more than once.
func (w *Waiters) Stop() {
	w.mu.Lock()
	w.stopped = true
	for _, p := range w.polls {
		p.cancel()
	}
	w.mu.Unlock()
	w.running.Wait()
}

// look joins the poll of the record, or starts one, and returns what it saw.
func (w *Waiters) look(ctx context.Context, id [32]byte) (keystore.Record, error) {
	p := w.join(id)
	if p == nil {
		return keystore.Record{}, ErrStopped
	}
	defer w.leave(p)
	select {
	case <-ctx.Done():
		return keystore.Record{}, ctx.Err()
	case <-p.done:
		return p.rec, p.err
	}
}

func (w *Waiters) join(id [32]byte) *poll {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stopped {
		return nil
	}
	p := w.polls[id]
	if p == nil {
		// The poll belongs to no waiter in particular: it has no one's values,
		// and ends early only when all have left.
		ctx, cancel := context.WithCancel(context.Background())
		p = &poll{id: id, cancel: cancel, done: make(chan struct{})}
		w.polls[id] = p
		w.running.Go(func() { w.run(ctx, p) })
	}
	p.waiters++
	return p
}

func (w *Waiters) leave(p *poll) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if p.waiters--; p.waiters == 0 {
		p.cancel()
		w.drop(p)
	}
}

// drop makes the next waiter start a new poll. The caller holds mu.
func (w *Waiters) drop(p *poll) {
	if w.polls[p.id] == p {
		delete(w.polls, p.id)
	}
}

func (w *Waiters) run(ctx context.Context, p *poll) {
	p.rec, p.err = w.poll(ctx, p.id)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stopped {
		p.err = ErrStopped
	}
	w.drop(p)
	close(p.done)
}

// poll waits until the record changes, its lease ends or the poll interval is
// over, whichever is first, and reads it.
func (w *Waiters) poll(ctx context.Context, id [32]byte) (keystore.Record, error) {
	interval := pollAlone
	var changed <-chan struct{}
	if waiter, ok := w.store.(keystore.Waiter); ok {
		var stop func()
		changed, stop = waiter.Watch(id)
		defer stop()
		interval = pollWithWaiter
	}
	// Read after Watch began, or a change just before it would be missed.
	rec, err := w.read(ctx, id)
	if err == nil && (rec.State != keystore.Running || rec.LeaseLeft <= 0) {
		return rec, nil
	}
	// Jitter keeps many processes from reading in step.
	wait := interval/2 + rand.N(interval)
	if err == nil {
		wait = min(wait, rec.LeaseLeft+time.Millisecond)
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return rec, ctx.Err()
	case <-changed:
	case <-timer.C:
	}
	if err != nil {
		return rec, err
	}
	return w.read(ctx, id)
}

// read returns the record, or one without a state if there is none.
func (w *Waiters) read(ctx context.Context, id [32]byte) (keystore.Record, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	recs, err := w.store.Records(ctx, keystore.Query{ID: &id, Limit: 1})
	if err != nil || len(recs) == 0 {
		return keystore.Record{}, err
	}
	return recs[0], nil
}
