package idem

import (
	"net/http"
	"time"
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
