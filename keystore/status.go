package keystore

import "strconv"

// Status is what a Claim decided. The zero Status is none of them.
type Status uint8

const (
	// Acquired: the caller owns the record and may execute.
	Acquired Status = iota + 1
	// InFlight: another owner's lease is alive.
	InFlight
	// Completed: the record is done; its Result is the answer.
	Completed
	// Mismatch: the record exists with another fingerprint.
	Mismatch
	// Unresolved: a begun record whose owner is gone; nobody knows.
	Unresolved
)

// String returns the status' name.
func (s Status) String() string {
	return name(uint8(s), "Status", "acquired", "in-flight", "completed", "mismatch", "unresolved")
}

// State is what a record is. The zero State is none of them.
type State uint8

const (
	// Free: released; the next claim acquires it.
	Free State = iota + 1
	// Running: claimed. Whether the owner is alive, its lease tells.
	Running
	// Done: settled with a result.
	Done
)

// String returns the state's name.
func (s State) String() string { return name(uint8(s), "State", "free", "running", "done") }

// How is the way in which a claim is released. The zero How is refused.
type How uint8

const (
	// Forget frees the record: the effect did not happen, the same intent may
	// be tried again. Generation and Meta stay.
	Forget How = iota + 1
	// Reject frees the record and raises its generation: the intent was
	// definitely refused, the next try is a new operation.
	Reject
	// Abandon ends the lease now and leaves the record running: the owner
	// stops without knowing whether the effect happened. The owner may still
	// complete it as long as nobody took it over.
	Abandon
)

// String returns the name of the release.
func (h How) String() string { return name(uint8(h), "How", "forget", "reject", "abandon") }

func name(v uint8, kind string, names ...string) string {
	if v == 0 || int(v) > len(names) {
		return kind + "(" + strconv.Itoa(int(v)) + ")"
	}
	return names[v-1]
}
