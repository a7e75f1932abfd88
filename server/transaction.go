package server

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/keyctx"
	"github.com/idem-go/idem/internal/stored"
	"github.com/idem-go/idem/keystore"
)

// errRollback is what a transaction's function returns if the operation's end
// is known without it.
var errRollback = errors.New("idem: the transaction is rolled back")

// transaction is one that the store has begun, and in which the record is
// claimed.
type transaction struct {
	keystore.Store
	owner keystore.Owner
	// abort ends its context, which rolls it back.
	abort context.CancelCauseFunc
	// limit bounds what the store may take at its begin and at its end.
	limit *time.Timer
}

// transact runs work in a transaction, in which its effects and its record are
// committed together. asked ends when nobody waits any more for another owner,
// ctx is that of the work. The operation has ended as done tells, or is to be
// answered from what another one has left, g, or is refused.
//
// A refusal's record is kept, but what the work did on its way there is not:
// it is rolled back, and the refusal recorded in a transaction of its own. So
// a store needs no savepoints around the application's statements. If another
// owner comes between the two, its answer counts: nothing has happened here.
func (op *operation) transact(asked, ctx context.Context, work func(context.Context) ending) (done settlement, g granted, ref *refusal) {
	patience, stop := context.WithTimeout(asked, max(op.route.wait, 0))
	defer stop()
	defer context.AfterFunc(op.server.stopping, stop)()
	turn, seen, err := op.takeTurn(patience)
	switch {
	case err != nil:
		return done, g, claimFailed(err)
	case turn == nil:
		return done, seen, nil
	}
	defer turn.end()

	p := op.claimParams()
	var run *txRun
	g, err = op.grant(patience, ctx, p, seen, func(inTx context.Context, tx *transaction) error {
		turn.claim()
		run = &txRun{op: op, tx: tx, started: time.Now()}
		return run.do(ctx, inTx, work)
	})
	switch {
	case run == nil && err != nil:
		return done, g, claimFailed(err)
	case run == nil:
		return done, g, nil
	}
	done, g, ref = run.settle(patience, ctx, p, err)
	failure := run.end.err
	if ref != nil {
		done.outcome, failure = ref.outcome, ref.cause
	}
	op.attempts = []idem.Attempt{{
		Number: 1, Outcome: done.outcome, Status: run.end.status, Err: failure, Duration: run.duration,
	}}
	op.server.watch.EndAttempt(run.ctx, run.told, op.attempts[0])
	return done, g, ref
}

// txRun is the run of work in a transaction.
type txRun struct {
	op      *operation
	tx      *transaction
	started time.Time
	ctx     context.Context // of the work
	told    bool            // the tracer, of its beginning

	duration    time.Duration
	end         ending
	notExecuted bool
	// refused: work has not run, or its transaction can't be committed.
	refused *refusal
	// committing: work and record are done, all that is left is the commit.
	committing bool
}

// do calls work and records its answer. The transaction is committed if it
// returns nil, and rolled back if not, as it is if work panics or ends its
// goroutine.
func (run *txRun) do(ctx, inTx context.Context, work func(context.Context) ending) error {
	op := run.op
	ex := &execution{op: op}
	workCtx, stopTimer := context.WithTimeoutCause(withExecution(keyctx.With(inTx, string(op.key)), ex), op.route.maxRun, ErrMaxRun)
	ex.ctx, ex.cancel = context.WithCancelCause(workCtx)
	ex.detach = stopTimer
	// inTx has ctx's values, but not its end: the commit must not be cut off.
	unfollow := context.AfterFunc(ctx, func() { ex.cancel(context.Cause(ctx)) })
	defer unfollow()
	// A database frees what work holds, even if work does not return.
	unwatch := context.AfterFunc(ex.ctx, func() { run.tx.abort(context.Cause(ex.ctx)) })
	defer unwatch()
	if !op.server.track(ex) {
		ex.close()
		run.refused = shuttingDown()
		return errRollback
	}
	defer op.server.untrack(ex)

	returned := false
	defer func() {
		if !returned {
			unwatch()
			ex.close()
			op.attempts = []idem.Attempt{{Number: 1, Outcome: idem.OutcomeNotExecuted, Err: errNoReturn, Duration: time.Since(run.started)}}
			op.server.watch.EndAttempt(run.ctx, run.told, op.attempts[0])
			op.observe(ctx, idem.EventFailed, idem.OutcomeNotExecuted, 0, errNoReturn)
		}
	}()
	run.ctx, run.told = op.server.watch.StartAttempt(ex.ctx, idem.Attempt{Number: 1}, nil)
	run.end = work(run.ctx)
	returned = true
	if run.end.answer != nil {
		run.end.answer.Origin = op.trace
	}
	run.duration = time.Since(run.started)
	unwatch()
	cut := context.Cause(ex.ctx) // what has rolled it back already
	_, run.notExecuted = ex.close()
	switch {
	case run.notExecuted || run.end.answer == nil:
		return errRollback
	case cut != nil:
		// Even a refusal may come from that.
		run.refused = rolledBack(cut)
		return errRollback
	case run.end.outcome == idem.OutcomeRejected:
		return errRollback
	}
	if err := run.tx.complete(inTx, op, *run.end.answer); err != nil {
		run.refused = rolledBack(fmt.Errorf("%w: complete: %w", idem.ErrStore, err))
		return err
	}
	run.committing = true
	return nil
}

// complete records the answer. The store has a limited time for it and for the
// commit.
func (tx *transaction) complete(ctx context.Context, op *operation, a stored.Answer) error {
	tx.limit.Reset(storeTimeout)
	return op.complete(ctx, tx.Store, tx.owner, a)
}

// settle tells what the run came to. err is what the store said of its
// transaction.
func (run *txRun) settle(patience, ctx context.Context, p keystore.ClaimParams, err error) (settlement, granted, *refusal) {
	end := run.end
	switch {
	case run.committing && err == nil:
		return settlement{event: idem.EventExecuted, outcome: end.outcome, settled: true}, granted{}, nil
	case run.committing:
		return run.fate(ctx, p, err)
	case run.refused != nil:
		return settlement{}, granted{}, run.refused
	case run.notExecuted, end.answer == nil && !end.unknown:
		return settlement{event: idem.EventFailed, outcome: idem.OutcomeNotExecuted, failure: end.err}, granted{}, nil
	case end.answer == nil:
		return settlement{event: idem.EventFailed, outcome: idem.OutcomeUnknown, failure: end.err}, granted{}, nil
	default:
		return run.keepRefusal(patience, ctx, p)
	}
}

// keepRefusal records a definitive refusal. Where that fails, the refusal is
// as true, but the next attempt runs.
func (run *txRun) keepRefusal(patience, ctx context.Context, p keystore.ClaimParams) (settlement, granted, *refusal) {
	g, err := run.op.grant(patience, ctx, p, granted{}, func(inTx context.Context, tx *transaction) error {
		return tx.complete(inTx, run.op, *run.end.answer)
	})
	if err == nil && g.Status != keystore.Acquired {
		return settlement{outcome: idem.OutcomeNotExecuted}, g, nil
	}
	done := settlement{event: idem.EventRefused, outcome: idem.OutcomeRejected, settled: err == nil, failure: run.end.err}
	if run.end.err == nil {
		run.end.err = err // the observer should see what kept the record open
	}
	return done, granted{}, nil
}

// fate finds out whether a transaction was committed whose commit has failed.
// It repeats the claim and does not just read: what reads as absent may belong
// to a commit that is still under way, and only a claim can tell that.
func (run *txRun) fate(ctx context.Context, p keystore.ClaimParams, failure error) (settlement, granted, *refusal) {
	op := run.op
	ctx = context.WithoutCancel(ctx)
	patience, stop := context.WithTimeout(ctx, storeTimeout)
	defer stop()
	defer context.AfterFunc(op.server.stopping, stop)()
	g, err := op.grant(patience, ctx, p, granted{}, func(context.Context, *transaction) error { return errRollback })
	switch {
	case g.Status == keystore.Acquired:
		return settlement{}, granted{}, rolledBack(failure)
	case g.Status == keystore.Completed && op.complete(patience, op.server.cfg.Store, run.tx.owner, *run.end.answer) == nil:
		// Only the owner can repeat it.
		return settlement{event: idem.EventExecuted, outcome: run.end.outcome, settled: true}, granted{}, nil
	case err == nil && g.Status != keystore.InFlight:
		return settlement{outcome: idem.OutcomeNotExecuted}, g, nil
	}
	return settlement{}, granted{}, &refusal{
		code: codeCommitUnknown, event: idem.EventUnresolved, retryAfter: time.Second,
		cause: fmt.Errorf("%w: commit: %w", idem.ErrStore, errors.Join(failure, err)),
	}
}

// rolledBack is the refusal of an operation that has run, but whose effects
// are undone.
func rolledBack(cause error) *refusal {
	if errors.Is(cause, idem.ErrShutdown) {
		return shuttingDown()
	}
	return &refusal{code: codeRolledBack, event: idem.EventFailed, outcome: idem.OutcomeNotExecuted, cause: cause, retryAfter: time.Second}
}

// maxClaimDelay bounds the pause between two claims while a transaction of
// another process has the record. That it was rolled back, nobody tells.
const maxClaimDelay = 250 * time.Millisecond

// grant claims the record in a transaction, and calls fn there if the claim is
// granted. While another owner has the record, it waits, without a transaction,
// until patience is over. Whether fn was called, g.Status tells: with Acquired,
// err is that of the transaction, otherwise that of the claim. seen is another
// owner that was at work before.
func (op *operation) grant(patience, ctx context.Context, p keystore.ClaimParams, seen granted, fn func(context.Context, *transaction) error) (granted, error) {
	s := op.server
	giveUp := time.Now().Add(storeTimeout)
	for try, delay := 1, firstDelay/4; ; delay = min(2*delay, maxClaimDelay) {
		g, err := op.beginTx(ctx, p, fn)
		switch {
		case g.Status == 0:
			if keystore.Final(err) || try == claimTries || time.Now().After(giveUp) || !sleep(s.stopping, delay) {
				return orSeen(seen, failedClaim(err))
			}
			try++
		case g.Status != keystore.InFlight:
			return g, err
		default:
			began := time.Now()
			more := op.pause(patience, delay)
			op.waited += time.Since(began)
			if !more {
				return g, err
			}
			seen = g
		}
	}
}

// pause waits for a change of the record, but not for longer than about delay.
// It reports false if patience is over.
func (op *operation) pause(patience context.Context, delay time.Duration) bool {
	var changed <-chan struct{}
	if waiter, ok := op.server.cfg.Store.(keystore.Waiter); ok {
		var stop func()
		changed, stop = waiter.Watch(op.record)
		defer stop()
	}
	// Jitter keeps many processes from claiming in step.
	timer := time.NewTimer(delay/2 + rand.N(delay))
	defer timer.Stop()
	select {
	case <-patience.Done():
	case <-changed:
	case <-timer.C:
	}
	return patience.Err() == nil
}

// beginTx begins one transaction and claims the record in it. g.Status is 0 if
// the store did not answer the claim.
func (op *operation) beginTx(ctx context.Context, p keystore.ClaimParams, fn func(context.Context, *transaction) error) (g granted, err error) {
	base, abort := context.WithCancelCause(context.WithoutCancel(ctx))
	defer abort(nil)
	limit := time.AfterFunc(storeTimeout, func() { abort(context.DeadlineExceeded) })
	defer limit.Stop()
	err = op.server.cfg.Store.(keystore.Transactor).InTx(base, func(inTx context.Context, store keystore.Store) error {
		sent := time.Now()
		c, err := store.Claim(inTx, p)
		switch {
		case err != nil:
			return err
		case c.Status < keystore.Acquired || c.Status > keystore.Unresolved:
			return fmt.Errorf("it answered a claim with %v", c.Status)
		case !limit.Stop():
			return context.Cause(base)
		}
		g = granted{Claim: c, sent: sent}
		if c.Status != keystore.Acquired {
			return errRollback
		}
		return fn(inTx, &transaction{Store: store, owner: c.Owner, abort: abort, limit: limit})
	})
	switch {
	case g.Status == 0 && err == nil:
		err = fmt.Errorf("%w: InTx did nothing", keystore.ErrInvalid)
	case g.Status != 0 && g.Status != keystore.Acquired:
		err = nil
	}
	return g, err
}

func failedClaim(err error) error { return fmt.Errorf("%w: claim: %w", idem.ErrStore, err) }
