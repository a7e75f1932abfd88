package idem

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/idem-go/idem/internal/await"
	"github.com/idem-go/idem/internal/lease"
	"github.com/idem-go/idem/internal/stored"
	"github.com/idem-go/idem/keystore"
)

// holding is the claim under which an operation sends, and what the record
// says about earlier attempts. Without a store it is just the key.
type holding struct {
	key     Key
	wire    string // the key as it is written in the header
	unknown bool   // an earlier attempt of this generation may have executed
	// expires is when the server may begin to forget the key; no attempt starts
	// then. Zero if it does not matter.
	expires time.Time

	owner      keystore.Owner
	generation uint32
	claimed    time.Time
	keeper     *lease.Keeper
	// storeErr: the store has failed, and nothing is kept.
	storeErr error
}

// keep renews the claim until it is settled.
func (h *holding) keep(ctx context.Context, c *Client, lost func()) {
	h.keeper = new(lease.Keeper)
	c.keepers.Keep(h.keeper, context.WithoutCancel(ctx), h.owner, h.claimed, time.Time{}, lease.Lost(lost))
}

// check tells whether an attempt may be sent under the claim: not when the
// lease may have run out, since by then another owner can be sending.
func (h *holding) check(ctx context.Context) error {
	if h.keeper == nil || h.keeper.Alive() {
		return nil
	}
	err := h.keeper.Renew(ctx, keystore.RenewParams{})
	if errors.Is(err, keystore.ErrFenced) {
		return ErrLeaseLost
	} else if err != nil {
		return fmt.Errorf("%w: the lease could not be renewed: %w", ErrStore, err)
	}
	return nil
}

// hold claims the operation's record, waiting for another owner if there is
// one. A nil holding means that the ending answers the callers.
func (c *Client) hold(ctx context.Context, op *operation) (*holding, ending) {
	if h := op.held; h != nil {
		h.claimed = time.Now()
		if c.cfg.Store.Renew(ctx, h.owner, keystore.RenewParams{Lease: c.cfg.Lease}) == nil {
			return h, ending{}
		}
		// Another hop of the same redirect has settled it meanwhile.
	}
	p := keystore.ClaimParams{
		ID: op.id, Scope: keystore.ScopeDigest(keystore.Client, op.scope), Fingerprint: op.fingerprint,
		Nonce: newNonce(), Lease: c.cfg.Lease, Keep: c.cfg.Retention, Begun: true, Meta: op.meta(0),
	}
	patience, stop := context.WithTimeout(ctx, c.cfg.Policy.InFlightWait)
	defer stop()
	var seen *keystore.Record // as others held it, or left it
	for {
		claimed := time.Now()
		cl, err := c.claim(ctx, p)
		if err != nil {
			if c.cfg.FailOpen && !keystore.Final(err) && ctx.Err() == nil {
				return op.failedOpen(err), ending{}
			}
			end := op.claimFailed(ctx, err)
			if !keystore.Final(err) && !p.Takeover {
				end.undo = func() { c.undo(ctx, p) }
			}
			return nil, end
		}
		rec := cl.Record
		note, err := metaOf(rec)
		if err != nil {
			if cl.Status == keystore.Acquired {
				c.release(ctx, cl.Owner, keystore.ReleaseParams{How: keystore.Abandon})
			}
			return nil, op.failed(OutcomeUnknown, err)
		}
		key := note.Key
		switch cl.Status {
		case keystore.Acquired:
			if seen != nil && rec.Generation > seen.Generation {
				// The owner that was seen was definitely refused. The
				// next generation is for a caller who knows of that.
				c.release(ctx, cl.Owner, keystore.ReleaseParams{How: keystore.Forget})
				if refused, err := metaOf(*seen); err == nil {
					key = refused.Key
				}
				return nil, op.failedAs(OutcomeRejected, key, errRefusedElsewhere)
			}
			h := &holding{key: key, wire: note.Wire, unknown: p.Takeover, owner: cl.Owner, generation: rec.Generation,
				claimed: claimed, expires: op.expiry(claimed, rec.Age)}
			if why := op.blocked(rec); p.Takeover && why != nil {
				end, again := c.recover(ctx, op, h, rec, note, why)
				if !again {
					return nil, end
				}
				// It did not happen, and so it is an intent like any other.
				seen, p.Takeover, p.Nonce = nil, false, newNonce()
				continue
			}
			c.notePayload(ctx, op, h, note)
			return h, ending{}
		case keystore.Completed:
			return nil, op.replay(key, rec)
		case keystore.Mismatch:
			return nil, op.failedAs(OutcomeRejected, key, mismatch(rec))
		case keystore.Unresolved:
			if why := op.blocked(rec); why != nil && c.cfg.Recover == nil {
				return nil, op.failedAs(OutcomeUnknown, key, why)
			}
			seen, p.Takeover = &rec, true
		case keystore.InFlight:
			seen = &rec
			// After a failed read the next claim tells more. But whoever has
			// seen another owner at work must not take its record for free
			// because it has vanished.
			began := time.Now()
			err := c.waiters.Change(patience, rec)
			op.waited += time.Since(began)
			if patience.Err() != nil || errors.Is(err, await.ErrGone) {
				end := op.failedAs(OutcomeInFlight, key, nil)
				end.err.RetryAfter = min(rec.LeaseLeft, time.Second)
				if ctx.Err() != nil {
					end.err.Cause = stopCause(ctx)
				}
				return nil, end
			}
		default:
			return nil, op.failedAs(OutcomeUnknown, key, fmt.Errorf("%w: it answered a claim with %v", ErrStore, cl.Status))
		}
	}
}

func newNonce() (n [16]byte) {
	_, _ = rand.Read(n[:]) // crypto/rand never fails
	return n
}

// failedOpen is what is held without the store that should have granted it.
// What it knows of earlier attempts can't be told, so that none of these proves
// that the intent was not executed.
func (op *operation) failedOpen(err error) *holding {
	h := op.unstored()
	h.unknown, h.storeErr = true, fmt.Errorf("%w: claim: %w", ErrStore, err)
	return h
}

// mismatch is ErrPayloadMismatch, and what to do about it.
func mismatch(rec keystore.Record) error {
	if !rec.Unresolved() {
		return ErrPayloadMismatch
	}
	return fmt.Errorf("%w, and whether that was executed is unknown: call again with the first payload, or settle the record (idem resolve), before another one is asked for", ErrPayloadMismatch)
}

var errNotRepeatable = errors.New("idem: an earlier attempt's outcome is unknown, and the server does not honour keys")

var errRefusedElsewhere = errors.New("idem: the owner that was waited for had a definite refusal")

// storeTimeout bounds one call to a store.
const storeTimeout = 5 * time.Second

// storeTries is how often a store is asked while it fails. A repeated call is
// the same call to it: a claim has its nonce, the others their owner.
const storeTries = 3

// claim claims, and repeats a claim whose answer was lost.
func (c *Client) claim(ctx context.Context, p keystore.ClaimParams) (cl keystore.Claim, err error) {
	var delay func() time.Duration
	try := func() (keystore.Claim, error) {
		ctx, cancel := context.WithTimeout(ctx, storeTimeout)
		defer cancel()
		return c.cfg.Store.Claim(ctx, p)
	}
	for n := 1; ; n++ {
		cl, err = try()
		if err == nil || n == storeTries || keystore.Final(err) {
			return cl, err
		}
		if delay == nil {
			delay = c.cfg.Policy.delays()
		}
		if !sleep(ctx, delay()) {
			return cl, err
		}
	}
}

// undoDelay is the longest wait between tries to undo: a slow policy must leave
// time for some.
const undoDelay = time.Second

// undo takes back a claim of which nobody knows whether it was granted. Were it
// left, a record that nothing was sent for would be unresolved. It does not try
// for long: the next call for this intent waits for it.
func (c *Client) undo(ctx context.Context, p keystore.ClaimParams) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
	defer cancel()
	deadline, _ := ctx.Deadline()
	for delays := c.cfg.Policy.delays(); ; {
		delay := min(delays(), undoDelay)
		if time.Until(deadline) <= delay || !c.flights.pause(delay) {
			return
		}
		cl, err := c.cfg.Store.Claim(ctx, p)
		if err == nil && cl.Status == keystore.Acquired {
			err = c.cfg.Store.Release(ctx, cl.Owner, keystore.ReleaseParams{How: keystore.Forget})
		}
		if err == nil || keystore.Final(err) {
			return
		}
	}
}

// claimFailed is the ending of an operation that could not be claimed: nothing
// was sent. But a record that can't be read may tell of an earlier execution.
func (op *operation) claimFailed(ctx context.Context, err error) ending {
	outcome := OutcomeNotExecuted
	if errors.Is(err, keystore.ErrCorrupt) || errors.Is(err, keystore.ErrFormat) {
		outcome = OutcomeUnknown
	}
	cause := fmt.Errorf("%w: claim: %w", ErrStore, err)
	if ctx.Err() != nil {
		cause = stopCause(ctx)
	}
	return op.failed(outcome, cause)
}

// replay answers from a settled record.
func (op *operation) replay(key Key, rec keystore.Record) ending {
	answer, err := stored.Decode(rec.Result)
	if err != nil {
		return op.failedAs(OutcomeExecuted, key, fmt.Errorf("%w: %w", ErrResultLost, err))
	}
	end := op.answered(key, answer)
	end.origin, end.age = answer.Origin, rec.Age
	return end
}

// answered answers with what a record holds.
func (op *operation) answered(key Key, answer stored.Answer) ending {
	if answer.Kind == stored.Tombstone {
		return op.failedAs(OutcomeExecuted, key, fmt.Errorf("%w: %s", ErrResultNotRetained, answer.Reason))
	}
	value, err := op.work.decode(answer)
	if err != nil {
		return op.failedAs(OutcomeExecuted, key, fmt.Errorf("%w: %w", ErrResultLost, err))
	}
	return ending{value: value, report: Report{Key: key, Outcome: OutcomeExecuted, Source: SourceReplayed}}
}
