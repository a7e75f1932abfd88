package idem

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"runtime/debug"
	"time"

	"github.com/idem-go/idem/internal/canon"
	"github.com/idem-go/idem/internal/stored"
)

// Report says how a result was obtained.
type Report struct {
	// Key that the intent went out under.
	Key     Key
	Outcome Outcome
	Source  Source
	// Attempts is how many attempts the call made, 0 if it was answered from
	// the store. A joined caller sees those of the call that it joined.
	Attempts int
	// WireSends is how often a connection was used for this call, as far as
	// its requests went through Client.Transport. It exceeds Attempts where
	// net/http sent a request again by itself.
	WireSends int
}

// Result is a value and how it was obtained. Joined callers share the value:
// treat what it points to as read-only.
type Result[T any] struct {
	Value T
	Report
}

// Do carries out the intent: it calls the function until an attempt settles
// it, always with the same key, and returns its result; or it returns the
// result of the call that has carried out the same intent before, here or, with
// a store, in another process. The function sends the key with its request. It
// gets a context that ends with the attempt, with the caller's values; for a
// named intent it runs on a goroutine of its own and goes on when one of
// several callers leaves.
//
// What a returned error proves, Do has to be told: by NotExecuted, Rejected or
// Unknown, by Config.Classify, or by being the error of the one request that the
// function sent through Client.Transport. Network errors and timeouts are
// Unknown and repeated; anything else is Unknown and not repeated.
//
// The error is always an *Error, and res.Outcome is its Outcome. A cancelled
// ctx does not tell that the intent was not executed; Outcome does.
func Do[T any](ctx context.Context, c *Client, in Intent, call func(ctx context.Context, key Key) (T, error)) (res Result[T], err error) {
	op, err := newCall(ctx, c, in, call)
	if err != nil {
		return Result[T]{Report: Report{Key: in.Key, Outcome: OutcomeRejected}}, c.refuse(ctx, in, err)
	}
	end := c.carryOut(ctx, op)
	res.Report = end.report
	if end.err != nil {
		return res, end.err
	}
	res.Value = resultOf[T](end.value)
	return res, nil
}

// Wrap turns a function into one that happens once per intent. intentOf names
// the intent of an argument; if it leaves the Payload nil, the argument is the
// payload. An intent without ID and Key is protected within its call only. The function returned has the contract of Do.
func Wrap[Req, Resp any](c *Client, intentOf func(Req) Intent, call func(ctx context.Context, key Key, req Req) (Resp, error)) func(context.Context, Req) (Resp, error) {
	wrapped := WrapResult(c, intentOf, call)
	return func(ctx context.Context, req Req) (Resp, error) {
		res, err := wrapped(ctx, req)
		return res.Value, err
	}
}

// WrapResult is Wrap that keeps the Result.
func WrapResult[Req, Resp any](c *Client, intentOf func(Req) Intent, call func(ctx context.Context, key Key, req Req) (Resp, error)) func(context.Context, Req) (Result[Resp], error) {
	return func(ctx context.Context, req Req) (Result[Resp], error) {
		if intentOf == nil || call == nil {
			return Result[Resp]{Report: Report{Outcome: OutcomeRejected}}, &Error{Outcome: OutcomeRejected, Cause: fmt.Errorf("%w: Wrap was given a nil function", ErrInvalidIntent)}
		}
		in := intentOf(req)
		if in.Payload == nil {
			in.Payload = req
		}
		return Do(ctx, c, in, func(ctx context.Context, key Key) (Resp, error) { return call(ctx, key, req) })
	}
}

// newCall makes an operation of a decorated function. Its error is local:
// nothing was sent or stored.
func newCall[T any](ctx context.Context, c *Client, in Intent, call func(context.Context, Key) (T, error)) (*operation, error) {
	switch {
	case ctx == nil:
		return nil, fmt.Errorf("%w: the context is nil", ErrInvalidIntent)
	case c == nil:
		return nil, fmt.Errorf("%w: the client is nil; make one with New", ErrConfig)
	case call == nil:
		return nil, fmt.Errorf("%w: the function is nil", ErrInvalidIntent)
	}
	f := &function[T]{call: call, operation: operation{client: c, intent: in, scope: in.Scope, policy: c.cfg.Policy, sendsKey: true, repeatable: !c.cfg.Contract.Unkeyed}}
	op := &f.operation
	op.work = f
	if op.scope == "" {
		op.scope = c.cfg.Scope
	}
	if err := in.validate(op.scope); err != nil {
		return nil, err
	}
	op.name()
	if err := op.checkKey(); err != nil {
		return nil, err
	}
	fingerprint, err := Fingerprint(in.Payload)
	if err != nil {
		return nil, err
	}
	op.fingerprint = fingerprint
	op.keepPayload()
	op.resultType = reflect.TypeFor[T]()
	if attemptFrom(ctx) != nil {
		op.policy.Attempts = 1 // the call around this one repeats it
	}
	if op.named {
		if within(ctx, op) {
			return nil, ErrReentrant
		}
		if c.cfg.Store != nil && c.cfg.Encode == nil {
			if err := canon.CheckResult(op.resultType); err != nil {
				return nil, fmt.Errorf("%w: %w; change the type, or set Config.Encode and Config.Decode", ErrResultType, err)
			}
		}
	}
	return op, nil
}

// function is a call of a decorated function.
type function[T any] struct {
	operation
	call   func(context.Context, Key) (T, error)
	result T // of the last attempt
}

// resultOf is the result that value has: a T, or where one is.
func resultOf[T any](value any) (result T) {
	if at, ok := value.(*T); ok {
		return *at
	}
	result, _ = value.(T)
	return result
}

func (f *function[T]) encode(value any) stored.Answer {
	v := resultOf[T](value)
	var b []byte
	err := recovered(func() (err error) {
		b, err = encodeResult(f.client.cfg.Encode, &v)
		return err
	})
	if err != nil {
		return tombstone("it could not be encoded: " + err.Error())
	}
	return bounded(stored.Answer{Kind: stored.Value, Body: b}, f.client.cfg.MaxResult)
}

func (f *function[T]) decode(a stored.Answer) (any, error) {
	decode := json.Unmarshal
	if f.client.cfg.Decode != nil {
		decode = f.client.cfg.Decode
	}
	var value T
	err := recovered(func() error { return decode(a.Body, &value) })
	return value, err
}

// encodeResult encodes a result for the store.
func encodeResult[T any](encode func(any) ([]byte, error), v *T) ([]byte, error) {
	if encode != nil {
		return encode(*v)
	}
	// Through the pointer, so that marshallers with pointer receivers are used.
	b, err := json.Marshal(v)
	if err == nil && bytes.Contains(b, []byte(`\ufffd`)) {
		// Marshal writes so what is not UTF-8; a replay would be another text.
		_, err = canon.Value(v)
	}
	return b, err
}

func (f *function[T]) try(caller context.Context, key Key, timeout time.Duration) (v verdict) {
	a := &attempt{op: &f.operation, key: key, outer: attemptFrom(caller)}
	a.Start(caller, time.Now().Add(timeout), nil)
	defer a.Cancel(nil)
	err := ErrGoexit
	defer func() {
		if p := recover(); p != nil {
			err = &PanicError{Value: p, Stack: debug.Stack()}
		}
		v = a.judge(caller, err)
		v.value = &f.result
		f.run.last = v // where the function has ended this goroutine, nobody gets v
	}()
	f.result, err = f.call(a, key)
	return v
}
