package model

import (
	"fmt"
	"strings"

	"github.com/idem-go/idem/keystore"
)

// String tells the trace in words, a line for each step, with what the record
// is after it where it has changed.
func (t Trace) String() string {
	var b strings.Builder
	s := State{}
	for n, st := range t.Steps {
		mv, ok := t.Model.move(s, st)
		if !ok {
			fmt.Fprintf(&b, "%2d. a step that can't be made: %+v\n", n+1, st)
			break
		}
		fmt.Fprintf(&b, "%2d. %s", n+1, t.Model.words(s, mv))
		if mv.to.Record != s.Record {
			fmt.Fprintf(&b, " [%s]", mv.to.Record.words(t.Model))
		}
		b.WriteByte('\n')
		s = mv.to.normal()
	}
	return b.String()
}

// move is the step from s.
func (m Model) move(s State, st Step) (move, bool) {
	for _, mv := range m.moves(s) {
		if mv.Step == st {
			return mv, true
		}
	}
	return move{}, false
}

func (m Model) name(i int) string {
	if m.recovers(i) {
		return fmt.Sprintf("recoverer %d", i-m.Executors+1)
	}
	return fmt.Sprintf("owner %c", 'A'+i)
}

func (m Model) words(s State, mv move) string {
	who := m.name(mv.Owner)
	switch mv.Kind {
	case Sends:
		switch {
		case mv.Call == Beat:
			return who + " renews in the background"
		case mv.To == s.Owners[mv.Owner].At:
			return who + " sends its " + mv.Call.String() + " again"
		case mv.To == Undoing:
			return who + " gives up, and claims again to take the claim back"
		}
		return who + " sends " + mv.Call.String()
	case Moves:
		switch mv.To {
		case Working:
			return who + " starts its effect"
		case Idle, Asked:
			if s.Owners[mv.Owner].Answer != 0 {
				return who + " goes on with what it was told before"
			}
			if mv.to.Owners[mv.Owner].Answer == yes {
				return who + " asks the world: it happened"
			}
			return who + " asks the world: it has not happened"
		case Ended:
			return who + " gives up"
		}
		return who + " goes on without an answer"
	case Crashes:
		return who + " crashes"
	case Arrives, ArrivesTwice, AnswerLost:
		more := map[Kind]string{ArrivesTwice: ", and a copy stays on its way", AnswerLost: ", the answer is lost, and a copy stays on its way"}
		return fmt.Sprintf("%s's %v arrives: %s%s", who, mv.Call, mv.reply.words(mv.Call), more[mv.Kind])
	case CallLost:
		return fmt.Sprintf("%s's %v is lost", who, mv.Call)
	case Lands:
		return who + "'s effect lands"
	case EffectLost:
		return who + "'s effect never lands"
	case LeaseDies:
		return "the lease dies"
	case Purges:
		return "Purge removes the record"
	case RetentionEnds:
		return "the retention ends"
	}
	return "unknown step"
}

// String returns the call's name.
func (c Call) String() string {
	return [...]string{"Claim", "Renew begun", "Renew", "Complete", "Forget", "Reject", "Abandon"}[c]
}

func (r Reply) words(c Call) string {
	switch {
	case r.Fenced:
		return "fenced"
	case c == Claim:
		return r.Status.String()
	}
	return "done"
}

func (r Record) words(m Model) string {
	if r.State == 0 {
		return "no record"
	}
	w := fmt.Sprintf("%v, of %s", r.State, m.name(int(r.Nonce)-1))
	switch {
	case r.Unresolved():
		w += ", unresolved"
	case r.State == keystore.Running && !r.Alive:
		w += ", lease dead, not begun"
	case r.State == keystore.Running && r.Begun:
		w += ", begun"
	}
	return w
}

// String returns the mode's name, as server.Effects has it.
func (m Mode) String() string {
	return [...]string{"none", "opaque", "marked", "idempotent"}[min(int(m), 3)]
}
