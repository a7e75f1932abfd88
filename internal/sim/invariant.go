package sim

import (
	"fmt"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/keystore"
)

// Invariant is what must hold whatever goes wrong.
type Invariant string

// The invariants.
const (
	// OneEffect: an intent has at most one effect, at any time.
	OneEffect Invariant = "OneEffect"
	// ExecutedIsTrue: who is told "executed" finds one effect in the ledger, and
	// has got the receipt of that one.
	ExecutedIsTrue Invariant = "ExecutedIsTrue"
	// ExecutedStays: whoever was told "executed" is not told later that it was not.
	ExecutedStays Invariant = "ExecutedStays"
	// RejectedIsTrue: where a caller was told "rejected" there is, and will be,
	// no effect under the key that was refused.
	RejectedIsTrue Invariant = "RejectedIsTrue"
	// NotExecutedIsTrue: of a call that was told "not executed", or refused
	// for its payload, no request has had, or will have, an effect.
	NotExecutedIsTrue Invariant = "NotExecutedIsTrue"
	// OwnAnswer: nobody gets the answer to another intent, scope or payload.
	OwnAnswer Invariant = "OwnAnswer"
	// UnknownEnds: once all is well, every unknown that is driven again ends as
	// executed or rejected.
	UnknownEnds Invariant = "UnknownEnds"
	// NothingRuns: in the end every record is settled or unresolved, and at the
	// server half, where Recover knows, settled.
	NothingRuns Invariant = "NothingRuns"
	// NoneLeft: no goroutine is left.
	NoneLeft Invariant = "NoneLeft"
)

// Violation tells of an invariant that was broken.
type Violation struct {
	Invariant Invariant
	What      string
}

func (v Violation) String() string { return string(v.Invariant) + ": " + v.What }

// violate notes that an invariant is broken. mu is held.
func (w *world) violate(inv Invariant, format string, args ...any) {
	v := Violation{inv, fmt.Sprintf(format, args...)}
	w.note("BROKEN", "%v", v)
	w.broken = append(w.broken, v)
}

// checkEffect checks an effect that has just landed; others are the intent's
// before it. mu is held.
func (w *world) checkEffect(e effect, others []effect) {
	for _, o := range others {
		w.violate(OneEffect, "%v has the effect %d under %s, and %d under %s", e.intent, o.number, w.keyName(o.key), e.number, w.keyName(e.key))
	}
	if w.voided[e.call] {
		w.violate(NotExecutedIsTrue, "%s was told that %v was not executed, and has effect %d", e.call, e.intent, e.number)
	}
	if where := (place{e.intent.Scope, e.key}); w.refused[where] {
		w.violate(RejectedIsTrue, "%v was rejected under %s, and has effect %d under it", e.intent, w.keyName(e.key), e.number)
	}
}

// place is a key within its scope.
type place struct {
	scope string
	key   idem.Key
}

// told is what one call was told.
type told struct {
	call    string
	intent  intent
	amount  int
	outcome idem.Outcome
	key     idem.Key
	// mismatch: refused since another payload has the intent.
	mismatch bool
	receipt  *receipt // nil: there is none, though it was executed
	err      error
}

// final tells whether there is no more to be told.
func (t told) final() bool {
	return t.outcome == idem.OutcomeExecuted || t.outcome == idem.OutcomeRejected || t.mismatch
}

// judge holds what a caller is told against the ledger.
func (w *world) judge(who string, t told) {
	w.mu.Lock()
	defer w.mu.Unlock()
	why := ""
	if t.err != nil {
		why = comment + t.err.Error()
	}
	w.note(who, "%s is told %v of %v under %s%s", t.call, t.outcome, t.intent, w.keyName(t.key), why)
	w.outcomes[t.outcome]++
	effects := w.ledger.of(t.intent)
	switch {
	case t.outcome == idem.OutcomeExecuted:
		if len(effects) != 1 {
			w.violate(ExecutedIsTrue, "%s was told that %v was executed, which has %d effects", t.call, t.intent, len(effects))
			return
		}
		if e := effects[0]; t.receipt != nil && *t.receipt != e.receipt() {
			w.violate(ExecutedIsTrue, "%s got the receipt %+v of %v, whose effect is %+v", t.call, *t.receipt, t.intent, e.receipt())
		}
		if r := t.receipt; r != nil && (r.Scope != t.intent.Scope || r.ID != t.intent.ID || r.Amount != t.amount) {
			w.violate(OwnAnswer, "%s, for %v, %d, got %+v", t.call, t.intent, t.amount, *r)
		}
	case t.outcome == idem.OutcomeRejected && !t.mismatch:
		w.refused[place{t.intent.Scope, t.key}] = true
		for _, e := range effects {
			if e.key == t.key {
				w.violate(RejectedIsTrue, "%s was told that %v was rejected, which has effect %d under the same key", t.call, t.intent, e.number)
			}
		}
	case t.outcome == idem.OutcomeRejected, t.outcome == idem.OutcomeNotExecuted:
		w.void(t, effects)
	}
}

// void notes that a call had no effect and will have none. mu is held.
func (w *world) void(t told, effects []effect) {
	w.voided[t.call] = true
	for _, e := range effects {
		if e.call == t.call {
			w.violate(NotExecutedIsTrue, "%s was told that %v was %v, and had effect %d", t.call, t.intent, t.outcome, e.number)
		}
	}
}

// checkRecords looks at every record once nothing runs any more.
func (w *world) checkRecords() {
	for name, store := range w.stores {
		recs, err := store.Records(w.ctx, keystore.Query{Limit: 1 << 20})
		w.mu.Lock()
		if err != nil {
			w.violate(NothingRuns, "%s can't be read: %v", name, err)
		}
		for _, r := range recs {
			_, servers := w.serverRecord[r.ID]
			switch {
			case r.State == keystore.Running && r.LeaseLeft > 0:
				w.violate(NothingRuns, "%s: %s is running", name, w.name(r.ID))
			case r.Unresolved() && servers:
				w.violate(NothingRuns, "%s: %s is unresolved", name, w.name(r.ID))
			}
		}
		w.mu.Unlock()
	}
}
