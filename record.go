package idem

import (
	"context"
	"crypto/rand"
	"encoding/json"
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

	owner      keystore.Owner
	generation uint32
	claimed    time.Time
	keeper     *lease.Keeper
}

// keep renews the claim until it is settled.
func (h *holding) keep(ctx context.Context, c *Client, lost func()) {
	h.keeper = lease.Keep(ctx, c.cfg.Store, h.owner, c.cfg.Lease, h.claimed, lost)
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

// meta is what the client half notes in a record: the key that is sent, and how
// it is written, which outlive every later way to derive and to spell one; and
// the intent in readable form.
type meta struct {
	Version    int    `json:"v"`
	Generation uint32 `json:"g"`
	Key        Key    `json:"k"`
	Wire       string `json:"w,omitempty"`
	Scope      string `json:"s,omitempty"`
	ID         string `json:"i,omitempty"`
}

func (op *operation) meta(generation uint32) []byte {
	key := op.newKey(generation)
	b, err := json.Marshal(meta{1, generation, key, op.spell(key), op.scope, op.intent.ID})
	if err != nil {
		panic("idem: a meta of strings always encodes: " + err.Error())
	}
	return b
}

// metaOf tells the key that the record was or will be sent under.
func metaOf(rec keystore.Record) (m meta, err error) {
	if err := json.Unmarshal(rec.Meta, &m); err != nil {
		return m, fmt.Errorf("%w: its meta: %w", keystore.ErrCorrupt, err)
	}
	if m.Version != 1 {
		return m, fmt.Errorf("%w: its meta has version %d", keystore.ErrFormat, m.Version)
	}
	if m.Generation != rec.Generation {
		return m, fmt.Errorf("%w: its key is of generation %d, the record of %d", keystore.ErrCorrupt, m.Generation, rec.Generation)
	}
	return m, m.Key.Validate()
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
		Lease: c.cfg.Lease, Keep: c.cfg.Retention, Begun: true, Meta: op.meta(0),
	}
	_, _ = rand.Read(p.Nonce[:]) // crypto/rand never fails
	patience, stop := context.WithTimeout(ctx, c.cfg.Policy.InFlightWait)
	defer stop()
	var seen *keystore.Record // as others held it, or left it
	for {
		claimed := time.Now()
		cl, err := c.claim(ctx, p)
		if err != nil {
			return nil, op.claimFailed(ctx, err)
		}
		rec := cl.Record
		note, err := metaOf(rec)
		if err != nil {
			if cl.Status == keystore.Acquired {
				c.release(ctx, cl.Owner, keystore.Abandon)
			}
			return nil, op.failed(OutcomeUnknown, err)
		}
		key := note.Key
		switch cl.Status {
		case keystore.Acquired:
			if seen != nil && rec.Generation > seen.Generation {
				// The owner that was seen was definitely refused. The
				// next generation is for a caller who knows of that.
				c.release(ctx, cl.Owner, keystore.Forget)
				return nil, op.failedAs(OutcomeRejected, key, errRefusedElsewhere)
			}
			if err := c.expired(rec); err != nil {
				c.release(ctx, cl.Owner, keystore.Abandon)
				return nil, op.failedAs(OutcomeUnknown, key, err)
			}
			return &holding{key: key, wire: note.Wire, unknown: p.Takeover, owner: cl.Owner, generation: rec.Generation, claimed: claimed}, ending{}
		case keystore.Completed:
			return nil, op.replay(key, rec)
		case keystore.Mismatch:
			return nil, op.failedAs(OutcomeRejected, key, ErrPayloadMismatch)
		case keystore.Unresolved:
			if err := c.expired(rec); err != nil {
				return nil, op.failedAs(OutcomeUnknown, key, err)
			}
			if !op.repeatable {
				return nil, op.failedAs(OutcomeUnknown, key, errNotRepeatable)
			}
			seen, p.Takeover = &rec, true
		case keystore.InFlight:
			seen = &rec
			// After a failed read the next claim tells more. But whoever has
			// seen another owner at work must not take its record for free
			// because it has vanished.
			err := c.waiters.Change(patience, rec)
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

// expired is ErrKeyExpired if the server may have forgotten the record's key
// by the time of the last attempt: a call lasts no longer than Overall.
func (c *Client) expired(rec keystore.Record) error {
	keep := c.cfg.Contract.Retention
	if rec.Age < keep-c.cfg.Policy.Overall {
		return nil
	}
	return fmt.Errorf("%w: first sent %v ago, remembered for %v", ErrKeyExpired, rec.Age.Round(time.Second), keep)
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
	delay := c.cfg.Policy.delays()
	try := func() (keystore.Claim, error) {
		ctx, cancel := context.WithTimeout(ctx, storeTimeout)
		defer cancel()
		return c.cfg.Store.Claim(ctx, p)
	}
	for n := 1; ; n++ {
		cl, err = try()
		if err == nil || n == storeTries || keystore.Final(err) || !sleep(ctx, delay()) {
			return cl, err
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
	if answer.Kind == stored.Tombstone {
		return op.failedAs(OutcomeExecuted, key, fmt.Errorf("%w: %s", ErrResultNotRetained, answer.Reason))
	}
	value, err := op.decode(answer)
	if err != nil {
		return op.failedAs(OutcomeExecuted, key, fmt.Errorf("%w: %w", ErrResultLost, err))
	}
	return ending{value: value, report: Report{Key: key, Outcome: OutcomeExecuted, Source: SourceReplayed}}
}
