package model

import "github.com/idem-go/idem/keystore"

// Mode is how the owners treat a failure; see server.Effects.
type Mode uint8

// The modes of server.Effects that need no transaction.
const (
	Opaque Mode = iota + 1
	Marked
	Idempotent
)

// Model says what is explored.
type Model struct {
	Mode Mode
	// Executors are operations that want the effect, Recoverers such that
	// settle an unresolved record by a take-over. Both together are at most
	// MaxOwners.
	Executors, Recoverers int
	// Delayed is how many calls may be on their way at the same time. It must
	// be at least 1.
	Delayed int
	// Broken is the rule that is broken.
	Broken Rule
}

func (m Model) owners() int         { return m.Executors + m.Recoverers }
func (m Model) recovers(i int) bool { return i >= m.Executors }

// ownerMoves are the steps that owner i can make by itself. A paused owner is
// one whose next step comes late, so a pause needs no step of its own.
func (m Model) ownerMoves(ms []move, s State, i int) []move {
	o := s.Owners[i]
	send := func(c Call, to Place) {
		if o.Sent.has(c) && to == o.At || !o.Sent.has(c) && s.underWay() >= m.Delayed {
			return
		}
		next := s
		next.Owners[i].At = to
		next.Owners[i].Sent = o.Sent.with(c)
		ms = append(ms, move{Step: Step{Kind: Sends, Owner: i, Call: c, To: to}, to: next})
	}
	moveTo := func(to Place, change func(*State)) {
		next := s
		next.Owners[i].At = to
		if change != nil {
			change(&next)
		}
		ms = append(ms, move{Step: Step{Kind: Moves, Owner: i, To: to}, to: next})
	}
	work := func() { moveTo(Working, func(to *State) { to.Owners[i].Flying = true }) }
	ask := func(to Place) { moveTo(to, func(next *State) { next.ask(i) }) }
	fail := func() {
		if m.Mode == Idempotent || m.Broken == FailureStays {
			send(Forget, Forgetting)
		} else {
			send(Abandon, Abandoning)
		}
	}

	// Whoever waits asks again, or gives up; it can't be told whether the call
	// was applied.
	if c, waits := o.At.awaits(); waits && m.Broken != WaitsEnd {
		send(c, o.At)
		switch {
		case o.At == Claiming && m.Mode == Opaque && !m.recovers(i):
			send(Claim, Undoing)
		case o.At == Beginning && m.Broken == BegunIsObeyed:
			moveTo(Begun, nil)
		case o.At == Beginning:
			send(Forget, Forgetting)
		default:
			moveTo(Ended, nil)
		}
	}
	if o.At.renews() {
		if !o.Sent.has(Beat) {
			send(Beat, o.At)
		}
	}
	switch o.At {
	case Idle:
		switch {
		case !m.mayStart(s, i):
		case m.recovers(i) && m.Broken == FenceThenAsk && o.Answer == 0:
			ask(Idle)
		default:
			send(Claim, Claiming)
		}
	case Holding:
		switch {
		case m.recovers(i) && m.Broken == FenceThenAsk:
			moveTo(Asked, nil)
		case m.recovers(i):
			ask(Asked)
			send(Abandon, Abandoning)
			if m.Broken == ForgetOnlyOnProof {
				send(Forget, Forgetting)
			}
			if m.Broken == RecoverByAsking {
				send(Complete, Completing)
			}
		case m.Mode == Marked && m.Broken != BegunIsWritten:
			send(Begin, Beginning)
			send(Forget, Forgetting)
		default:
			work()
			send(Forget, Forgetting) // the code says that nothing happened
			fail()
		}
	case Begun:
		work()
		send(Forget, Forgetting)
		fail()
	case Working:
		fail()
	case Worked:
		send(Complete, Completing)
		fail()
	case Asked:
		if o.Answer == yes {
			send(Complete, Completing)
		} else {
			send(Forget, Forgetting)
			send(Reject, Rejecting)
		}
	}
	if o.At != Idle && o.At != Ended {
		next := s
		next.Owners[i].At = Ended
		ms = append(ms, move{Step: Step{Kind: Crashes, Owner: i}, to: next})
	}
	return ms
}

// mayStart tells whether owner i may begin. Owners of one kind are alike, so
// they begin in their order; recoverers begin when they read that the record is
// unresolved.
func (m Model) mayStart(s State, i int) bool {
	if m.recovers(i) {
		return s.Record.Unresolved() && (i == m.Executors || s.Owners[i-1].At != Idle)
	}
	return i == 0 || s.Owners[i-1].At != Idle
}

// ask tells owner i whether the effect has happened. After a no, what a replaced
// owner still does is late.
func (s *State) ask(i int) {
	s.Owners[i].Answer = yes
	if s.World.happened() {
		return
	}
	s.Owners[i].Answer = no
	for j, o := range s.Owners {
		owns := s.Record.State != 0 && int(s.Record.Nonce) == j+1 && (o.At == Ended || o.Token == s.Record.Token)
		if j != i && !owns && (o.Token != 0 || o.Flying) {
			s.World.Asked = s.World.Asked.with(j)
		}
	}
}

// told is owner i after the answer to the call that it waited for.
func (m Model) told(o Owner, i int, c Call, r Reply) Owner {
	then := func(at Place, c Call) Owner {
		o.At, o.Sent = at, o.Sent.with(c)
		return o
	}
	switch {
	case c == Claim && r.Status == keystore.Acquired:
		o.Token = r.Token
		if o.At == Undoing {
			return then(Forgetting, Forget)
		}
		o.At = Holding
	case c == Claim && r.Status == keystore.InFlight && o.At == Claiming:
		// It claims again, or gives up.
	case c == Begin && (!r.Fenced || m.Broken == BegunIsObeyed):
		o.At = Begun
	case c == Begin:
		return then(Forgetting, Forget)
	default:
		o.At = Ended
	}
	return o
}
