package idem

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"reflect"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/idem-go/idem/internal/stored"
	"github.com/idem-go/idem/keystore"
)

// operation is one intent, resolved and ready to be carried out: a decorated
// function or an HTTP request, as far as claims, flights and attempts care.
type operation struct {
	client *Client
	intent Intent
	scope  string
	// named: by ID or key. An operation without a name has no record and no
	// flight; its random key lives as long as the call.
	named       bool
	id          [32]byte
	fingerprint [32]byte

	http        bool         // a request, not a function's call
	payload     []byte       // JSON that is kept for Resume, nil if none is
	resultType  reflect.Type // what the flight's callers must agree on
	credentials [32]byte

	policy Policy
	origin *url.URL // whose retry budget; nil for functions
	// sendsKey: the requests carry the key, and the server honours it.
	sendsKey bool
	// repeatable: an attempt with an unknown outcome may be repeated, since
	// the server honours the key, or since the method is idempotent.
	repeatable bool
	// held is what an earlier hop of a redirect has claimed.
	held *holding
	// requests binds the requests that a decorated function sends.
	requests binding
	// header is the key as the caller has written it, if it has.
	header string
	// wire is the key as the attempts write it. Set before the first.
	wire string
	// sending is the key that the attempts carry, once there are any.
	sending atomic.Pointer[Key]

	started time.Time
	// template is the request that the attempts send, nil for a function.
	template *http.Request
	// headers are those that it had before a tracer added any.
	headers http.Header
	// trace is what its record, and who joins it, are to know of it.
	trace string
	// waited is how long its claim has waited for another owner.
	waited time.Duration

	work work
	// bare is what it holds without a record, and run how far it has come: here
	// because every operation needs one.
	bare holding
	run  progress
}

// work is what an operation carries out: a decorated function, or a request.
type work interface {
	// try makes one attempt.
	try(ctx context.Context, key Key, timeout time.Duration) verdict
	// encode is the stored form of a result that try had, and decode its inverse.
	encode(value any) stored.Answer
	decode(stored.Answer) (any, error)
}

// until is a context, or a flight, as far as it has a deadline.
type until interface{ Deadline() (time.Time, bool) }

// name sets the record's identity.
func (op *operation) name() {
	switch {
	case op.intent.ID != "":
		op.named, op.id = true, keystore.RecordID(keystore.Client, op.scope, "id", op.intent.ID)
	case op.intent.Key != "":
		op.named, op.id = true, keystore.RecordID(keystore.Client, op.scope, "key", string(op.intent.Key))
	}
}

// checkKey refuses a key that the server would not take.
func (op *operation) checkKey() error {
	contract := &op.client.cfg.Contract
	key := op.intent.Key
	if key == "" { // of those that idem makes one is like another
		key = contract.form("00000000-0000-4000-8000-000000000000")
	}
	switch {
	case len(key) > contract.MaxKeyLen:
		return badKey(fmt.Sprintf("has %d characters; the server takes %d", len(key), contract.MaxKeyLen))
	case !contract.takes(key):
		return badKey(fmt.Sprintf("has other characters than the server takes, which are %q", contract.KeyChars))
	}
	return nil
}

// newKey returns the operation's key in one generation: the one that the
// caller gave as it is, else, in the form that the server takes, the one that
// follows from scope and ID, or a random one.
func (op *operation) newKey(generation uint32) Key {
	form := op.client.cfg.Contract.form
	switch {
	case op.intent.Key != "":
		return op.intent.Key
	case !op.sendsKey && !op.named:
		return ""
	case op.intent.ID == "" || op.client.cfg.RandomKeys:
		return form(NewKey())
	case generation == 0:
		return form(DeriveKey("intent", op.scope, op.intent.ID))
	}
	return form(DeriveKey("intent", op.scope, op.intent.ID, strconv.FormatUint(uint64(generation), 10)))
}

// failed is the ending of an operation of whose attempts, if any, nothing is
// known.
func (op *operation) failed(o Outcome, cause error) ending {
	if op.held != nil {
		if op.held.unknown {
			o = OutcomeUnknown
		}
		return op.failedAs(o, op.held.key, cause)
	}
	var key Key
	if sending := op.sending.Load(); sending != nil {
		key = *sending
	} else if op.named && (op.intent.Key != "" || !op.client.cfg.RandomKeys) {
		key = op.newKey(0)
	}
	return op.failedAs(o, key, cause)
}

// fail is failed where the end is wanted.
func (op *operation) fail(end *ending, o Outcome, cause error) { *end = op.failed(o, cause) }

// failBeside is fail for a call that can't share in a running flight: its intent
// goes out under that one's key.
func (op *operation) failBeside(f *flight, end *ending, o Outcome, cause error) {
	if key := f.op.sending.Load(); key != nil {
		*end = op.failedAs(o, *key, cause)
		return
	}
	*end = op.failed(o, cause)
}

func (op *operation) failedAs(o Outcome, key Key, cause error) ending {
	return ending{
		report: Report{Key: key, Outcome: o},
		err:    &Error{Outcome: o, Key: key, Scope: op.scope, ID: op.intent.ID, Cause: cause},
	}
}

// refuse tells the observer of a call that could not be made an operation, and
// returns what the caller is told. Nothing was sent or stored. c may be nil.
func (c *Client) refuse(ctx context.Context, in Intent, cause error) *Error {
	scope := in.Scope
	if scope == "" && c != nil {
		scope = c.cfg.Scope
	}
	e := &Error{Outcome: OutcomeRejected, Key: in.Key, Scope: scope, ID: in.ID, Cause: cause}
	if c != nil && ctx != nil {
		c.tell(ctx, &operation{scope: scope}, ending{report: Report{Key: in.Key, Outcome: OutcomeRejected}, err: e})
	}
	return e
}

// carryOut sees an operation to its end and tells the observer.
func (c *Client) carryOut(ctx context.Context, op *operation) (end ending) {
	ctx = c.begin(ctx, op)
	ended := false
	// In a defer, since without a flight the function runs on this goroutine
	// and may end it.
	defer func() {
		if !ended {
			end = op.exited()
		}
		c.tell(ctx, op, end)
	}()
	c.share(ctx, op, &end)
	ended = true
	return end
}

// begin notes when the operation began, and tells a tracer.
func (c *Client) begin(ctx context.Context, op *operation) context.Context {
	if c.watch == nil {
		return ctx
	}
	op.started = time.Now()
	if c.watch.Traces() {
		ctx, op.trace = c.watch.Start(ctx, Event{Half: "client", Scope: op.scope, Started: op.started}, op.template)
	}
	return ctx
}

// tell tells the observer of the end of an operation.
func (c *Client) tell(ctx context.Context, op *operation, end ending) {
	if c.watch != nil {
		c.tellWatch(ctx, op, end)
	}
}

// tellWatch is apart so that tell allocates nothing where nobody watches.
func (c *Client) tellWatch(ctx context.Context, op *operation, end ending) {
	if op.started.IsZero() { // it has ended before it began
		ctx = c.begin(ctx, op)
	}
	c.watch.Observe(ctx, func(lost int) Event {
		e := end.event(op)
		e.Lost = lost
		return e
	})
}

// share carries an operation out, or shares in the flight that does.
func (c *Client) share(ctx context.Context, op *operation, end *ending) {
	switch {
	case ctx.Err() != nil:
		op.fail(end, OutcomeNotExecuted, stopCause(ctx))
		return
	case !op.named && c.flights.closing():
		op.fail(end, OutcomeNotExecuted, ErrShutdown)
		return
	case !op.named:
		c.alone(ctx, op, end)
		return
	}
	joined := c.flights.do(ctx, op, end)
	switch {
	case joined:
		end.attempts, end.tried, end.waited = nil, false, 0
		if end.report.Source == SourceExecuted {
			end.report.Source = SourceJoined
		}
	case end.origin == op.trace:
		end.origin = "" // its own
	}
	if end.err != nil {
		// Each caller may do with its error what it likes.
		end.err = end.err.clone()
	}
}

// alone carries out what has no name to be shared under.
func (c *Client) alone(ctx context.Context, op *operation, end *ending) {
	*end = c.attempts(ctx, op, op.unstored(), ctx)
}

// live is the life of a named intent: claim, attempts, settle. It sets the
// flight's end, and what is left to do after that.
func (c *Client) live(f *flight) {
	if c.cfg.Store == nil {
		f.end = c.attempts(f.ctx, f.op, f.op.unstored(), f)
		return
	}
	c.recorded(f)
}

// recorded is the life of an intent that has a record.
func (c *Client) recorded(f *flight) {
	op, ctx := f.op, f.ctx
	h, answered := c.hold(ctx, op)
	if h == nil {
		answered.waited = op.waited
		f.end, f.later = answered, answered.undo
		return
	}
	if h.storeErr != nil {
		f.end = c.attempts(ctx, op, h, f)
		f.end.storeErr = h.storeErr
		return
	}
	ctx, lost := context.WithCancelCause(ctx)
	h.keep(ctx, c, func() { lost(ErrLeaseLost) })
	settled := false
	defer func() {
		if !settled { // a hook or the store has panicked, or the function has ended this goroutine
			h.keeper.Stop()
			c.release(ctx, h.owner, keystore.ReleaseParams{How: keystore.Abandon})
			lost(nil)
		}
	}()
	f.end = c.attempts(ctx, op, h, f)
	f.later = c.settle(ctx, op, h, &f.end)
	settled = true
	f.end.after(lost)
}

// exited is the ending of an operation whose function has ended its goroutine.
func (op *operation) exited() ending {
	run := &op.run
	if run.trying == 0 {
		return op.failed(OutcomeUnknown, ErrGoexit)
	}
	run.note(run.last)
	return run.end(nil, 0)
}

// unstored is what an operation without a record holds: its key.
func (op *operation) unstored() *holding {
	if op.held != nil {
		return op.held
	}
	key := op.newKey(0)
	op.bare = holding{key: key, wire: op.spell(key), expires: op.expiry(time.Now(), 0)}
	return &op.bare
}

// spell is how the key is written in the header: as the caller did, or as the
// contract says.
func (op *operation) spell(key Key) string {
	if op.header != "" {
		return op.header
	}
	return op.client.cfg.Contract.spell(key)
}
