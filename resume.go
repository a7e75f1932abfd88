package idem

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/idem-go/idem/keystore"
)

// resumeAtOnce is how many intents Resume carries out at a time.
const resumeAtOnce = 8

// Resume carries out again what a process that died has left unresolved in the
// client's scope, the oldest first: each intent under the key and with the
// payload that it was sent with. Call it after a start, with the function that
// Do or Wrap was given for this scope; it may run in several processes at once,
// since each intent is claimed as by Do.
//
// An intent is found by its record, and its payload there: Config.MaxPayload
// must have kept it (with Req struct{}, intents without a payload need none).
// HTTP requests are not resumed: send the request again under its intent.
//
// It returns how many intents it settled, and an error for all the others, whose
// parts are each an *Error with the intent's ID and Key (walk them through
// Unwrap() []error): those whose outcome is still unknown, that are claimed by
// somebody else by now, or whose payload is missing. A settled intent is one
// that was executed or definitely refused; ask for its result with Do, which
// replays it. When ctx ends, so does Resume; what it has not come to stays
// unresolved.
func Resume[Req, Resp any](ctx context.Context, c *Client, call func(ctx context.Context, key Key, req Req) (Resp, error)) (settled int, err error) {
	switch {
	case ctx == nil || call == nil:
		return 0, fmt.Errorf("%w: Resume was given a nil context or function", ErrInvalidIntent)
	case c == nil:
		return 0, fmt.Errorf("%w: the client is nil; make one with New", ErrConfig)
	case c.cfg.Store == nil:
		return 0, badConfig("Config.Store", "is nil: without a store nothing is left to resume")
	}
	left, err := c.unresolved(ctx)
	var (
		mu   sync.Mutex // guards settled and errs
		errs = []error{err}
		wg   sync.WaitGroup
		free = make(chan struct{}, resumeAtOnce)
	)
	for _, l := range left {
		free <- struct{}{}
		wg.Go(func() {
			defer func() { <-free }()
			err := resume(ctx, c, l, call)
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				settled++
			} else {
				errs = append(errs, err)
			}
		})
	}
	wg.Wait()
	return settled, errors.Join(errs...)
}

// leftover is an unresolved intent of a record.
type leftover struct {
	meta
	id  [32]byte
	age time.Duration
}

// unresolved lists the unresolved intents of the client's scope, the oldest
// first, and without their payloads.
func (c *Client) unresolved(ctx context.Context) (left []leftover, err error) {
	scope := keystore.ScopeDigest(keystore.Client, c.cfg.Scope)
	q := keystore.Query{Scope: &scope, Unresolved: true}
	for {
		recs, failed := c.records(ctx, q)
		if failed != nil {
			err = errors.Join(err, fmt.Errorf("%w: list unresolved records: %w", ErrStore, failed))
		}
		if len(recs) == 0 {
			break
		}
		for _, rec := range recs {
			note, unreadable := metaOf(rec)
			if unreadable != nil {
				err = errors.Join(err, &Error{Outcome: OutcomeUnknown, Scope: c.cfg.Scope, Cause: unreadable})
				continue
			}
			note.Payload = nil
			left = append(left, leftover{note, rec.ID, rec.Age})
		}
		q.After = recs[len(recs)-1].ID
	}
	slices.SortStableFunc(left, func(a, b leftover) int { return cmp.Compare(b.age, a.age) })
	return left, err
}

func (c *Client) records(ctx context.Context, q keystore.Query) ([]keystore.Record, error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	return c.cfg.Store.Records(ctx, q)
}

// resume carries out one intent, and returns nil if it is settled now.
func resume[Req, Resp any](ctx context.Context, c *Client, l leftover, call func(context.Context, Key, Req) (Resp, error)) error {
	refuse := func(cause error) error {
		return &Error{Outcome: OutcomeUnknown, Key: l.Key, Scope: l.Scope, ID: l.ID, Cause: cause}
	}
	in := Intent{Scope: l.Scope, ID: l.ID}
	if l.ID == "" {
		in.Key = l.Key
	}
	var req Req
	switch payload, err := c.payload(ctx, l); {
	case ctx.Err() != nil:
		return refuse(stopCause(ctx))
	case err != nil:
		return refuse(fmt.Errorf("%w: %w", ErrStore, err))
	case l.HTTP:
		return refuse(errors.New("idem: it is an HTTP request; send it again under its intent"))
	case payload == nil && reflect.TypeFor[Req]().Size() != 0:
		return refuse(errors.New("idem: its payload was not kept (see Config.MaxPayload); call Do with it"))
	case payload != nil:
		d := json.NewDecoder(bytes.NewReader(payload))
		d.UseNumber() // as text, or large numbers would change
		if err := d.Decode(&req); err != nil {
			return refuse(fmt.Errorf("%w: its payload is no %v: %w", ErrInvalidIntent, reflect.TypeFor[Req](), err))
		}
		in.Payload = req
	}
	_, err := Do(ctx, c, in, func(ctx context.Context, key Key) (Resp, error) { return call(ctx, key, req) })
	var e *Error
	if errors.As(err, &e) && (e.Outcome == OutcomeExecuted || e.Outcome == OutcomeRejected && !errors.Is(err, ErrPayloadMismatch)) {
		return nil
	}
	return err
}

// payload reads what was kept of an intent's payload.
func (c *Client) payload(ctx context.Context, l leftover) (json.RawMessage, error) {
	recs, err := c.records(ctx, keystore.Query{ID: &l.id, Limit: 1})
	if err != nil || len(recs) == 0 {
		return nil, err
	}
	note, err := metaOf(recs[0])
	return note.Payload, err
}

// keepPayload sets what the record keeps of the payload, if it may and can.
func (op *operation) keepPayload() {
	limit := op.client.cfg.MaxPayload
	if limit == 0 || !op.named || op.intent.Payload == nil {
		return
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if enc.Encode(op.intent.Payload) != nil || b.Len() > limit {
		return // the fingerprint has told of every payload that is no JSON
	}
	op.payload = bytes.TrimSpace(b.Bytes())
}
