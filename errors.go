package idem

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// What is known about the execution; every *Error without a result is one of
// these, by its Outcome. Test with errors.Is.
var (
	ErrOutcomeUnknown = errors.New("idem: outcome unknown: it may or may not have been executed")
	ErrNotExecuted    = errors.New("idem: not executed")
	ErrRejected       = errors.New("idem: rejected")
	ErrInFlight       = errors.New("idem: in flight: another attempt under this key is running")
)

// Why a call ended without a result. Test with errors.Is.
var (
	// ErrConfig: a Config, Policy or Contract breaks a rule; the text names
	// the field.
	ErrConfig = errors.New("idem: invalid config")
	// ErrInvalidKey: a key breaks the syntax.
	ErrInvalidKey = errors.New("idem: invalid key")
	// ErrInvalidIntent: an Intent, or the call made with it, breaks a rule.
	ErrInvalidIntent = errors.New("idem: invalid intent")
	// ErrPayloadMismatch: the intent or key is in use with another payload.
	// Ask for the outcome of the first payload before changing it.
	ErrPayloadMismatch = errors.New("idem: payload mismatch: the key belongs to another payload")
	// ErrKeyExpired: the intent is unresolved and the server may have
	// forgotten its key; sending it again could execute it twice.
	ErrKeyExpired = errors.New("idem: key expired: the server may have forgotten it")
	// ErrRetryAfterTooLong: the server asked for a longer wait than the policy
	// or the deadline allows.
	ErrRetryAfterTooLong = errors.New("idem: the server asks to wait too long")
	// ErrRetryBudget: too many attempts at this origin failed lately.
	ErrRetryBudget = errors.New("idem: retry budget spent")
	// ErrReentrant: a call was made from inside itself.
	ErrReentrant = errors.New("idem: the intent is already being executed by this call")
	// ErrResultType: the result's type can't be stored and read back whole,
	// or a running flight has another one.
	ErrResultType = errors.New("idem: unsuitable result type")
	// ErrResultNotRetained: executed, but the result was not kept.
	ErrResultNotRetained = errors.New("idem: executed, but the result was not retained")
	// ErrResultLost: executed, but the stored result can't be read.
	ErrResultLost = errors.New("idem: executed, but the stored result can't be decoded")
	// ErrScope: the call may not share in a running one: its credentials
	// differ.
	ErrScope = errors.New("idem: other credentials under the same key")
	// ErrTooLarge: the request body is over the bound.
	ErrTooLarge = errors.New("idem: request body too large")
	// ErrCrossOrigin: a redirect leads to another origin; neither key nor body
	// follow it.
	ErrCrossOrigin = errors.New("idem: redirect to another origin")
	// ErrStore: the store failed, and nothing was sent from then on. Whether
	// something was sent before, the Outcome tells.
	ErrStore = errors.New("idem: store failed")
	// ErrLeaseLost: the claim was taken over by another owner.
	ErrLeaseLost = errors.New("idem: lease lost")
	// ErrGoexit: the function ended its goroutine with runtime.Goexit.
	ErrGoexit = errors.New("idem: the function called runtime.Goexit")
	// ErrShutdown: the client or server is shutting down.
	ErrShutdown = errors.New("idem: shut down")
)

// Error is what a call returns when it has no result. It says what is known
// about the execution, and under which key the intent went out, so that the
// caller can park the intent and reconcile it.
type Error struct {
	Outcome Outcome
	// Key that the attempts carried, or would have carried.
	Key Key
	// Scope and ID of the intent; ID is empty if it was named by a key.
	Scope, ID string
	// Attempts is how many attempts were made.
	Attempts int
	// Cause is why the call ended, nil if the last attempt says it all: one
	// of the sentinels above, the caller's context error, a store's error.
	Cause error
	// Last is the error of the last attempt that had one: a network error,
	// the function's error, or a *ResponseError.
	Last error
	// RetryAfter is how long the server, or the owner that was waited for,
	// asked to wait; 0 if nobody asked.
	RetryAfter time.Duration
}

// Error tells outcome, cause, last error and the key's digest.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString("idem: " + e.Outcome.String())
	if e.Attempts > 0 {
		fmt.Fprintf(&b, " after %d attempt", e.Attempts)
		if e.Attempts > 1 {
			b.WriteByte('s')
		}
	}
	if e.Key != "" {
		b.WriteString(" (key digest " + e.Key.Digest() + ")")
	}
	for _, err := range []error{e.Cause, e.Last} {
		if err != nil {
			b.WriteString(": " + strings.TrimPrefix(err.Error(), "idem: "))
		}
	}
	return b.String()
}

// clone returns a copy that shares nothing a caller may change.
func (e *Error) clone() *Error {
	c := *e
	if r, ok := e.Last.(*ResponseError); ok {
		c.Last = &ResponseError{r.StatusCode, r.Header.Clone(), bytes.Clone(r.Body)}
	}
	return &c
}

// Unwrap reaches the outcome's sentinel, the cause and the last error.
func (e *Error) Unwrap() []error {
	var errs []error
	switch e.Outcome {
	case OutcomeUnknown:
		errs = append(errs, ErrOutcomeUnknown)
	case OutcomeNotExecuted:
		errs = append(errs, ErrNotExecuted)
	case OutcomeRejected:
		errs = append(errs, ErrRejected)
	case OutcomeInFlight:
		errs = append(errs, ErrInFlight)
	}
	if e.Cause != nil {
		errs = append(errs, e.Cause)
	}
	if e.Last != nil {
		errs = append(errs, e.Last)
	}
	return errs
}

// Timeout tells whether the call ran out of time (net.Error has the same
// method).
func (e *Error) Timeout() bool {
	if errors.Is(e.Cause, context.DeadlineExceeded) {
		return true
	}
	var t interface{ Timeout() bool }
	return e.Cause == nil && errors.As(e.Last, &t) && t.Timeout()
}

// ResponseError is a reply that is no result, kept for inspection.
type ResponseError struct {
	StatusCode int
	Header     http.Header
	// Body holds at most the response bound.
	Body []byte
}

// Error names the status.
func (e *ResponseError) Error() string {
	return strings.TrimSpace(fmt.Sprintf("the server answered %d %s", e.StatusCode, http.StatusText(e.StatusCode)))
}

// PanicError is a panic in a function that idem called, as an error for every
// caller who waited for it.
type PanicError struct {
	// Value that was panicked with.
	Value any
	// Stack of the goroutine that panicked.
	Stack []byte
}

// Error shows the value and the stack.
func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v\n\n%s", e.Value, e.Stack) }

// Unwrap returns the value if it was an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// marked is an error whose maker says what it proves.
type marked struct {
	outcome Outcome
	err     error
}

func (m *marked) Error() string { return m.err.Error() }
func (m *marked) Unwrap() error { return m.err }

// NotExecuted marks err: the function that returns it did not execute the
// intent, and another attempt can help. A nil err is replaced by
// ErrNotExecuted, never by success.
func NotExecuted(err error) error { return mark(OutcomeNotExecuted, err, ErrNotExecuted) }

// Rejected marks err: the intent was definitely refused, and the same request
// would be refused again. It settles no intent of which an earlier attempt is
// unknown, perhaps in a process that died: of that one the function knows
// nothing. A flow of several steps returns a refusal as its result instead. A
// nil err is replaced by ErrRejected.
func Rejected(err error) error { return mark(OutcomeRejected, err, ErrRejected) }

// Unknown marks err: the intent may have been executed; another attempt with
// the same key is safe and can help. A nil err is replaced by
// ErrOutcomeUnknown.
func Unknown(err error) error { return mark(OutcomeUnknown, err, ErrOutcomeUnknown) }

func mark(o Outcome, err, instead error) error {
	if err == nil {
		err = instead
	}
	return &marked{outcome: o, err: err}
}

// MarkedOutcome returns what NotExecuted, Rejected or Unknown said of err; the
// outermost mark counts. A mark inside an *Error tells of another call, which
// the one that returns err has made, and does not count.
func MarkedOutcome(err error) (Outcome, bool) {
	switch e := err.(type) {
	case *marked:
		return e.outcome, true
	case *Error:
		return OutcomeUnknown, false
	case interface{ Unwrap() error }:
		return MarkedOutcome(e.Unwrap())
	case interface{ Unwrap() []error }:
		for _, err := range e.Unwrap() {
			if o, ok := MarkedOutcome(err); ok {
				return o, true
			}
		}
	}
	return OutcomeUnknown, false
}

func badConfig(field, rule string) error { return fmt.Errorf("%w: %s %s", ErrConfig, field, rule) }
