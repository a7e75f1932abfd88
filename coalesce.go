package idem

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"
	"time"
)

// errAbandoned ends a flight that nobody waits for any more.
var errAbandoned = fmt.Errorf("idem: every caller has left: %w", context.Canceled)

// A flight is one running call for an intent, and the callers who share in it.
// It has a goroutine and a context of its own, so that a caller who leaves,
// leaves alone.
type flight struct {
	op     *operation
	ctx    context.Context // the starter's values, nobody's end
	cancel context.CancelCauseFunc

	delivered chan struct{} // closed when end is set
	end       ending
	later     func() // what is left to do then, nil if the record is settled

	// Guarded by flights.mu.
	ended    chan struct{} // closed when the record is settled too; nil if nobody waits for that
	callers  int
	endless  bool      // one of the callers had no deadline
	deadline time.Time // the latest of the others'
	leaving  *time.Timer
	// Nobody may join any more: the flight was cancelled, or it has ended
	// without a result and only its record is still to be settled.
	dying, fruitless bool
}

// flights are the running calls of a client, at most one per record ID: an
// entry leaves the map only when its call has ended and its record is settled,
// so that a second call for an intent never runs beside the first.
type flights struct {
	grace time.Duration

	mu      sync.Mutex // guards all below, and the fields named in flight
	running map[[32]byte]*flight
	idle    chan struct{} // not nil: shutting down; closed when nothing runs

	quit     chan struct{} // closed when running flights must end now
	quitOnce sync.Once
}

// do carries op out in a flight of its own, or joins the one that runs. Its end,
// like others on this path, is written where it is wanted: a crowd of callers
// that join has small stacks.
func (fs *flights) do(ctx context.Context, op *operation, end *ending) (joined bool) {
	f, joined := fs.board(ctx, op, end)
	if f == nil {
		return false
	}
	select {
	case <-f.delivered:
		*end = f.end
		return joined
	case <-ctx.Done():
	}
	if fs.leave(f) {
		*end = f.end
	} else {
		f.op.fail(end, OutcomeUnknown, stopCause(ctx))
	}
	return joined
}

// board makes the caller one of those who wait for a flight: the running one
// if there is one, else a new one. Or it sets the end of a caller who is refused,
// and returns nil.
func (fs *flights) board(ctx context.Context, op *operation, end *ending) (f *flight, joined bool) {
	for {
		fs.mu.Lock()
		f, joined = fs.running[op.id]
		if fs.idle != nil {
			fs.mu.Unlock()
			if joined {
				// What the running call will have done is not known yet.
				op.failBeside(f, end, OutcomeUnknown, ErrShutdown)
			} else {
				op.fail(end, OutcomeNotExecuted, ErrShutdown)
			}
			return nil, false
		}
		if !joined {
			f = fs.start(ctx, op)
		}
		if !f.dying && !f.fruitless {
			if err := f.admits(op); err != nil {
				fs.mu.Unlock()
				op.failBeside(f, end, OutcomeRejected, err)
				return nil, false
			}
			f.enter(ctx)
			fs.mu.Unlock()
			return f, joined
		}
		// There is nothing to share in, but its record is not settled yet.
		// Afterwards a new flight continues from that.
		if f.ended == nil {
			f.ended = make(chan struct{})
		}
		fs.mu.Unlock()
		select {
		case <-f.ended:
		case <-ctx.Done():
			op.failBeside(f, end, OutcomeUnknown, stopCause(ctx))
			return nil, false
		}
	}
}

// admits tells why op can't share in the flight.
func (f *flight) admits(op *operation) error {
	switch {
	case f.op.fingerprint != op.fingerprint:
		return fmt.Errorf("%w; it is running now", ErrPayloadMismatch)
	case f.op.resultType != op.resultType:
		return fmt.Errorf("%w: the running call for this intent returns %v, this one %v", ErrResultType, f.op.resultType, op.resultType)
	case f.op.credentials != op.credentials:
		return ErrScope
	}
	return nil
}

// enter counts a caller in. flights.mu is held.
func (f *flight) enter(ctx context.Context) {
	f.callers++
	if f.leaving != nil {
		f.leaving.Stop()
	}
	if d, ok := ctx.Deadline(); !ok {
		f.endless = true
	} else if d.After(f.deadline) {
		f.deadline = d
	}
}

// start puts a new flight in the map. flights.mu is held.
func (fs *flights) start(ctx context.Context, op *operation) *flight {
	f := &flight{op: op, delivered: make(chan struct{})}
	f.ctx, f.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	fs.running[op.id] = f
	go fs.fly(f)
	return f
}

// fly is the flight's goroutine. A function that it carries out may end it, and
// a store or a hook may panic: neither may leave callers waiting, nor kill the
// process.
func (fs *flights) fly(f *flight) {
	defer fs.remove(f)
	returned := false
	defer func() {
		if v := recover(); v != nil {
			f.end = f.op.failed(OutcomeUnknown, &PanicError{Value: v, Stack: debug.Stack()})
		} else if !returned {
			f.end = f.op.exited()
		}
		if f.end.report.Source != SourceReplayed || f.end.tried {
			f.end.origin = f.op.trace
		}
		f.end.after(f.cancel)
		fs.deliver(f)
		if f.later != nil {
			_ = recovered(func() error { f.later(); return nil })
		}
	}()
	f.op.client.live(f)
	returned = true
}

// Deadline is the latest of the callers'.
func (f *flight) Deadline() (time.Time, bool) {
	fs := &f.op.client.flights
	fs.mu.Lock()
	defer fs.mu.Unlock()
	return f.deadline, !f.endless
}

// deliver gives every caller the end of the flight. A settled one leaves the
// map in the same moment: who calls after having been told starts afresh.
func (fs *flights) deliver(f *flight) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	f.fruitless = f.end.err != nil
	if f.later == nil {
		fs.drop(f)
	}
	close(f.delivered)
	if f.leaving != nil {
		f.leaving.Stop()
	}
	if f.callers == 0 {
		f.end.discard()
	}
}

// leave takes a caller out, unless the end has been delivered in the meantime:
// then the caller has a result and leave reports true. The last one out leaves
// the flight a grace period, and then cancels it.
func (fs *flights) leave(f *flight) (delivered bool) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	select {
	case <-f.delivered:
		return true
	default:
	}
	f.callers--
	if f.callers == 0 {
		f.leaving = time.AfterFunc(fs.grace, func() {
			fs.mu.Lock()
			defer fs.mu.Unlock()
			if f.callers == 0 {
				f.dying = true
				f.cancel(errAbandoned)
			}
		})
	}
	return false
}

// remove ends a flight that was settled later than it was delivered.
func (fs *flights) remove(f *flight) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if fs.running[f.op.id] == f {
		fs.drop(f)
	}
}

// drop takes an ended flight out of the map. fs.mu is held.
func (fs *flights) drop(f *flight) {
	delete(fs.running, f.op.id)
	if f.ended != nil {
		close(f.ended)
	}
	if fs.idle != nil && len(fs.running) == 0 {
		close(fs.idle)
	}
}

// closing tells whether new callers are refused.
func (fs *flights) closing() bool {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	return fs.idle != nil
}

// close refuses new callers, and returns a channel that is closed when no
// flight runs any more.
func (fs *flights) close() <-chan struct{} {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if fs.idle == nil {
		fs.idle = make(chan struct{})
		if len(fs.running) == 0 {
			close(fs.idle)
		}
	}
	return fs.idle
}

// pause waits; it reports false when running flights must end now.
func (fs *flights) pause(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-fs.quit:
		return false
	}
}

// cancelAll ends every running flight.
func (fs *flights) cancelAll() {
	fs.quitOnce.Do(func() { close(fs.quit) })
	fs.mu.Lock()
	defer fs.mu.Unlock()
	for _, f := range fs.running {
		f.dying = true
		f.cancel(ErrShutdown)
	}
}

// recovered runs fn and turns a panic in it into an error.
func recovered(fn func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &PanicError{Value: v, Stack: debug.Stack()}
		}
	}()
	return fn()
}
