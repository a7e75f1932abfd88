package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/canon"
	"github.com/idem-go/idem/internal/keyctx"
	"github.com/idem-go/idem/internal/stored"
	"github.com/idem-go/idem/keystore"
)

// maxReason bounds the text of a stored refusal, in bytes.
const maxReason = 4 << 10

// Run calls fn at most once for the intent, and returns its stored result to
// every later call with the same intent: for queue consumers, webhooks, jobs.
// The intent needs a Scope, and an ID or a Key; its Match is not read, and a
// nil Payload is the payload of an intent without any.
//
// T must be storable as JSON and readable whole, or nothing is claimed and the
// cause is idem.ErrResultType. fn runs on the caller's goroutine. Its context
// ends with ctx, after MaxRun, and when the claim is lost; idem.KeyFrom finds
// the intent's key in it. A panic in fn settles the record and goes on.
//
// What an error of fn proves, Effects and its marks say: idem.NotExecuted frees
// the intent for the next call; idem.Rejected is a definitive refusal, whose
// text is stored and returned to later calls; idem.Unknown and any other error
// is a failure. A mark inside an *idem.Error, which tells of another call, does
// not count.
//
// The error is always an *idem.Error. Its Outcome and its causes are:
//
//	Rejected     idem.ErrPayloadMismatch, idem.ErrInvalidIntent,
//	             idem.ErrResultType, idem.ErrConfig (an option), or a refusal
//	InFlight     another call still runs (idem.ErrInFlight); idem.ErrReentrant
//	Unknown      ErrRecoveryRequired, a failure after its effect may have
//	             begun, a record that can't be read, or a commit that nobody
//	             knows of (idem.ErrStore)
//	Executed     idem.ErrResultNotRetained, idem.ErrResultLost
//	NotExecuted  idem.ErrStore, idem.ErrShutdown, ctx was done, or a failure
//	             before its effect
//
// Where the claim was lost while fn ran, idem.ErrLeaseLost is among them.
func Run[T any](ctx context.Context, s *Server, in idem.Intent, fn func(context.Context) (T, error), opts ...RouteOption) (T, error) {
	res, err := RunResult(ctx, s, in, fn, opts...)
	return res.Value, err
}

// RunResult is Run that tells how the result was obtained.
func RunResult[T any](ctx context.Context, s *Server, in idem.Intent, fn func(context.Context) (T, error), opts ...RouteOption) (res idem.Result[T], err error) {
	if s == nil || ctx == nil || fn == nil {
		res.Outcome = idem.OutcomeRejected
		return res, &idem.Error{Outcome: res.Outcome, Cause: fmt.Errorf("%w: Run needs a context, a server and a function, none of them nil", idem.ErrInvalidIntent)}
	}
	var value T
	res.Report, err = s.run(ctx, in, opts, function{
		result: reflect.TypeFor[T](),
		call:   func(ctx context.Context) (err error) { value, err = fn(ctx); return err },
		encode: func() ([]byte, error) { return json.Marshal(&value) },
		decode: func(b []byte) error { value = *new(T); return json.Unmarshal(b, &value) },
	})
	if err == nil {
		res.Value = value
	}
	return res, err
}

// function is fn and its result, whatever its type.
type function struct {
	result reflect.Type
	call   func(context.Context) error
	encode func() ([]byte, error)
	decode func([]byte) error
}

func (s *Server) run(ctx context.Context, in idem.Intent, opts []RouteOption, f function) (idem.Report, error) {
	op := &operation{server: s, started: s.now()}
	ctx = op.begin(ctx, nil)
	defer op.unwound(ctx)
	if err := op.prepare(in, opts, f.result); err != nil {
		op.scope, op.id, op.key = in.Scope, in.ID, in.Key
		return op.refused(ctx, &refusal{event: idem.EventRefused, outcome: idem.OutcomeRejected, cause: err})
	}
	switch {
	case op.within(ctx):
		return op.refused(ctx, &refusal{event: idem.EventInFlight, outcome: idem.OutcomeInFlight, cause: idem.ErrReentrant})
	case ctx.Err() != nil:
		return op.refused(ctx, &refusal{event: idem.EventRefused, outcome: idem.OutcomeNotExecuted, cause: ctx.Err()})
	case !s.enter(ctx):
		return op.refused(ctx, shuttingDown())
	}
	defer s.leave()

	if op.route.effects == Transaction {
		return op.transactCall(ctx, f)
	}
	g, err := op.claim(ctx)
	switch {
	case err != nil:
		ref := claimFailed(err)
		if ref.code == codeStore && s.cfg.FailOpen {
			return op.failOpen(ctx, f, err)
		}
		return op.refused(ctx, ref)
	case g.Status == keystore.Acquired:
		return op.call(ctx, f, g)
	default:
		return op.replay(ctx, f, g)
	}
}

// prepare checks the intent and fills in the operation.
func (op *operation) prepare(in idem.Intent, opts []RouteOption, result reflect.Type) (err error) {
	if op.route, err = op.server.route.with(opts, op.server.cfg.Store); err != nil {
		return err
	}
	switch {
	case in.Scope == "":
		return badIntent("Intent.Scope is empty; name the tenant, queue or kind of operation")
	case len(in.Scope) > maxName || len(in.ID) > maxName:
		return badIntent(fmt.Sprintf("Intent.Scope and Intent.ID may have at most %d bytes", maxName))
	case (in.ID == "") == (in.Key == ""):
		return badIntent("name the intent by Intent.ID or Intent.Key, one of them")
	case in.ID != "":
		op.byID(in.Scope, in.ID)
	default:
		if err := in.Key.Validate(); err != nil {
			return err
		}
		op.byKey(in.Scope, in.Key)
	}
	if op.fingerprint, err = idem.Fingerprint(in.Payload); err != nil {
		return err
	}
	if err := canon.CheckResult(result); err != nil {
		return fmt.Errorf("%w: %w", idem.ErrResultType, err)
	}
	return nil
}

func badIntent(rule string) error { return fmt.Errorf("%w: %s", idem.ErrInvalidIntent, rule) }

// call runs the function under a granted claim.
func (op *operation) call(ctx context.Context, f function, g granted) (idem.Report, error) {
	ex := op.execution(ctx, g)
	if ex == nil {
		return op.refused(ctx, shuttingDown())
	}
	done := ex.run(op.work(f))
	if done.fenced {
		return op.replay(ctx, f, op.successor(ctx))
	}
	return op.ended(ctx, done)
}

// transactCall runs the function in a transaction.
func (op *operation) transactCall(ctx context.Context, f function) (idem.Report, error) {
	switch done, g, ref := op.transact(ctx, ctx, op.work(f)); {
	case ref != nil:
		return op.refused(ctx, ref)
	case g.Status != 0:
		return op.replay(ctx, f, g)
	default:
		return op.ended(ctx, done)
	}
}

// work runs the function.
func (op *operation) work(f function) func(context.Context) ending {
	return func(ctx context.Context) ending {
		failure := f.call(ctx)
		end := ending{err: failure}
		mark, marked := idem.MarkedOutcome(failure)
		switch {
		case failure == nil:
			a := op.value(f)
			end.answer, end.outcome = &a, idem.OutcomeExecuted
		case marked && mark == idem.OutcomeRejected:
			a := op.refusalAnswer(failure)
			end.answer, end.outcome = &a, idem.OutcomeRejected
		case marked && mark == idem.OutcomeNotExecuted:
			MarkNotExecuted(ctx)
		case marked:
			end.unknown = true
		}
		return end
	}
}

// ended reports a run's end.
func (op *operation) ended(ctx context.Context, done settlement) (idem.Report, error) {
	if done.outcome == idem.OutcomeExecuted {
		op.observe(ctx, done.event, done.outcome, idem.SourceExecuted, nil)
		return op.report(done.outcome, idem.SourceExecuted), nil
	}
	ref := done.unrecorded(op)
	if ref != nil {
		done = settlement{event: ref.event, outcome: ref.outcome, failure: done.failure}
	} else {
		ref = &refusal{outcome: done.outcome}
	}
	err := op.error(ref)
	err.Last = done.failure
	op.observe(ctx, done.event, done.outcome, done.source(), err)
	return op.report(done.outcome, done.source()), err
}

// value is what is stored of the function's result.
func (op *operation) value(f function) stored.Answer {
	b, err := f.encode()
	switch limit := op.server.cfg.MaxResponse; {
	case op.route.discard:
		return tombstone(stored.Answer{}, "the route stores no answers")
	case err != nil:
		return tombstone(stored.Answer{}, "it could not be encoded: "+err.Error())
	case len(b) > limit:
		return tombstone(stored.Answer{}, fmt.Sprintf("its %d bytes are over the limit of %d", len(b), limit))
	}
	return stored.Answer{Kind: stored.Value, Body: b}
}

// refusalAnswer is what is stored of a definitive refusal.
func (op *operation) refusalAnswer(err error) stored.Answer {
	reason := "the route stores no answers"
	if !op.route.discard {
		text := err.Error()
		reason = strings.ToValidUTF8(text[:min(len(text), maxReason)], "")
	}
	return stored.Answer{Kind: stored.Refusal, Reason: reason}
}

// replay answers a call whose intent another one has.
func (op *operation) replay(ctx context.Context, f function, g granted) (idem.Report, error) {
	a, ref := op.found(g)
	if ref == nil {
		switch a.Kind {
		case stored.Value:
			if err := f.decode(a.Body); err != nil {
				ref = unreadable(err)
			}
		case stored.Refusal:
			err := op.error(&refusal{outcome: idem.OutcomeRejected})
			err.Last = errors.New(a.Reason)
			op.observe(ctx, idem.EventReplayed, err.Outcome, idem.SourceReplayed, err)
			return op.report(err.Outcome, idem.SourceReplayed), err
		default:
			ref = unreadable(fmt.Errorf("%w: it holds no result of a function", keystore.ErrCorrupt))
		}
	}
	if ref != nil {
		if g.Status == keystore.InFlight && ctx.Err() != nil {
			ref.cause = errors.Join(ref.cause, ctx.Err())
		}
		return op.refused(ctx, ref)
	}
	op.observe(ctx, idem.EventReplayed, idem.OutcomeExecuted, idem.SourceReplayed, nil)
	return op.report(idem.OutcomeExecuted, idem.SourceReplayed), nil
}

// failOpen runs the function without a claim.
func (op *operation) failOpen(ctx context.Context, f function, storeErr error) (idem.Report, error) {
	defer op.observe(ctx, idem.EventStoreError, idem.OutcomeUnknown, 0, storeErr)
	if failure := f.call(withoutClaim(keyctx.With(ctx, string(op.key)))); failure != nil {
		mark, _ := idem.MarkedOutcome(failure)
		err := op.error(&refusal{outcome: mark})
		err.Last = failure
		return op.report(mark, idem.SourceExecuted), err
	}
	return op.report(idem.OutcomeExecuted, idem.SourceExecuted), nil
}

// refused ends the operation without a result.
func (op *operation) refused(ctx context.Context, ref *refusal) (idem.Report, error) {
	err := op.error(ref)
	op.observe(ctx, ref.event, ref.outcome, ref.source(), err)
	return op.report(ref.outcome, ref.source()), err
}

func (op *operation) report(o idem.Outcome, src idem.Source) idem.Report {
	return idem.Report{Key: op.key, Outcome: o, Source: src, Attempts: len(op.attempts)}
}
