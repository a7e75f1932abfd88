package idemtest

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
)

var (
	errHungUp  = errors.New("idemtest: the client has hung up")
	errNoStore = errors.New("idemtest: the store can't be reached")
	errPanic   = errors.New("idemtest: a panic on purpose")
)

// duplicates is how many attempts rule concurrent makes at once.
const duplicates = 16

// concurrent makes attempts at once: all of them meet when they have read their
// bodies, or the first one stays at another moment for the others to overtake
// it.
func (tr *trial) concurrent() {
	tr.t.Helper()
	for _, at := range []moment{afterBody, atEffect, atRecord, atAnswer} {
		var there atomic.Int32
		all := make(chan struct{})
		s := &snag{at: at, every: at == afterBody}
		s.do = func() error {
			if there.Add(1) == duplicates {
				close(all)
			}
			inTime(all, holdFor)
			return nil
		}
		tr.faults.arm(s)
		a := tr.ask()
		var calls []*call
		for range duplicates {
			calls = append(calls, tr.begin(a.req.Context(), a))
		}
		replies := tr.waitAll(calls)
		tr.faults.disarm()

		after := fmt.Sprintf("after %d duplicates at once", duplicates)
		if s.wasMet() && !s.every {
			after += ", of which one was slow " + string(at)
		}
		final := tr.settled(a)
		if tr.effects(a, 1, after, adviceRace) {
			tr.alike(replies, final, after)
		}
	}
}

// waitAll returns the replies of those that have answered.
func (tr *trial) waitAll(calls []*call) (replies []reply) {
	for _, c := range calls {
		r := tr.wait(c)
		if r.silent {
			break // the others would only say the same
		}
		replies = append(replies, r)
	}
	return replies
}

// alike reports an error if one of the replies is neither the answer nor a
// refusal for now.
func (tr *trial) alike(replies []reply, answer reply, after string) {
	tr.t.Helper()
	forgotten := tr.Unstored && answer.refused()
	if !answer.good() && !forgotten {
		tr.fail(fmt.Sprintf("%s, a retry was answered %v", after, answer), "the answer that was given first", adviceWaiting)
		return
	}
	bad, diff := 0, ""
	for _, r := range replies {
		d := answer.diff(r)
		switch {
		case d == "" || r.busy() || tr.Unstored && r.refused():
		case forgotten && r.good():
			answer, forgotten = r, false // the one that had the effect
		case tr.unlike && r.good() && len(r.body) > 0:
		default:
			bad, diff = bad+1, d
		}
	}
	if bad > 0 {
		tr.fail(fmt.Sprintf("%s, %d of %d answers were neither that of the retry nor a refusal for now: %s", after, bad, len(replies), diff),
			fmt.Sprintf("%v, or 409 with Retry-After", answer), adviceWaiting)
	}
}

// hangUp lets the client hang up at every moment. The handler goes on, and the
// retry comes when it is through.
func (tr *trial) hangUp() {
	tr.t.Helper()
	for _, at := range []moment{midBody, afterBody, atEffect, atRecord, atAnswer} {
		a := tr.ask()
		ctx, cancel := context.WithCancel(a.req.Context())
		s := &snag{at: at, every: at == atAnswer, do: func() error {
			cancel()
			if at == midBody || at == atAnswer {
				return errHungUp
			}
			return nil
		}}
		tr.faults.arm(s)
		first := tr.wait(tr.begin(ctx, a))
		tr.faults.disarm()
		cancel()
		if !first.silent && s.wasMet() {
			tr.recovered(a, "after the client had hung up "+string(at), adviceHangUp)
		}
	}
	for _, at := range []moment{afterBody, atEffect} {
		a := tr.ask()
		if tr.cut(a, at) {
			tr.recovered(a, "after the connection was cut "+string(at), adviceHangUp)
		}
	}
}

// recovered reports an error if a retry is not carried out, or answered as if
// it were the first.
func (tr *trial) recovered(a *ask, after, advice string) {
	tr.t.Helper()
	retry := tr.settled(a)
	switch {
	case !tr.effects(a, 1, after+", and a retry", advice):
	case tr.Unstored && retry.refused():
	case retry.busy():
		tr.fail(fmt.Sprintf("%s, every retry is answered %v: the key is stuck", after, retry), "2xx or 3xx", advice)
	case !retry.good():
		tr.fail(fmt.Sprintf("%s, the retry was answered %v", after, retry), "2xx or 3xx", advice)
	default:
		tr.equal(retry, tr.settled(a), after+", for the second retry", advice)
	}
}

// panics lets the handler panic. What happened before it may be unknown then,
// but what is said must be true.
func (tr *trial) panics() {
	tr.t.Helper()
	for _, at := range []moment{afterBody, atEffect, atAnswer} {
		a := tr.ask()
		s := &snag{at: at, do: func() error { panic(errPanic) }}
		tr.faults.arm(s)
		first := tr.wait(tr.begin(a.req.Context(), a))
		tr.faults.disarm()
		if first.silent || !s.wasMet() {
			continue
		}
		after := "after a panic " + string(at)
		retry := tr.settled(a)
		n := tr.Effects(a.n)
		if retry.busy() {
			tr.fail(fmt.Sprintf("%s, every retry is answered %v: the key is stuck", after, retry), "the answer, or a refusal that does not say to come again", adviceStuck)
		}
		if n == 0 && retry.status >= 500 {
			tr.fail(fmt.Sprintf("%s the handler is well again, but the retry was answered %v, and there was no effect", after, retry), "2xx or 3xx, and 1 effect", adviceStuck)
		}
		tr.atMostOne(a, retry, after, advicePanic)
	}
}

// atMostOne reports an error if there were two effects, or the retry's answer
// speaks of one that there wasn't.
func (tr *trial) atMostOne(a *ask, retry reply, after, advice string) {
	tr.t.Helper()
	n := tr.Effects(a.n)
	switch {
	case n > 1:
		tr.fail(fmt.Sprintf("%s, and a retry, the intent has had %s", after, effectCount(n)), "1 effect at most", advice)
	case n == 0 && retry.good():
		tr.fail(fmt.Sprintf("%s, the retry was answered %v, but there was no effect", after, retry), "1 effect, or a refusal", adviceLie)
	case retry.good():
		tr.equal(retry, tr.settled(a), after+", for the second retry", advice)
	}
}

// slow keeps the first attempt at a moment, lets its client give up, and
// retries meanwhile.
func (tr *trial) slow() {
	tr.t.Helper()
	for _, at := range []moment{afterBody, atEffect, atRecord, atAnswer} {
		a := tr.ask()
		ctx, cancel := context.WithCancel(a.req.Context())
		goOn := make(chan struct{})
		s := &snag{at: at, do: func() error {
			cancel()
			<-goOn
			return nil
		}}
		tr.faults.arm(s)
		first := tr.begin(ctx, a)
		if !tr.met(s, first) {
			tr.faults.disarm()
			close(goOn)
			cancel()
			continue
		}
		retry := tr.begin(a.req.Context(), a)
		inTime(retry.done, holdFor)
		close(goOn)
		replies := tr.waitAll([]*call{first, retry})
		tr.faults.disarm()
		cancel()
		after := "after a retry while the first attempt still stood " + string(at)
		final := tr.settled(a)
		if tr.effects(a, 1, after, adviceSlow) && len(replies) == 2 {
			tr.alike(replies[1:], final, after)
		}
	}
}

// met tells whether the call comes by the snag. If not, it has ended, or its
// silence is reported.
func (tr *trial) met(s *snag, c *call) bool {
	tr.t.Helper()
	either := make(chan struct{})
	over := make(chan struct{})
	defer close(over)
	go func() {
		defer close(either)
		select {
		case <-s.met:
		case <-c.done:
		case <-over:
		}
	}()
	if !inTime(either, tr.Patience) {
		tr.wait(c)
	}
	return s.wasMet()
}

// unrecorded takes the store away at the end of the first attempt, and gives it
// back during the retry.
func (tr *trial) unrecorded() {
	tr.t.Helper()
	a := tr.ask()
	s := &snag{at: atRecord, every: true, do: func() error { return errNoStore }}
	tr.faults.arm(s)
	first := tr.wait(tr.begin(a.req.Context(), a))
	retry := tr.begin(a.req.Context(), a)
	inTime(retry.done, holdFor)
	tr.faults.disarm()
	if second := tr.wait(retry); first.silent || second.silent || !s.wasMet() {
		return
	}
	after := "after the store failed when the answer was to be recorded"
	if first.good() && tr.Effects(a.n) == 0 {
		tr.fail(fmt.Sprintf("%s, the first caller was answered %v, but there was no effect", after, first), "1 effect, or a refusal", adviceLie)
	}
	again := tr.settled(a)
	tr.atMostOne(a, again, after, adviceUnrecorded)
	if first.good() && again.good() && tr.Effects(a.n) == 1 {
		tr.equal(first, again, after+", for a retry", adviceUnrecorded)
	}
}
