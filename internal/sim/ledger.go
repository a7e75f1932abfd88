package sim

import (
	"slices"
	"time"

	"github.com/idem-go/idem"
)

// intent names what is to happen once, as the business does.
type intent struct{ Scope, ID string }

func (in intent) String() string { return in.Scope + "/" + in.ID }

// order is what is asked for.
type order struct {
	ID     string
	Amount int
}

// receipt is what is answered: whose order, and by which effect.
type receipt struct {
	Scope, ID      string
	Amount, Effect int
}

// effect is one line of the ledger.
type effect struct {
	number int
	intent intent
	amount int
	key    idem.Key // under which it was asked for
	by     string   // the process
	call   string   // the call whose request it was
	at     time.Duration
}

func (e effect) receipt() receipt { return receipt{e.intent.Scope, e.intent.ID, e.amount, e.number} }

// ledger is the world in which effects happen: lines are added, and none is
// ever changed.
type ledger struct{ effects []effect }

// of returns the effects of an intent.
func (l *ledger) of(in intent) []effect {
	return slices.DeleteFunc(slices.Clone(l.effects), func(e effect) bool { return e.intent != in })
}

// land has an effect. once is for effects that are idempotent themselves: under
// one key there is one.
func (w *world) land(e effect, once bool) effect {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := w.ledger.of(e.intent)
	if i := slices.IndexFunc(all, func(old effect) bool { return old.key == e.key }); once && i >= 0 {
		return all[i]
	}
	e.number, e.at = len(w.ledger.effects)+1, time.Since(w.start)
	w.ledger.effects = append(w.ledger.effects, e)
	w.note("ledger", "effect %d of %v, %d under %s, by %s for %s", e.number, e.intent, e.amount, w.keyName(e.key), e.by, e.call)
	w.checkEffect(e, all)
	return e
}

// ask looks an intent up.
func (w *world) ask(in intent) (effect, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := w.ledger.of(in)
	if len(all) == 0 {
		return effect{}, false
	}
	return all[0], true
}
