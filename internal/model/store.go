package model

import "github.com/idem-go/idem/keystore"

// Call is a call to the store.
type Call uint8

// The calls. A recoverer's Claim has Takeover set.
const (
	Claim Call = iota
	Begin      // Renew with Begun
	Beat       // Renew
	Complete
	Forget
	Reject
	Abandon
	lastCall = Abandon
)

// calls is a set of them.
type calls uint8

func (s calls) has(c Call) bool      { return s&(1<<c) != 0 }
func (s calls) with(c Call) calls    { return s | 1<<c }
func (s calls) without(c Call) calls { return s &^ (1 << c) }

// Reply is the store's answer.
type Reply struct {
	// Fenced is keystore.ErrFenced. A call that is not a Claim has succeeded
	// otherwise.
	Fenced bool
	Status keystore.Status // of a Claim
	Token  uint8           // of a Claim that was granted
}

// sender is what a call says of who sent it.
type sender struct {
	nonce, token    uint8
	begun, takeover bool
}

func (r Record) ownedBy(by sender) bool {
	return r.State != 0 && r.Nonce == by.nonce && r.Token == by.token
}

// apply is the store: the contract of keystore.Store for one record, less the
// rule that is broken.
func (m Model) apply(r Record, c Call, by sender) (Record, Reply) {
	if c == Claim {
		return m.claim(r, by)
	}
	fenced := !r.ownedBy(by)
	switch {
	case !fenced, r.State == 0:
	case m.Broken == RenewIsFenced && (c == Begin || c == Beat) && r.State == keystore.Running,
		m.Broken == CompleteIsFenced && c == Complete && r.State == keystore.Running,
		m.Broken == DoneIsFinal && c == Complete && r.State == keystore.Done,
		m.Broken == ReleaseIsFenced && c >= Forget && r.State == keystore.Running:
		fenced = false
	}
	if fenced {
		return r, Reply{Fenced: true}
	}
	switch c {
	case Begin, Beat:
		return renew(r, c)
	case Complete:
		return m.complete(r, by)
	}
	return m.release(r, c)
}

// claim is the table of keystore.Store's Claim, less fingerprints.
func (m Model) claim(r Record, by sender) (Record, Reply) {
	mine := r.Nonce == by.nonce
	switch {
	case r.State == keystore.Free && mine && m.Broken != CopyIsFenced:
		return r, Reply{Fenced: true}
	case r.State == 0 || r.State == keystore.Free:
	case r.State == keystore.Done:
		return r, Reply{Status: keystore.Completed}
	case mine:
	case r.Alive && !(by.takeover && m.Broken == LiveLeaseStands):
		return r, Reply{Status: keystore.InFlight}
	case r.Begun && !by.takeover && m.Broken != BegunNeedsTakeover:
		return r, Reply{Status: keystore.Unresolved}
	}
	if r.State != keystore.Running || !mine {
		keep := r.State == keystore.Running && m.Broken == TokenRises
		if !keep {
			r.Token++
		}
		r.Nonce = by.nonce
	}
	r.State, r.Released = keystore.Running, 0
	r.Begun, r.Alive = r.Begun || by.begun, true
	return r, Reply{Status: keystore.Acquired, Token: r.Token}
}

func renew(r Record, c Call) (Record, Reply) {
	if r.State != keystore.Running {
		return r, Reply{Fenced: true}
	}
	r.Alive = true
	r.Begun = r.Begun || c == Begin
	return r, Reply{}
}

func (m Model) complete(r Record, by sender) (Record, Reply) {
	switch {
	case r.State == keystore.Done && m.Broken != DoneIsFinal:
		return r, Reply{} // a repeat
	case r.State == keystore.Free:
		return r, Reply{Fenced: true}
	}
	r.State, r.Alive, r.Result = keystore.Done, false, by.nonce
	return r, Reply{}
}

func (m Model) release(r Record, c Call) (Record, Reply) {
	how := c.how()
	switch {
	case r.State == keystore.Free && r.Released == how:
		return r, Reply{} // a repeat
	case r.State != keystore.Running:
		return r, Reply{Fenced: true}
	}
	r.Alive = false
	if how == keystore.Abandon && m.Broken != AbandonLeaves {
		return r, Reply{}
	}
	r.State, r.Released, r.Begun = keystore.Free, how, false
	if how == keystore.Reject {
		r.Generation++
	}
	return r, Reply{}
}

// how is the way in which a release releases.
func (c Call) how() keystore.How {
	switch c {
	case Forget:
		return keystore.Forget
	case Reject:
		return keystore.Reject
	}
	return keystore.Abandon
}

// purgeable tells whether Purge may remove the record once its time is over.
// That of a Done one is its retention, which is a step of its own.
func (m Model) purgeable(r Record) bool {
	switch r.State {
	case keystore.Free:
		return true
	case keystore.Running:
		return !r.Alive && (!r.Begun || m.Broken == PurgeKeepsUnresolved)
	case keystore.Done:
		return m.Broken == PurgeKeepsDone
	}
	return false
}
