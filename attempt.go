package idem

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"reflect"
	"sync"

	"github.com/idem-go/idem/internal/keyctx"
	"github.com/idem-go/idem/internal/lazyctx"
)

// attempt is one try of a decorated function, and its context: what the function
// sends through Transport is sent under its key, once.
type attempt struct {
	lazyctx.Context
	op    *operation
	key   Key
	outer *attempt // of the call that this one runs in

	mu        sync.Mutex // guards exchanges
	exchanges []verdict
}

type attemptKey struct{}

// Value adds the attempt itself, and its key, to the context.
func (a *attempt) Value(k any) any {
	switch k {
	case attemptKey{}:
		return a
	case keyctx.Key{}:
		return string(a.key)
	}
	return a.Context.Value(k)
}

func attemptFrom(ctx context.Context) *attempt {
	a, _ := ctx.Value(attemptKey{}).(*attempt)
	return a
}

// within tells whether ctx comes from an attempt of the same intent: a call
// would wait for itself.
func within(ctx context.Context, op *operation) bool {
	for a := attemptFrom(ctx); a != nil; a = a.outer {
		if a.op.client == op.client && a.op.named && a.op.id == op.id {
			return true
		}
	}
	return false
}

// exchanged notes an exchange of the attempt.
func (a *attempt) exchanged(v verdict) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.exchanges = append(a.exchanges, v)
}

// judge says what the function's error proves. caller is the context of the
// call.
func (a *attempt) judge(caller context.Context, err error) verdict {
	a.mu.Lock()
	defer a.mu.Unlock()
	v := a.classify(caller, err)
	v.err = err
	for _, x := range a.exchanges {
		v.sends += x.sends
		v.resent = v.resent || x.resent
	}
	if err == nil && len(a.exchanges) == 1 {
		v.status, v.replayed = a.exchanges[0].status, a.exchanges[0].replayed
	}
	return v
}

func (a *attempt) classify(caller context.Context, err error) verdict {
	if err == nil {
		return verdict{outcome: OutcomeExecuted}
	}
	var panicked *PanicError
	if errors.As(err, &panicked) || errors.Is(err, ErrGoexit) {
		return verdict{outcome: OutcomeUnknown}
	}
	if o, ok := MarkedOutcome(err); ok {
		return byOutcome(o)
	}
	if classify := a.op.client.cfg.Classify; classify != nil {
		if o, ok := classify(err); ok {
			return byOutcome(o)
		}
	}
	// The error of the attempt's only exchange proves what the exchange does.
	// With more than one it may be that of a second service, called after the
	// effect.
	status, hasStatus := statusOf(err)
	if len(a.exchanges) == 1 {
		x := a.exchanges[0]
		if x.err != nil && errors.Is(err, x.err) || hasStatus && status == x.status {
			x.sends, x.value = 0, nil
			return x
		}
	}
	switch {
	case len(a.exchanges) == 1 && a.exchanges[0].outcome == OutcomeExecuted && undecodable(err):
		return verdict{outcome: OutcomeExecuted, cause: ErrResultLost}
	case hasStatus:
		return verdict{outcome: OutcomeUnknown, status: status}
	case errors.Is(err, ErrPayloadMismatch):
		// A second request under one key: it would be refused each time.
		return verdict{outcome: OutcomeUnknown}
	case caller.Err() != nil:
		return verdict{outcome: OutcomeUnknown}
	}
	var network net.Error
	if a.Err() != nil || errors.As(err, &network) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		return verdict{outcome: OutcomeUnknown, retry: true}
	}
	return verdict{outcome: OutcomeUnknown}
}

// undecodable tells that a whole reply could not be decoded.
func undecodable(err error) bool {
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	return errors.As(err, &syntax) || errors.As(err, &kind)
}

// byOutcome is the verdict of an error that says what it proves.
func byOutcome(o Outcome) verdict {
	if o == OutcomeExecuted {
		// There is an error in the place of a result.
		return verdict{outcome: o, cause: ErrResultNotRetained}
	}
	return verdict{outcome: o, retry: o == OutcomeNotExecuted || o == OutcomeUnknown || o == OutcomeInFlight}
}

// statusOf finds an HTTP status in an error, where SDKs keep it: a method or a
// field StatusCode or HTTPStatusCode.
func statusOf(err error) (int, bool) {
	var withStatus interface{ StatusCode() int }
	if errors.As(err, &withStatus) && withStatus.StatusCode() > 0 {
		return withStatus.StatusCode(), true
	}
	var withHTTPStatus interface{ HTTPStatusCode() int }
	if errors.As(err, &withHTTPStatus) && withHTTPStatus.HTTPStatusCode() > 0 {
		return withHTTPStatus.HTTPStatusCode(), true
	}
	for _, e := range chain(err) {
		v := reflect.Indirect(reflect.ValueOf(e))
		if v.Kind() != reflect.Struct {
			continue
		}
		for _, name := range []string{"HTTPStatusCode", "StatusCode"} {
			field, ok := v.Type().FieldByName(name)
			if !ok {
				continue
			}
			// An embedded nil pointer has no fields to read.
			f, err := v.FieldByIndexErr(field.Index)
			if err == nil && f.CanInt() && f.Int() > 0 {
				return int(f.Int()), true
			}
		}
	}
	return 0, false
}

// chain lists err and all that it wraps.
func chain(err error) []error {
	if err == nil {
		return nil
	}
	all := []error{err}
	switch w := err.(type) {
	case interface{ Unwrap() error }:
		all = append(all, chain(w.Unwrap())...)
	case interface{ Unwrap() []error }:
		for _, e := range w.Unwrap() {
			all = append(all, chain(e)...)
		}
	}
	return all
}
