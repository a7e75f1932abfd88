package model

import (
	"math/bits"

	"github.com/idem-go/idem/keystore"
)

// Kind is the kind of a step.
type Kind uint8

// The kinds of steps.
const (
	Sends   Kind = iota + 1 // an owner sends Step.Call, for the first time or again
	Moves                   // an owner goes to Step.To without a call
	Crashes                 // an owner is gone; what it has sent is not

	Arrives       // a call is applied, and its sender told if it waits for it
	ArrivesTwice  // so is it, and a copy stays on its way
	AnswerLost    // a call is applied, its sender is not told, and a copy stays on its way
	CallLost      // a call never arrives
	Lands         // an effect lands
	EffectLost    // an effect never lands
	LeaseDies     // the lease runs out
	Purges        // Purge removes the record, its Keep being over
	RetentionEnds // the retention of a done record is over
)

// Step is one step of an owner, of a message, or of time.
type Step struct {
	Kind  Kind
	Owner int
	Call  Call
	To    Place
}

// move is a step and where it leads.
type move struct {
	Step
	to State
	// by and reply belong to a call that arrives.
	by    sender
	reply Reply
}

func (k Kind) arrives() bool { return k == Arrives || k == ArrivesTwice || k == AnswerLost }

// moves returns every step that can be made from s. The states they lead to
// are not normal yet.
func (m Model) moves(s State) []move {
	ms := make([]move, 0, 16)
	for i := range m.owners() {
		ms = m.ownerMoves(ms, s, i)
		for c := range lastCall + 1 {
			if s.Owners[i].Sent.has(c) {
				ms = m.arrivals(ms, s, i, c)
			}
		}
		if s.Owners[i].Flying {
			ms = append(ms, m.landing(s, i), effectLost(s, i))
		}
	}
	return m.timeMoves(ms, s)
}

// arrivals are what can become of a call that is on its way.
func (m Model) arrivals(ms []move, s State, i int, c Call) []move {
	o := s.Owners[i]
	by := sender{nonce: uint8(i + 1), token: o.Token}
	if c == Claim {
		by.takeover = m.recovers(i)
		by.begun = by.takeover || m.Mode == Opaque
	}
	rec, reply := m.apply(s.Record, c, by)
	arrive := func(kind Kind) {
		to := s
		to.Record = rec
		if rec.State == keystore.Free && s.Record.State != keystore.Free {
			to.World.Freed = to.World.Freed.with(i)
		}
		p := &to.Owners[i]
		p.Sent = p.Sent.without(c)
		if awaited, waits := o.At.awaits(); kind != AnswerLost && waits && awaited == c {
			*p = m.told(*p, i, c, reply)
		}
		if kind != Arrives {
			p.Sent = p.Sent.with(c)
		}
		ms = append(ms, move{Step: Step{Kind: kind, Owner: i, Call: c}, to: to, by: by, reply: reply})
	}
	arrive(Arrives)
	arrive(ArrivesTwice)
	if awaited, waits := o.At.awaits(); waits && awaited == c {
		arrive(AnswerLost)
	}
	lost := s
	lost.Owners[i].Sent = o.Sent.without(c)
	return append(ms, move{Step: Step{Kind: CallLost, Owner: i, Call: c}, to: lost})
}

// landing is what an effect does to the world.
func (m Model) landing(s State, i int) move {
	if s.World.Asked.has(i) {
		s.World.Late = min(s.World.Late+1, 2)
	} else {
		s.World.Effects = min(s.World.Effects+1, 2)
	}
	s.Owners[i].Flying = false
	if s.Owners[i].At == Working {
		s.Owners[i].At = Worked
	}
	return move{Step: Step{Kind: Lands, Owner: i}, to: s}
}

func effectLost(s State, i int) move {
	s.Owners[i].Flying = false
	return move{Step: Step{Kind: EffectLost, Owner: i}, to: s}
}

// timeMoves are what time does. Keep and the retention are longer than any
// message travels, and the retention is longer than any owner stalls.
func (m Model) timeMoves(ms []move, s State) []move {
	quiet, over := true, true
	for _, o := range s.Owners {
		quiet = quiet && o.Sent == 0
		over = over && o.Sent == 0 && !o.Flying && (o.At == Idle && o.Answer == 0 || o.At == Ended)
	}
	add := func(kind Kind, change func(*State)) {
		to := s
		change(&to)
		ms = append(ms, move{Step: Step{Kind: kind}, to: to})
	}
	if s.Record.Alive {
		add(LeaseDies, func(to *State) { to.Record.Alive = false })
	}
	if quiet && m.purgeable(s.Record) {
		add(Purges, func(to *State) { to.Record, to.World.Freed = Record{}, 0 })
	}
	if over && s.Record.State == keystore.Done {
		// From here on it is a new operation.
		add(RetentionEnds, func(to *State) { to.Record, to.World = Record{}, World{} })
	}
	return ms
}

// underWay counts the calls that are on their way.
func (s State) underWay() (n int) {
	for _, o := range s.Owners {
		n += bits.OnesCount8(uint8(o.Sent))
	}
	return n
}
