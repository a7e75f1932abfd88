package model

import "github.com/idem-go/idem/keystore"

// MaxOwners is how many owners a Model has at most, recoverers included.
const MaxOwners = 4

// State is everything at one moment. It is comparable, and has no padding, so
// that it can be a map's key.
type State struct {
	Record Record
	Owners [MaxOwners]Owner
	World  World
}

// Record is the record in the store. The zero Record is none. Nonces are the
// numbers of owners, from 1.
type Record struct {
	State    keystore.State
	Nonce    uint8
	Token    uint8
	Begun    bool
	Alive    bool // the lease of a running record
	Released keystore.How
	// Generation rises with every Reject.
	Generation uint8
	// Result is the nonce of who completed it.
	Result uint8
}

// Unresolved is keystore.Record.Unresolved.
func (r Record) Unresolved() bool { return r.State == keystore.Running && r.Begun && !r.Alive }

// Owner is one operation: one claim with one nonce, and what it does with it.
type Owner struct {
	At Place
	// Token is the one that it was told, 0 before that.
	Token uint8
	// Sent has the calls that are on their way to the store, or copies of them.
	Sent calls
	// Flying: its effect is under way and may land, whatever becomes of it.
	Flying bool
	// Answer is what the world has told a recoverer.
	Answer answer
}

// World is what has happened outside the record.
type World struct {
	// Effects that landed, without those in Late; counted up to 2.
	Effects uint8
	// Late are the effects that landed after their owner was replaced and the
	// world was then asked, and had said no; counted up to 2.
	Late uint8
	// Asked has the owners whose effects are late from now on.
	Asked owners
	// Freed has the owners that have freed the record.
	Freed owners
}

// happened is what the world says when it is asked.
func (w World) happened() bool { return w.Effects+w.Late > 0 }

// owners is a set of them.
type owners uint8

func (s owners) has(i int) bool    { return s&(1<<i) != 0 }
func (s owners) with(i int) owners { return s | 1<<i }

type answer uint8

const (
	yes answer = iota + 1
	no
)

// Place is where an owner is in its program.
type Place uint8

// The places, in the order in which an operation may come to them. At those
// that end in -ing it waits.
const (
	Idle Place = iota
	Claiming
	Undoing   // claims again, to take back a claim of unknown fate
	Holding   // the claim was granted
	Beginning // writes that the effect begins
	Begun
	Working // the effect is under way
	Worked  // the effect has landed, and the owner was told
	Asked   // a recoverer knows what the world says
	Completing
	Forgetting
	Rejecting
	Abandoning
	Ended // finished, gave up or crashed
)

// awaits is the call whose answer an owner waits for.
func (p Place) awaits() (Call, bool) {
	switch p {
	case Claiming, Undoing:
		return Claim, true
	case Beginning:
		return Begin, true
	case Completing:
		return Complete, true
	case Forgetting:
		return Forget, true
	case Rejecting:
		return Reject, true
	case Abandoning:
		return Abandon, true
	}
	return 0, false
}

// renews tells whether the lease is renewed in the background.
func (p Place) renews() bool { return p >= Holding && p <= Asked }

// normal is s with its tokens replaced by their ranks, and without what nobody
// can look at any more. Only the order of tokens means something, and without
// this there would be no end of states.
func (s State) normal() State {
	var used owners
	for i := range s.Owners {
		o := &s.Owners[i]
		if o.At == Ended {
			o.Answer = 0
			if o.Sent&^(1<<Claim) == 0 {
				o.Token = 0
			}
		}
		used = used.with(int(o.Token))
	}
	used = used.with(int(s.Record.Token)).with(0)
	var rank [8]uint8
	next := uint8(0)
	for token := range rank {
		if used.has(token) {
			rank[token] = next
			next++
		}
	}
	for i := range s.Owners {
		s.Owners[i].Token = rank[s.Owners[i].Token]
	}
	s.Record.Token = rank[s.Record.Token]
	return s
}
