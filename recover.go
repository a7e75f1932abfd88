package idem

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"time"

	"github.com/idem-go/idem/internal/stored"
	"github.com/idem-go/idem/keystore"
)

// Pending is an unresolved intent, as a Recover hook of either half sees it:
// it was begun, its owner is gone, and nobody knows whether it was executed.
type Pending struct {
	// Half is "client" or "server".
	Half string
	// Scope, and ID or Key, name the intent. Key is the one that it was sent,
	// or came, under; with an ID on the server half it is derived.
	Scope, ID string
	Key       Key
	// Method and Path are those of a request at the server half.
	Method, Path string
	// Payload is the JSON that Config.MaxPayload has kept, nil if none.
	Payload []byte
	// Age is the time since the intent was first claimed, by the store's
	// clock.
	Age time.Duration
	// Generation counts the definite refusals of the intent before this one.
	Generation uint32
	// Token is the record's fencing token.
	Token uint64
	// Tries is how often Recover was asked about it before.
	Tries int
}

// Resolution is what a Recover hook has found out. The zero Resolution is that
// it is still unknown.
type Resolution struct {
	// Outcome is OutcomeExecuted: done, with the result below;
	// OutcomeRejected: definitely refused, with the reply below;
	// OutcomeNotExecuted: it did not happen and won't, so that it may be
	// tried again; or OutcomeUnknown: nobody knows yet.
	Outcome Outcome
	// Value is the result of a function: what it would have returned. It is
	// of the function's type.
	Value any
	// Status, Header and Body are the reply to an HTTP request. Without a
	// Status and a Value the record says that it was executed, but that its
	// result was not retained.
	Status int
	Header http.Header
	Body   []byte
}

// recover asks Config.Recover what became of an intent that must not be sent
// again, for the reason why. It has been taken over, so that nobody else asks,
// or sends, meanwhile. With again, it did not happen and may be claimed anew.
func (c *Client) recover(ctx context.Context, op *operation, h *holding, rec keystore.Record, note meta, why error) (end ending, again bool) {
	if c.cfg.Recover == nil {
		c.release(ctx, h.owner, keystore.ReleaseParams{How: keystore.Abandon})
		return op.failedAs(OutcomeUnknown, h.key, why), false
	}
	asking, stop := context.WithTimeout(ctx, c.cfg.Policy.Overall)
	defer stop()
	asking, lost := context.WithCancelCause(asking)
	defer lost(nil)
	h.keep(ctx, c, func() { lost(ErrLeaseLost) })
	defer h.keeper.Stop()

	var res Resolution
	err := protect(func() (err error) {
		res, err = c.cfg.Recover(asking, pending(op, rec, note))
		return err
	})
	if err == nil {
		err = context.Cause(asking)
	}
	var answer stored.Answer
	if err == nil && res.Outcome == OutcomeExecuted {
		answer, err = op.resolved(res)
	}
	h.keeper.Stop()
	if err != nil {
		res.Outcome, why = OutcomeUnknown, fmt.Errorf("%w; Recover: %w", why, err)
	}
	err = c.settleRecovered(ctx, op, h, note, res.Outcome, answer)
	switch {
	case errors.Is(err, keystore.ErrFenced):
		return op.failedAs(OutcomeUnknown, h.key, ErrLeaseLost), false
	case err != nil:
		// What was found out is true, but it is not kept: it is asked again.
		return op.failedAs(OutcomeUnknown, h.key, fmt.Errorf("%w: settle what Recover told: %w", ErrStore, err)), false
	}
	switch res.Outcome {
	case OutcomeExecuted:
		end = op.answered(h.key, answer)
	case OutcomeRejected:
		end = op.failedAs(OutcomeRejected, h.key, nil)
		if res.Status != 0 {
			end.err.Last = &ResponseError{StatusCode: res.Status, Header: res.Header, Body: res.Body}
		}
	case OutcomeNotExecuted:
		return ending{}, true
	default:
		return op.failedAs(OutcomeUnknown, h.key, why), false
	}
	end.recovered = true
	return end, false
}

func pending(op *operation, rec keystore.Record, note meta) Pending {
	return Pending{Half: "client", Scope: op.scope, ID: op.intent.ID, Key: note.Key, Payload: note.Payload,
		Age: rec.Age, Generation: rec.Generation, Token: rec.Token, Tries: note.Tries}
}

// settleRecovered brings what Recover has told into the record.
func (c *Client) settleRecovered(ctx context.Context, op *operation, h *holding, note meta, o Outcome, a stored.Answer) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
	defer cancel()
	release := keystore.ReleaseParams{How: keystore.Abandon}
	switch o {
	case OutcomeExecuted:
		return c.complete(ctx, h.owner, a)
	case OutcomeNotExecuted:
		release.How = keystore.Forget
	case OutcomeRejected:
		release = keystore.ReleaseParams{How: keystore.Reject, Meta: op.meta(h.generation + 1)}
	default:
		note.Tries++
		release.Meta = note.encode()
	}
	return c.cfg.Store.Release(ctx, h.owner, release)
}

// resolved is what is stored of a result that Recover has told.
func (op *operation) resolved(res Resolution) (a stored.Answer, err error) {
	switch {
	case op.http && res.Status != 0:
		if res.Status < 200 || res.Status > 599 {
			return a, fmt.Errorf("it gave the status %d; it must be that of a final reply, 200 to 599", res.Status)
		}
		return bounded(stored.Answer{Kind: stored.Response, Status: res.Status, Header: res.Header, Body: res.Body}, op.client.cfg.MaxResult), nil
	case !op.http && res.Value != nil:
		if got := reflect.TypeOf(res.Value); got != op.resultType {
			return a, fmt.Errorf("it gave a value of type %v; the function's result is a %v", got, op.resultType)
		}
		return op.work.encode(res.Value), nil
	case res.Value != nil || res.Status != 0:
		return a, errors.New("it gave a result of the wrong kind; a request needs Status, a function Value")
	}
	return tombstone("Recover told no result"), nil
}

// protect runs fn on a goroutine of its own and turns a panic or a Goexit in
// it into an error.
func protect(fn func() error) error {
	done := make(chan error, 1)
	go func() {
		err := ErrGoexit
		defer func() { done <- err }()
		err = recovered(fn)
	}()
	return <-done
}
