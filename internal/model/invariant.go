package model

import "github.com/idem-go/idem/keystore"

// Invariant is what must hold of every step.
type Invariant uint8

// The invariants.
const (
	// OneEffect: an intent has at most one effect, not counting those of
	// replaced owners that land after a recoverer has asked the world.
	// Idempotent has no such promise.
	OneEffect Invariant = iota
	// DoneStays: a done record does not change until its retention is over.
	DoneStays
	// UnresolvedStays: an unresolved record changes by the calls of its owner
	// and by a take-over only, and an Abandon does not free it.
	UnresolvedStays
	// TokensRise: a token never falls, and a new owner has a higher one.
	TokensRise
	// OnlyOwner: a call of somebody who does not own the record is fenced and
	// changes nothing.
	OnlyOwner
	// LiveLease: nobody gets a record whose lease is alive.
	LiveLease
	// ReleasedStays: a record is not granted to the claim that freed it.
	ReleasedStays
	// Truth: a record becomes done only when the effect has happened.
	Truth
	// NobodyHangs: where no step is left but a crash, every owner has ended, and
	// the record is absent, free, done, unresolved, or claimable.
	NobodyHangs
	lastInvariant = NobodyHangs
)

// String returns the invariant's name.
func (i Invariant) String() string {
	names := [...]string{"OneEffect", "DoneStays", "UnresolvedStays", "TokensRise", "OnlyOwner",
		"LiveLease", "ReleasedStays", "Truth", "NobodyHangs"}
	if int(i) >= len(names) {
		return "unknown invariant"
	}
	return names[i]
}

// breaks tells whether the step from s breaks the invariant.
func (m Model) breaks(inv Invariant, s State, mv move) bool {
	was, is := s.Record, mv.to.Record
	arrives := mv.Kind.arrives()
	claims := arrives && mv.Call == Claim
	switch inv {
	case OneEffect:
		return m.Mode != Idempotent && mv.to.World.Effects > 1
	case DoneStays:
		return was.State == keystore.Done && is != was && mv.Kind != RetentionEnds
	case UnresolvedStays:
		if !was.Unresolved() || is == was {
			return false
		}
		if claims {
			return is.Nonce != was.Nonce && !mv.by.takeover
		}
		return !arrives || mv.Call == Abandon
	case TokensRise:
		granted := is.State == keystore.Running && (was.State == keystore.Free || is.Nonce != was.Nonce)
		return was.State != 0 && is.State != 0 && (is.Token < was.Token || granted && is.Token == was.Token)
	case OnlyOwner:
		return arrives && !claims && !was.ownedBy(mv.by) && (is != was || !mv.reply.Fenced)
	case LiveLease:
		return claims && was.Alive && is.Nonce != was.Nonce
	case ReleasedStays:
		return claims && was.State == keystore.Free && was.Nonce == mv.by.nonce && is.State == keystore.Running
	case Truth:
		return is.State == keystore.Done && was.State != keystore.Done && !mv.to.World.happened()
	}
	return false
}

// hangs tells whether the state breaks NobodyHangs; ms are the steps from it.
func (m Model) hangs(s State, ms []move) bool {
	for _, mv := range ms {
		if mv.Kind != Crashes {
			return false
		}
	}
	for i := range m.owners() {
		if at := s.Owners[i].At; at != Ended && !(at == Idle && m.recovers(i)) {
			return true
		}
	}
	return s.Record.Alive
}
