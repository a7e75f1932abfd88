package server

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/keyctx"
	"github.com/idem-go/idem/internal/lazyctx"
	"github.com/idem-go/idem/internal/lease"
	"github.com/idem-go/idem/internal/stored"
	"github.com/idem-go/idem/keystore"
)

// execution is the run of one granted claim.
type execution struct {
	op    *operation
	owner keystore.Owner
	// keeper is nil in a transaction: its claim ends with it.
	keeper *lease.Keeper
	ctx    context.Context
	// cancel ends ctx in a transaction, and detach what MaxRun has started there.
	cancel context.CancelCauseFunc
	detach func()
	// working and kept are what ctx and keeper point to outside of one, settling
	// is the context in which the store settles it.
	answer   *stored.Answer // the definitive one
	working  runContext
	kept     lease.Keeper
	settling lazyctx.Context

	// mu guards what the code that runs says of itself, which may come from
	// any goroutine and at any time.
	mu          sync.Mutex
	begun       bool
	notExecuted bool
}

// unprotected stands in the context of a handler that runs without a claim.
var unprotected = new(execution)

// runContext is the context of the code that runs. It has the execution and the
// key in it.
type runContext struct {
	lazyctx.Context
	ex *execution
}

// Value implements context.Context.
func (c *runContext) Value(key any) any {
	switch {
	case key == executionKey{}:
		return c.ex
	case key == (keyctx.Key{}):
		return string(c.ex.op.key)
	}
	return c.Context.Value(key)
}

type executionKey struct{}

func withExecution(ctx context.Context, ex *execution) context.Context {
	return context.WithValue(ctx, executionKey{}, ex)
}

func executionFrom(ctx context.Context) *execution {
	ex, _ := ctx.Value(executionKey{}).(*execution)
	return ex
}

// withoutClaim is ctx for code that runs without a claim of its own. A claim
// around it still protects it.
func withoutClaim(ctx context.Context) context.Context {
	if executionFrom(ctx) != nil {
		return ctx
	}
	return withExecution(ctx, unprotected)
}

// running tells whether ctx is inside a protected call that has not ended. A
// context may outlive its call.
func running(ctx context.Context) *execution {
	ex := executionFrom(ctx)
	if ex == nil || ex == unprotected || context.Cause(ex.ctx) == errEnded {
		return nil
	}
	return ex
}

// within tells whether ctx is inside the execution of this very record. A layer
// with another store has another record.
func (op *operation) within(ctx context.Context) bool {
	ex := running(ctx)
	return ex != nil && ex.op.record == op.record && (ex.op.server == op.server || sameStore(ex.op.server.cfg.Store, op.server.cfg.Store))
}

func sameStore(a, b keystore.Store) bool {
	return reflect.TypeOf(a).Comparable() && a == b
}

// execution starts the run of a granted claim under ctx. It is nil if the
// server has stopped.
func (op *operation) execution(ctx context.Context, g granted) *execution {
	s := op.server
	ex := &execution{op: op, owner: g.Owner}
	ex.working.ex = ex
	ex.ctx = &ex.working
	// Whoever is not back after MaxRun gives up its claim. A late answer is
	// accepted as long as nobody has taken the record.
	until := time.Now().Add(op.route.maxRun)
	ex.working.Start(ctx, until, ErrMaxRun)
	ex.keeper = &ex.kept
	s.leases.Keep(ex.keeper, op.detached(ctx), ex.owner, g.sent, until, ex)
	if !s.track(ex) {
		ex.close()
		_ = ex.write((*execution).forget)
		return nil
	}
	return ex
}

// LeaseLost implements lease.Loser.
func (ex *execution) LeaseLost() { ex.end(idem.ErrLeaseLost) }

// end ends the context of the code that runs.
func (ex *execution) end(cause error) {
	if ex.cancel != nil {
		ex.cancel(cause)
		return
	}
	ex.working.Cancel(cause)
}

// ending is what a run came to.
type ending struct {
	// answer is the definitive one; nil is a failure.
	answer *stored.Answer
	// outcome of a definitive answer.
	outcome idem.Outcome
	status  int
	err     error
	// unknown: the code itself says that it may have had its effect.
	unknown bool
}

// settlement is what became of the record.
type settlement struct {
	event   string
	outcome idem.Outcome
	// settled: the record is done, and the answer or its tombstone in it.
	settled bool
	// fenced: the record has another owner.
	fenced bool
	// failure is the error that the run itself returned.
	failure error
}

// unrecorded is the refusal in the place of one that the record does not tell
// of: another run may yet decide otherwise, and who is told "refused" takes the
// next key. Nil if there is no such.
func (done settlement) unrecorded(op *operation) *refusal {
	if done.event != idem.EventRefused || done.settled {
		return nil
	}
	return claimFailed(fmt.Errorf("%w: complete: %w", idem.ErrStore, op.attempts[0].Err))
}

// source tells whether the run has an outcome of its own.
func (done settlement) source() idem.Source {
	if done.event == idem.EventExecuted || done.event == idem.EventRefused {
		return idem.SourceExecuted
	}
	return 0
}

var errEnded = errors.New("idem: the protected call has ended")

var errNoReturn = errors.New("idem: the handler or function panicked or ended its goroutine")

// run calls work and settles the record by what it came to. If work panics or
// ends its goroutine, the record is settled, the observer told, and the panic
// goes on untouched.
func (ex *execution) run(work func(context.Context) ending) settlement {
	op, watch := ex.op, ex.op.server.watch
	started := op.server.now()
	ctx, told := watch.StartAttempt(ex.ctx, idem.Attempt{Number: 1}, nil)
	returned := false
	defer func() {
		if !returned {
			done := ex.settle(ending{err: errNoReturn}, started)
			watch.EndAttempt(ctx, told, op.attempts[0])
			op.fenced = done.fenced
			op.observe(ex.ctx, done.event, done.outcome, 0, errNoReturn)
		}
	}()
	end := work(ctx)
	returned = true
	if end.answer != nil {
		end.answer.Origin = op.trace
	}
	done := ex.settle(end, started)
	watch.EndAttempt(ctx, told, op.attempts[0])
	return done
}

// settle writes a run's end into the record.
func (ex *execution) settle(end ending, started time.Time) settlement {
	begun, notExecuted := ex.close()
	effects := ex.op.route.effects
	var done settlement
	var err error
	switch {
	case notExecuted && effects == Idempotent && ex.owner.Token > 1:
		// Of an earlier run it does not tell.
		done = settlement{event: idem.EventFailed, outcome: idem.OutcomeUnknown}
		err = ex.write((*execution).abandon)
	case notExecuted:
		done = settlement{event: idem.EventFailed, outcome: idem.OutcomeNotExecuted}
		err = ex.write((*execution).forget)
	case end.answer != nil:
		done = settlement{event: idem.EventExecuted, outcome: end.outcome}
		if end.outcome == idem.OutcomeRejected {
			done.event = idem.EventRefused
		}
		ex.answer = end.answer
		err = ex.write((*execution).complete)
		done.settled = err == nil
	case effects == Idempotent:
		// It may have had its effect: it is for the same payload only.
		done = settlement{event: idem.EventFailed, outcome: idem.OutcomeUnknown}
		err = ex.write((*execution).abandon)
	case effects == Marked && !begun && !end.unknown:
		done = settlement{event: idem.EventFailed, outcome: idem.OutcomeNotExecuted}
		err = ex.write((*execution).forget)
	default:
		done = settlement{event: idem.EventUnresolved, outcome: idem.OutcomeUnknown}
		err = ex.write((*execution).abandon)
	}
	done.failure = end.err
	done.fenced = errors.Is(err, keystore.ErrFenced)
	if end.err == nil {
		end.err = err // the observer should see what kept the record open
	}
	op := ex.op
	op.attempted[0] = idem.Attempt{
		Number: 1, Outcome: done.outcome, Status: end.status, Err: end.err, Duration: op.server.since(started),
	}
	op.attempts = op.attempted[:]
	return done
}

// close ends what the code can say, and its context, but not its lease.
func (ex *execution) close() (begun, notExecuted bool) {
	ex.mu.Lock()
	defer ex.mu.Unlock()
	ex.end(errEnded)
	switch {
	case ex.detach != nil:
		ex.detach()
	case ex.keeper != nil:
		ex.keeper.Unlimit()
	}
	return ex.begun, ex.notExecuted
}

// stop ends the lease's renewals. Nothing is left of the execution then.
func (ex *execution) stop() {
	ex.keeper.Stop()
	ex.op.server.untrack(ex)
}

// write settles the record, now or, if the store fails, in the background, as
// long as the lease is renewed. The error is that of the first try.
func (ex *execution) write(settle func(*execution, context.Context) error) error {
	ex.settling.Start(ex.op.detached(ex.ctx), time.Now().Add(storeTimeout), nil)
	defer ex.settling.Cancel(nil)
	err := settle(ex, &ex.settling)
	if err == nil || keystore.Final(err) {
		ex.stop()
		return err
	}
	again := func(ctx context.Context) error { return settle(ex, ctx) }
	if !ex.op.server.later(again, ex.stop) {
		ex.stop()
	}
	return err
}

// complete stores the answer, or a tombstone where the store has no room.
func (ex *execution) complete(ctx context.Context) error {
	return ex.op.complete(ctx, ex.op.server.cfg.Store, ex.owner, *ex.answer)
}

func (op *operation) complete(ctx context.Context, store keystore.Store, owner keystore.Owner, a stored.Answer) error {
	p := keystore.CompleteParams{Result: stored.Encode(a), Retention: op.route.retention}
	err := store.Complete(ctx, owner, p)
	if !errors.Is(err, keystore.ErrTooLarge) {
		return err
	}
	for _, smaller := range []stored.Answer{tombstone(a, tooLarge), tombstone(stored.Answer{Kind: a.Kind, Status: a.Status, Origin: a.Origin}, tooLarge)} {
		if errors.Is(err, keystore.ErrTooLarge) {
			p.Result = stored.Encode(smaller)
			err = store.Complete(ctx, owner, p)
		}
	}
	return err
}

// forget frees the record for the next attempt.
func (ex *execution) forget(ctx context.Context) error {
	return ex.op.server.cfg.Store.Release(ctx, ex.owner, keystore.ReleaseParams{How: keystore.Forget})
}

// abandon leaves the record unresolved from now on.
func (ex *execution) abandon(ctx context.Context) error {
	// A renewal on its way would bring the lease back to life.
	ex.keeper.Stop()
	store := ex.op.server.cfg.Store
	if ex.op.route.effects == Marked && !ex.begun {
		// The code says that it may have had its effect, though it had not
		// announced it. ex.begun can't change any more.
		if err := store.Renew(ctx, ex.owner, keystore.RenewParams{Lease: ex.op.server.cfg.Lease, Begun: true}); err != nil {
			return err
		}
	}
	return store.Release(ctx, ex.owner, keystore.ReleaseParams{How: keystore.Abandon})
}

const tooLarge = "it is too large for the store"

// tombstone stands for an answer that is not kept. Of a response it keeps the
// status and where its result is. A refusal stays one: only its text is lost.
func tombstone(a stored.Answer, reason string) stored.Answer {
	if a.Kind == stored.Refusal {
		return stored.Answer{Kind: stored.Refusal, Reason: "refused; the text was not kept: " + reason, Origin: a.Origin}
	}
	t := stored.Answer{Kind: stored.Tombstone, Status: a.Status, Reason: reason, Origin: a.Origin}
	if location := a.Header["Location"]; location != nil {
		t.Header = map[string][]string{"Location": location}
	}
	return t
}
