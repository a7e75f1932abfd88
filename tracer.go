package idem

import (
	"context"
	"net/http"
)

// Tracer is an Observer that follows operations while they run. An Observer
// that is one is called as such by both halves, under the same guard: a panic
// is swallowed, and what has not returned after a second is left behind, as if
// it had not been called. Package observe/otelobs has one.
//
// Each Start is followed by one Observe with the context that Start returned,
// and each StartAttempt by one EndAttempt. An operation of the client half
// makes any number of attempts, one of the server half at most one. A request
// that a decorated function sends through Client.Transport is an attempt within
// the function's attempt, without an operation of its own.
type Tracer interface {
	Observer
	// Start is told of an operation that begins: its Half and Started, and its
	// Scope where that is known already. r is its request, nil if it is a
	// function; a change to it has no effect. The operation goes on with the
	// context returned, which must come from ctx. The text returned is handed,
	// as Event.Origin, to the operations that join this one or replay its
	// result, so it is kept with that; over 128 bytes it counts as empty.
	Start(ctx context.Context, e Event, r *http.Request) (context.Context, string)
	// StartAttempt is told of an attempt that begins: its Number and Wait. The
	// attempt goes on with the context returned. r is the request that is
	// about to be sent, nil on the server half and for a function. Headers
	// that are set in it are sent, and signed; they are no part of the
	// fingerprint. Other changes have no effect.
	StartAttempt(ctx context.Context, a Attempt, r *http.Request) context.Context
	// EndAttempt is told of the end, with the context that StartAttempt
	// returned.
	EndAttempt(ctx context.Context, a Attempt)
}
