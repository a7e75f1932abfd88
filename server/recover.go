package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/lease"
	"github.com/idem-go/idem/internal/stored"
	"github.com/idem-go/idem/keystore"
)

// Pending and Resolution are what Config.Recover is asked and answers.
type (
	Pending    = idem.Pending
	Resolution = idem.Resolution
)

// Between two questions about one record lies firstRecovery, then twice as
// much each time, up to maxRecovery.
const (
	firstRecovery = time.Second
	maxRecovery   = 5 * time.Minute
)

// recover asks Config.Recover what became of an unresolved record, and settles
// it accordingly. With again it did not happen, and may be claimed anew.
// Otherwise it returns the record as it is now.
//
// The record is taken over before it is asked about. So one process asks, and
// the others wait for it as for any owner; and an owner that had only stalled is
// refused from now on, instead of having its effect behind the answer's back.
func (op *operation) recover(ctx context.Context, seen granted) (now granted, again bool) {
	note, err := metaOf(seen.Record)
	if err != nil {
		return seen.unresolved(err), false
	}
	if seen.retryAfter = max(note.NextTry-seen.Record.Age, 0); seen.retryAfter > 0 {
		return seen.unresolved(nil), false
	}
	p := op.claimParams()
	p.Takeover, p.Begun = true, false
	g, err := op.claimOnce(ctx, p)
	switch {
	case err != nil:
		return seen.unresolved(err), false
	case g.Status != keystore.Acquired:
		return g, false
	}
	asking, stop := context.WithTimeoutCause(context.WithoutCancel(ctx), op.route.maxRun, ErrMaxRun)
	defer stop()
	asking, cancel := context.WithCancelCause(asking)
	defer cancel(errEnded)
	defer context.AfterFunc(op.server.stopping, func() { cancel(idem.ErrShutdown) })()
	keeper := new(lease.Keeper)
	op.server.leases.Keep(keeper, op.detached(ctx), g.Owner, g.sent, time.Time{}, lease.Lost(func() { cancel(idem.ErrLeaseLost) }))

	settled := false
	defer func() {
		if !settled { // the hook has ended the goroutine: nobody knows, as before
			keeper.Stop()
		}
	}()
	op.asked = true
	res := Resolution{Outcome: idem.OutcomeNotExecuted}
	if g.Record.Begun { // else it was free by now: whoever freed it has asked
		res, err = op.ask(asking, note.pending(g.Record))
	}
	var a stored.Answer
	if err == nil {
		a, err = op.resolve(note, res)
	}
	if err != nil {
		res.Outcome = idem.OutcomeUnknown
	}
	settled = true
	return op.settleRecovered(ctx, g, keeper, note, res.Outcome, a, err)
}

// ask calls the hook. What it answers after its context has ended, and a
// panic, are no answers.
func (op *operation) ask(ctx context.Context, p Pending) (res Resolution, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &idem.PanicError{Value: v, Stack: debug.Stack()}
		}
	}()
	if res, err = op.server.cfg.Recover(withoutClaim(ctx), p); err != nil {
		return res, err
	}
	return res, context.Cause(ctx)
}

// settleRecovered settles a record by what was found out about it. Where the
// store fails, an answer is as true, and goes on being written.
func (op *operation) settleRecovered(ctx context.Context, g granted, keeper *lease.Keeper, note meta, o idem.Outcome, a stored.Answer, why error) (granted, bool) {
	store := op.server.cfg.Store
	write := func(ctx context.Context) error { return op.complete(ctx, store, g.Owner, a) }
	switch o {
	case idem.OutcomeUnknown:
		keeper.Stop() // a renewal on its way would bring the lease back to life
		age := g.Record.Age + time.Since(g.sent)
		g.retryAfter = min(firstRecovery<<min(note.Tries, 20), maxRecovery)
		note.Tries++
		note.NextTry = age + g.retryAfter
		write = func(ctx context.Context) error {
			return store.Release(ctx, g.Owner, keystore.ReleaseParams{How: keystore.Abandon, Meta: note.encode()})
		}
	case idem.OutcomeNotExecuted:
		write = func(ctx context.Context) error {
			return store.Release(ctx, g.Owner, keystore.ReleaseParams{How: keystore.Forget})
		}
	}
	trying, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
	defer cancel()
	err := write(trying)
	if err == nil || keystore.Final(err) || o == idem.OutcomeUnknown || !op.server.later(write, keeper.Stop) {
		keeper.Stop()
	}
	switch {
	case errors.Is(err, keystore.ErrFenced):
		return op.successor(ctx), false
	case o == idem.OutcomeUnknown:
		return g.unresolved(why), false
	case o == idem.OutcomeNotExecuted && err != nil:
		return g.unresolved(fmt.Errorf("%w: release: %w", idem.ErrStore, err)), false
	}
	op.recovered = true
	if o == idem.OutcomeNotExecuted {
		return granted{}, true
	}
	g.Status, g.Record.State, g.Record.Result = keystore.Completed, keystore.Done, stored.Encode(a)
	return g, false
}

// unresolved is g as it is found by others, and why nothing was found out.
func (g granted) unresolved(why error) granted {
	g.Status, g.why = keystore.Unresolved, why
	return g
}

// resolve is what is stored of a resolution. Its error says what is wrong with
// it.
func (op *operation) resolve(note meta, res Resolution) (a stored.Answer, err error) {
	switch {
	case res.Outcome == idem.OutcomeUnknown || res.Outcome == idem.OutcomeNotExecuted:
		return a, nil
	case res.Outcome != idem.OutcomeExecuted && res.Outcome != idem.OutcomeRejected:
		return a, badResolution(fmt.Sprintf("the outcome %v; use executed, rejected, not executed or unknown", res.Outcome))
	case note.Method == "":
		return op.resolveCall(res)
	case res.Value != nil:
		return a, badResolution("a Value for an HTTP request; give Status, Header and Body")
	case res.Status == 0 && res.Outcome == idem.OutcomeExecuted:
		return tombstone(a, noResult), nil
	case !definitive(res.Status) || outcomeOf(res.Status) != res.Outcome:
		return a, badResolution(fmt.Sprintf("the status %d with the outcome %v; an execution needs 200 to 399, a refusal 400 to 499 but for those that are failures", res.Status, res.Outcome))
	}
	a = stored.Answer{Kind: stored.Response, Status: res.Status, Header: http.Header{}, Body: res.Body}
	for name, values := range res.Header {
		if !perExchange(name) {
			a.Header[http.CanonicalHeaderKey(name)] = values
		}
	}
	switch {
	case op.route.discard:
		a = tombstone(a, "the route stores no answers")
	case len(res.Body) > op.server.cfg.MaxResponse:
		a = tombstone(a, fmt.Sprintf("its %d bytes are over the limit of %d", len(res.Body), op.server.cfg.MaxResponse))
	}
	return a, nil
}

const noResult = "Recover has told no result"

func badResolution(what string) error {
	return fmt.Errorf("%w: Recover gave %s", idem.ErrConfig, what)
}

// resolveCall is resolve for a function's call.
func (op *operation) resolveCall(res Resolution) (a stored.Answer, err error) {
	switch {
	case res.Status != 0:
		return a, badResolution("a Status for a call of Run; give a Value")
	case res.Outcome == idem.OutcomeRejected:
		return op.refusalAnswer(errors.New("refused, as it was found out later")), nil
	case res.Value == nil:
		return tombstone(a, noResult), nil
	}
	b, err := json.Marshal(res.Value)
	switch limit := op.server.cfg.MaxResponse; {
	case err != nil:
		return a, badResolution("a Value that can't be encoded: " + err.Error())
	case op.route.discard:
		return tombstone(a, "the route stores no answers"), nil
	case len(b) > limit:
		return tombstone(a, fmt.Sprintf("its %d bytes are over the limit of %d", len(b), limit)), nil
	}
	return stored.Answer{Kind: stored.Value, Body: b}, nil
}
