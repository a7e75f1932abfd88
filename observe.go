package idem

import (
	"context"
	"errors"
	"time"
)

// Observer is told of every operation, on either half, when it has ended: one
// Event each. Observe is called concurrently. The operation waits for it, so it
// should return soon; but watching an operation must never change it: a panic
// in it is swallowed, and after a second it is left behind. While 64 calls are
// left behind, events are dropped; Event.Lost counts them. See package observe
// for observers that are ready to use.
type Observer interface {
	Observe(ctx context.Context, e Event)
}

// The names of events.
const (
	EventExecuted   = "executed"    // done by this operation
	EventReplayed   = "replayed"    // answered from a record
	EventJoined     = "joined"      // merged into another call of the process
	EventInFlight   = "in-flight"   // gave up waiting for another owner
	EventMismatch   = "mismatch"    // refused: another payload under this key
	EventRefused    = "refused"     // refused before anything was claimed, or definitely rejected
	EventFailed     = "failed"      // not executed; the key is free for another try
	EventUnresolved = "unresolved"  // nobody knows whether it was executed
	EventRecovered  = "recovered"   // an unresolved record was settled
	EventRedirected = "redirected"  // a redirect, which http.Client follows or not
	EventFenced     = "fenced"      // the record had another owner when it was to be settled
	EventStoreError = "store-error" // the store failed at the claim; Outcome tells what that left open
)

// Event describes one operation that has ended.
type Event struct {
	// Name is one of the Event constants.
	Name string
	// Half is "client" or "server".
	Half string
	// Scope is the intent's scope as the application gave it.
	Scope string
	// KeyDigest is Key.Digest, the same on both halves; empty if no key was
	// made. The key itself is never in an event.
	KeyDigest string
	Outcome   Outcome
	Source    Source
	// Attempts lists what was tried; empty for joined and replayed ones.
	Attempts []Attempt
	// WireSends is how often a connection was used, see Report.
	WireSends int
	Started   time.Time
	Duration  time.Duration
	// Waited is how long the operation waited for another owner of its intent,
	// all in all.
	Waited time.Duration
	// Age is how old the record was that the operation was answered from: the
	// time since its key was claimed first, by the store's clock.
	Age time.Duration
	// Origin is what a Tracer has returned for the operation that executed, if
	// this one was joined or replayed.
	Origin string
	// Lost is how many events of this client or server before this one did not
	// reach the Observer in time, or made it panic.
	Lost int
	// Err is what the caller was told, nil for a result; for a result that was
	// had without the store, the store's error.
	Err error
}

// Attempt is one try within an operation.
type Attempt struct {
	// Number counts from 1. Waiting for another owner repeats a number.
	Number  int
	Outcome Outcome
	// Status is the HTTP status, 0 if there was no reply.
	Status int
	// Replayed tells that the reply said it came from a record.
	Replayed bool
	// Err is the attempt's error, nil if it has a reply.
	Err error
	// Wait is how long the operation waited before this attempt.
	Wait     time.Duration
	Duration time.Duration
}

// event is what the observer is told of an operation of the client half.
func (e ending) event(op *operation) Event {
	ev := Event{Name: e.eventName(), Half: "client", Scope: op.scope, Outcome: e.report.Outcome,
		Source: e.report.Source, Attempts: e.attempts, WireSends: e.report.WireSends,
		Started: op.started, Duration: time.Since(op.started), Waited: e.waited, Age: e.age, Origin: e.origin}
	if e.report.Key != "" {
		ev.KeyDigest = e.report.Key.Digest()
	}
	switch {
	case e.err != nil:
		ev.Err = e.err.clone() // the caller may do with its own what it likes
	case e.storeErr != nil:
		ev.Err = e.storeErr
	}
	return ev
}

// eventName is the name of the event of an operation that ended with e.
func (e ending) eventName() string {
	switch {
	case e.fenced:
		return EventFenced
	case e.storeErr != nil:
		return EventStoreError
	case e.recovered:
		return EventRecovered
	case e.err == nil && e.report.Source == SourceExecuted:
		return EventExecuted
	case e.err == nil && e.report.Source == SourceJoined:
		return EventJoined
	case e.report.Outcome == OutcomeExecuted:
		return EventReplayed
	case e.err == nil && (e.hop || e.redirect):
		return EventRedirected
	case e.err == nil:
		return EventUnresolved
	case errors.Is(e.err, ErrPayloadMismatch):
		return EventMismatch
	case errors.Is(e.err, ErrLeaseLost):
		return EventFenced
	case errors.Is(e.err, ErrStore):
		return EventStoreError
	case e.report.Outcome == OutcomeInFlight:
		return EventInFlight
	case e.report.Outcome == OutcomeRejected:
		return EventRefused
	case e.report.Outcome == OutcomeNotExecuted:
		return EventFailed
	}
	return EventUnresolved
}
