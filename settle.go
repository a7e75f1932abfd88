package idem

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/idem-go/idem/internal/stored"
	"github.com/idem-go/idem/keystore"
)

// settle brings the end of an operation into its record:
//
//	Executed           done; the result is kept for Retention
//	Rejected           free, next generation: a fresh key, another payload
//	NotExecuted        free, same generation: the same key
//	Unknown, InFlight  unresolved: same key and payload, or nothing
//
// If the store does not answer, the callers still get what is true. Then the
// function returned goes on trying while the claim is renewed; if that never
// succeeds the lease runs out and the record is unresolved.
func (c *Client) settle(ctx context.Context, op *operation, h *holding, end *ending) (later func()) {
	if end.hop {
		h.keeper.Stop()
		c.release(ctx, h.owner, keystore.ReleaseParams{How: keystore.Abandon})
		return nil
	}
	// The callers may all have left; the record is settled all the same.
	ctx = context.WithoutCancel(ctx)
	apply := c.settlement(op, h, *end)
	try := func() error {
		ctx, cancel := context.WithTimeout(ctx, storeTimeout)
		defer cancel()
		return apply(ctx)
	}
	err := try()
	if err == nil || keystore.Final(err) {
		h.keeper.Stop()
		if errors.Is(err, keystore.ErrFenced) {
			end.fence()
		}
		return nil
	}
	patience := settlePatience * c.cfg.Lease
	if o := end.report.Outcome; o == OutcomeUnknown || o == OutcomeInFlight {
		patience = c.cfg.Lease // which nobody renews any more: then it is over
	}
	return func() {
		defer h.keeper.Stop()
		delay := c.cfg.Policy.delays()
		deadline := time.Now().Add(patience)
		for time.Now().Before(deadline) && c.flights.pause(delay()) {
			if err := try(); err == nil || keystore.Final(err) {
				return
			}
		}
	}
}

// fence notes that the record had another owner when it was to be settled.
// What that one sent is not known here: that this call had no effect does not
// prove it of the intent.
func (e *ending) fence() {
	e.fenced = true
	if o := e.report.Outcome; e.err != nil && (o == OutcomeNotExecuted || o == OutcomeRejected) {
		e.report.Outcome, e.err.Outcome = OutcomeUnknown, OutcomeUnknown
		if e.err.Cause == nil {
			e.err.Cause = ErrLeaseLost
		}
	}
}

// settlePatience is for how many leases a record that can't be settled is
// tried again.
const settlePatience = 4

// settlement is the store call that an ending asks for.
func (c *Client) settlement(op *operation, h *holding, end ending) func(context.Context) error {
	store := c.cfg.Store
	release := func(p keystore.ReleaseParams) func(context.Context) error {
		return func(ctx context.Context) error { return store.Release(ctx, h.owner, p) }
	}
	switch end.report.Outcome {
	case OutcomeExecuted:
		answer := tombstone("the server did not keep the answer")
		if end.err == nil {
			answer = op.work.encode(end.value)
		}
		answer.Origin = op.trace
		return func(ctx context.Context) error {
			err := c.complete(ctx, h.owner, answer)
			if errors.Is(err, keystore.ErrTooLarge) {
				smaller := tombstone("it is over the store's limit")
				smaller.Origin = op.trace
				err = c.complete(ctx, h.owner, smaller)
			}
			return err
		}
	case OutcomeRejected:
		return release(keystore.ReleaseParams{How: keystore.Reject, Meta: op.meta(h.generation + 1)})
	case OutcomeNotExecuted:
		return release(keystore.ReleaseParams{How: keystore.Forget})
	}
	abandon := release(keystore.ReleaseParams{How: keystore.Abandon})
	return func(ctx context.Context) error {
		h.keeper.Stop() // a renewal on its way would bring the lease back to life
		return abandon(ctx)
	}
}

func (c *Client) complete(ctx context.Context, owner keystore.Owner, a stored.Answer) error {
	return c.cfg.Store.Complete(ctx, owner, keystore.CompleteParams{Result: stored.Encode(a), Retention: c.cfg.Retention})
}

// release gives a claim back that was not used. If it fails, the lease ends it.
func (c *Client) release(ctx context.Context, owner keystore.Owner, p keystore.ReleaseParams) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
	defer cancel()
	_ = c.cfg.Store.Release(ctx, owner, p)
}

// tombstone stands for a result that is not kept.
func tombstone(reason string) stored.Answer {
	return stored.Answer{Kind: stored.Tombstone, Reason: reason}
}

// bounded is a, or its tombstone if it is over the bound.
func bounded(a stored.Answer, limit int) stored.Answer {
	if len(a.Body) > limit {
		return tombstone(fmt.Sprintf("it has %d bytes, the bound is %d", len(a.Body), limit))
	}
	return a
}
