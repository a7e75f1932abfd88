package idem

import "strconv"

// Outcome is what is known about the execution of an intent. The zero Outcome
// is OutcomeUnknown: where nothing was established, nothing is claimed.
type Outcome uint8

const (
	// OutcomeUnknown: it may or may not have been executed. Only the same key
	// with the same payload may be sent again.
	OutcomeUnknown Outcome = iota
	// OutcomeExecuted: a final reply was read to its last byte.
	OutcomeExecuted
	// OutcomeNotExecuted: it is proven that it never reached the handler, or
	// was refused by it before any work. Trying again later can help.
	OutcomeNotExecuted
	// OutcomeRejected: definitely not done, and the same request would fail
	// again.
	OutcomeRejected
	// OutcomeInFlight: another attempt under this key is still running.
	OutcomeInFlight
)

// String returns the outcome's name.
func (o Outcome) String() string {
	names := [...]string{"unknown", "executed", "not-executed", "rejected", "in-flight"}
	if int(o) < len(names) {
		return names[o]
	}
	return "Outcome(" + strconv.Itoa(int(o)) + ")"
}

// Source is how a result was obtained. The zero Source means that there is
// none.
type Source uint8

const (
	// SourceExecuted: this call did it.
	SourceExecuted Source = iota + 1
	// SourceJoined: merged into another call of this process.
	SourceJoined
	// SourceReplayed: from a record, here or at the server.
	SourceReplayed
)

// String returns the source's name.
func (s Source) String() string {
	names := [...]string{"none", "executed", "joined", "replayed"}
	if int(s) < len(names) {
		return names[s]
	}
	return "Source(" + strconv.Itoa(int(s)) + ")"
}
