package idem

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"
)

// verdict is what one attempt proves, and whether another one can help.
type verdict struct {
	outcome Outcome
	// retry: another attempt can help. An unknown outcome is repeated only
	// where the operation may be.
	retry bool
	// atOnce: the first such attempt is repeated without a wait.
	atOnce bool
	// wait that the server asked for, 0 if it did not.
	wait time.Duration
	// keyed: the reply comes from behind the server's key layer, so that it
	// settles what earlier attempts left unknown.
	keyed bool
	// replayed: the reply says that it comes from a record.
	replayed bool
	// bare: in flight by its status alone.
	bare bool
	// redirect: the reply is for http.Client, which follows it or not; with
	// hop under the same key.
	redirect, hop bool
	// value is the result, or the reply as it is.
	value  any
	status int
	sends  int
	// resent: net/http has sent a request again by itself, so that of its
	// first sending nothing is known.
	resent bool
	// cause: why the call can't have a result, for some replies.
	cause error
	err   error
}

// ending is how an operation ended, as its callers are told.
type ending struct {
	value    any
	report   Report
	err      *Error
	attempts []Attempt
	tried    bool
	// hop: a redirect that http.Client takes up under the same key: the call
	// ends, the intent goes on. Its record is not settled.
	hop  bool
	held *holding
	// redirect: the reply is http.Client's to follow.
	redirect bool
	// fenced: the record had another owner when it was to be settled.
	fenced bool
	// recovered: Config.Recover told how it had ended.
	recovered bool
	// storeErr: it was sent although the store had failed.
	storeErr error
	// undo: the claim was not answered, and may have been granted.
	undo func()
	// origin, waited and age are the event's.
	origin      string
	waited, age time.Duration
}

// discard frees what nobody takes.
func (e ending) discard() {
	if r, ok := e.value.(*reply); ok {
		r.discard()
	}
}

// progress is what the attempt loop knows so far.
type progress struct {
	op       *operation
	held     *holding
	attempts []Attempt // for an observer
	tried    bool
	trying   int // the number of the attempt under way, 0 if there is none
	number   int // attempts that count
	sends    int
	unknown  bool // an attempt of this call, or of the record, was: it sticks
	busy     bool // an execution under the key was seen at work
	hurried  bool // an attempt was repeated at once
	waited   time.Duration
	last     verdict
}

// attempts makes attempts until one settles the operation or no further one
// can help or is allowed. until is the callers' deadline.
func (c *Client) attempts(ctx context.Context, op *operation, h *holding, until until) ending {
	p := op.policy
	overall := time.Now().Add(p.Overall)
	var delay func() time.Duration // most calls need none
	run := &op.run
	*run = progress{op: op, held: h, unknown: h.unknown}
	op.wire = h.wire
	op.sending.Store(&h.key)
	// limit is the deadline for attempts; it changes as callers join.
	limit := func() time.Time {
		if d, ok := until.Deadline(); ok && d.Before(overall) {
			return d
		}
		return overall
	}
	var wait time.Duration
	for {
		// Before anything is checked: a tracer may take its time.
		next := run.start(ctx, wait)
		err := h.check(ctx)
		now := time.Now()
		timeout := min(p.AttemptTimeout, limit().Sub(now))
		switch {
		case err != nil:
			run.unknown = true // another owner may be sending by now
			run.cancel(next, err)
			return run.end(err, 0)
		case ctx.Err() != nil:
			run.cancel(next, ctx.Err())
			return run.stop(ctx, 0)
		case h.expired(now):
			run.cancel(next, errExpires(c))
			return run.end(errExpires(c), 0)
		case timeout <= 0:
			run.cancel(next, errNoTime)
			return run.end(errNoTime, 0)
		}
		v := run.try(next, timeout, wait)
		if v.outcome == OutcomeExecuted || v.outcome == OutcomeRejected {
			c.budgets.refund(op.origin)
		}
		if ctx.Err() != nil && v.outcome != OutcomeExecuted && v.outcome != OutcomeRejected {
			return run.stop(ctx, v.wait)
		}
		if !v.retry || v.outcome == OutcomeUnknown && !op.repeatable {
			return run.end(v.cause, v.wait)
		}
		if v.outcome != OutcomeInFlight && run.number >= p.Attempts {
			return run.end(v.cause, v.wait)
		}

		if delay == nil {
			delay = p.delays()
		}
		wait = delay()
		switch {
		case v.wait > p.RetryAfterCap:
			return run.end(fmt.Errorf("%w: %v, the policy allows %v", ErrRetryAfterTooLong, v.wait, p.RetryAfterCap), v.wait)
		case v.wait > 0:
			// Upwards only: the server said when, and not all at once.
			wait = v.wait + rand.N(min(v.wait/10, time.Second)+1)
		case v.atOnce && !run.hurried:
			run.hurried = true
			wait = 0
		}
		if h.expired(time.Now().Add(wait)) {
			return run.end(errExpires(c), v.wait)
		}
		if time.Until(limit()) <= wait {
			if v.wait > 0 {
				return run.end(fmt.Errorf("%w: %v, the deadline is before that", ErrRetryAfterTooLong, v.wait), v.wait)
			}
			return run.end(errNoTime, v.wait)
		}
		if v.outcome == OutcomeInFlight {
			if run.waited += wait; run.waited > p.InFlightWait {
				return run.end(v.cause, v.wait)
			}
		} else if !c.budgets.take(op.origin) {
			return run.end(ErrRetryBudget, v.wait)
		}
		if !sleep(ctx, wait) {
			return run.stop(ctx, v.wait)
		}
	}
}

// errNoTime ends a call whose deadline comes before its next attempt.
var errNoTime = fmt.Errorf("idem: no time for another attempt: %w", context.DeadlineExceeded)

// started is an attempt that a tracer was told of, if there is one.
type started struct {
	ctx    context.Context
	told   bool
	number int
}

// start tells a tracer of the next attempt.
func (run *progress) start(ctx context.Context, wait time.Duration) started {
	next := started{ctx: ctx, number: run.number}
	if run.last.outcome != OutcomeInFlight || run.number == 0 {
		next.number++
	}
	op := run.op
	if op.client.watch.Traces() {
		if op.template != nil {
			if op.headers == nil {
				op.headers = op.template.Header
			}
			op.template.Header = op.headers.Clone() // without what the last attempt got
		}
		next.ctx, next.told = op.client.watch.StartAttempt(ctx, Attempt{Number: next.number, Wait: wait}, op.template)
	}
	return next
}

// cancel tells a tracer that there will be no such attempt.
func (run *progress) cancel(next started, err error) {
	run.op.client.watch.EndAttempt(next.ctx, next.told, Attempt{Number: next.number, Outcome: OutcomeNotExecuted, Err: err})
}

// try makes one attempt and takes note of it.
func (run *progress) try(next started, timeout, wait time.Duration) (v verdict) {
	run.last.discard()
	run.last, run.trying = verdict{}, next.number
	if run.op.client.watch == nil {
		v = run.op.work.try(next.ctx, run.held.key, timeout)
	} else {
		v = run.watched(next, timeout, wait)
	}
	run.note(v)
	return v
}

// note takes note of what the attempt under way proves.
func (run *progress) note(v verdict) {
	run.tried, run.number, run.trying = true, run.trying, 0
	run.sends += v.sends
	if v.outcome == OutcomeUnknown && !v.hop || v.resent && v.outcome != OutcomeExecuted {
		run.unknown = true
	}
	run.busy = run.busy || v.outcome == OutcomeInFlight && (run.op.named || !v.bare)
	run.last = v
}

// watched makes an attempt that an observer is to know of.
func (run *progress) watched(next started, timeout, wait time.Duration) (v verdict) {
	began := time.Now()
	v.err = ErrGoexit
	// In a defer, since a function may end this goroutine.
	defer func() {
		a := Attempt{Number: next.number, Outcome: v.outcome, Status: v.status, Replayed: v.replayed, Err: v.err,
			Wait: wait, Duration: time.Since(began)}
		run.attempts = append(run.attempts, a)
		run.op.client.watch.EndAttempt(next.ctx, next.told, a)
	}()
	v = run.op.work.try(next.ctx, run.held.key, timeout)
	return v
}

// stop ends a call whose context has ended.
func (run *progress) stop(ctx context.Context, retryAfter time.Duration) ending {
	if context.Cause(ctx) == ErrLeaseLost {
		run.unknown = true // another owner may be sending by now
	}
	return run.end(stopCause(ctx), retryAfter)
}

// end says what the callers are told: what the last attempt proved, unless an
// earlier one was unknown and the last does not come from behind the key layer.
func (run *progress) end(cause error, retryAfter time.Duration) ending {
	v := run.last
	outcome := v.outcome
	switch {
	case run.number == 0 && !run.unknown:
		outcome = OutcomeNotExecuted
	case run.number == 0:
		outcome = OutcomeUnknown
	case outcome == OutcomeInFlight && v.bare:
		// Whoever answered a bare 409 may have meant anything by it.
		outcome = OutcomeUnknown
		if !run.op.named && !run.unknown {
			outcome = OutcomeRejected
		}
	case outcome == OutcomeRejected && v.keyed, outcome == OutcomeExecuted:
	case run.unknown, run.busy && outcome != OutcomeInFlight:
		outcome = OutcomeUnknown // what was at work may have come to its end
	}
	end := ending{attempts: run.attempts, tried: run.tried, value: v.value, hop: v.hop, redirect: v.redirect, waited: run.op.waited + run.waited,
		report: Report{Key: run.held.key, Outcome: outcome, Attempts: run.number, WireSends: run.sends}}
	if outcome == OutcomeExecuted && cause == nil {
		end.report.Source = SourceExecuted
		if v.replayed {
			end.report.Source = SourceReplayed
		}
		return end
	}
	if v.hop {
		run.held.unknown = run.unknown
		end.held = run.held
	}
	if v.redirect {
		return end
	}
	end.err = &Error{Outcome: outcome, Key: run.held.key, Scope: run.op.scope, ID: run.op.intent.ID,
		Attempts: run.number, Cause: cause, Last: v.err, RetryAfter: retryAfter}
	return end
}

// sleep waits, and reports false if ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// stopCause tells why ctx ended: its error, and its cause if it has another.
func stopCause(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if cause == nil || cause == err {
		return err
	}
	return fmt.Errorf("%w: %w", err, cause)
}
