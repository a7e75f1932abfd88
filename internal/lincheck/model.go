package lincheck

import (
	"fmt"

	"github.com/anishathalye/porcupine"

	"github.com/idem-go/idem/keystore"
)

// state is one record. The zero state is none.
type state struct {
	is          keystore.State
	fingerprint [32]byte
	nonce       [16]byte
	// token is the latest owner's. It is 0 where nobody was told of it; it is
	// then above floor, the one before.
	token, floor uint64
	generation   uint32
	begun, alive bool
	released     keystore.How
	meta, result string
}

// model is the contract for one record.
var model = porcupine.Model{
	Init: func() any { return state{} },
	Step: func(s, in, out any) (bool, any) {
		ok, next := step(s.(state), in.(input), out.(output))
		return ok, next
	},
	DescribeOperation: func(in, out any) string { return describe(in, out) },
}

// step tells whether the answer is right for a record in state s, and returns
// what becomes of it. An unknown answer is right, and the call was applied: one
// that was not is one that would be applied after all others.
func step(s state, in input, out output) (bool, state) {
	switch in.op {
	case "claim":
		return claim(s, in.claim, out)
	case "read":
		return read(s, out)
	}
	ok, next := settle(s, in)
	return out.unknown() || ok == (out.err == nil), next
}

func claim(s state, p keystore.ClaimParams, out output) (bool, state) {
	status, next := keystore.Acquired, s
	switch {
	case s.is == keystore.Free && s.nonce == p.Nonce:
		return out.err != nil, s // fenced
	case s.is == 0 || s.is == keystore.Free:
		next = state{is: keystore.Running, fingerprint: p.Fingerprint, floor: max(s.token, s.floor), generation: s.generation, meta: s.meta}
	case s.fingerprint != p.Fingerprint:
		status = keystore.Mismatch
	case s.is == keystore.Done:
		status = keystore.Completed
	case s.nonce == p.Nonce:
		// Its own earlier claim.
	case s.alive:
		status = keystore.InFlight
	case s.begun && !p.Takeover:
		status = keystore.Unresolved
	default:
		next.token, next.floor = 0, max(s.token, s.floor)
	}
	if status == keystore.Acquired {
		next.nonce, next.alive, next.begun = p.Nonce, true, next.begun || p.Begun
		if next.meta == "" {
			next.meta = string(p.Meta)
		}
	}
	if out.unknown() {
		return true, next
	}
	if out.err != nil || out.claim.Status != status {
		return false, s
	}
	owner := keystore.Owner{}
	if status == keystore.Acquired {
		owner = keystore.Owner{ID: p.ID, Nonce: p.Nonce, Token: out.claim.Record.Token}
	}
	seen := next
	if status != keystore.Completed {
		seen.result = ""
	}
	return out.claim.Owner == owner && seen.shows(out.claim.Record), next.told(out.claim.Record)
}

func read(s state, out output) (bool, state) {
	switch {
	case out.unknown():
		return true, s
	case len(out.records) == 0:
		return s.is == 0, s
	}
	return len(out.records) == 1 && s.shows(out.records[0]), s.told(out.records[0])
}

// settle returns what the call of an owner makes of the record; false means
// fenced.
func settle(s state, in input) (bool, state) {
	next := s
	running := s.is == keystore.Running
	if s.is == 0 || s.nonce != in.owner.Nonce || s.token != in.owner.Token {
		return false, s
	}
	switch in.op {
	case "renew":
		next.alive, next.begun = true, s.begun || in.renew.Begun
		if in.renew.Meta != nil {
			next.meta = string(in.renew.Meta)
		}
	case "complete":
		if s.is == keystore.Done {
			return true, s
		}
		next.is, next.result = keystore.Done, string(in.complete.Result)
	case "release":
		how := in.release.How
		if s.is == keystore.Free && s.released == how {
			return true, s
		}
		next.alive = false
		if how != keystore.Abandon {
			next.is, next.released, next.begun = keystore.Free, how, false
		}
		if how == keystore.Reject {
			next.generation++
			next.meta = ""
		}
		if in.release.Meta != nil {
			next.meta = string(in.release.Meta)
		}
	}
	if !running {
		return false, s
	}
	return true, next
}

// shows tells whether the state looks like r.
func (s state) shows(r keystore.Record) bool {
	return s.is == r.State && s.fingerprint == r.Fingerprint && s.generation == r.Generation &&
		s.begun == r.Begun && (s.is == keystore.Running && s.alive) == (r.LeaseLeft > 0) &&
		s.meta == string(r.Meta) && s.result == string(r.Result) &&
		(s.token == r.Token || s.token == 0 && r.Token > s.floor)
}

// told returns the state with its token, which r tells.
func (s state) told(r keystore.Record) state {
	s.token = r.Token
	return s
}

func describe(in, out any) string {
	i, o := in.(input), out.(output)
	var asked, answer string
	switch i.op {
	case "claim":
		asked = fmt.Sprintf("nonce %x fingerprint %x begun %t takeover %t meta %q",
			i.claim.Nonce[:2], i.claim.Fingerprint[:2], i.claim.Begun, i.claim.Takeover, i.claim.Meta)
		answer = fmt.Sprintf("%v %s", o.claim.Status, describeRecord(o.claim.Record))
	case "read":
		answer = "nothing"
		if len(o.records) > 0 {
			answer = describeRecord(o.records[0])
		}
	case "renew":
		asked = fmt.Sprintf("begun %t meta %q", i.renew.Begun, i.renew.Meta)
	case "complete":
		asked = fmt.Sprintf("result %q", i.complete.Result)
	case "release":
		asked = fmt.Sprintf("%v meta %q", i.release.How, i.release.Meta)
	}
	if i.owner != (keystore.Owner{}) {
		asked += fmt.Sprintf(" by %x/%d", i.owner.Nonce[:2], i.owner.Token)
		answer = "done"
	}
	if o.err != nil {
		answer = o.err.Error()
	}
	return fmt.Sprintf("%s %s → %s", i.op, asked, answer)
}

func describeRecord(r keystore.Record) string {
	return fmt.Sprintf("[%v fingerprint %x token %d generation %d begun %t alive %t meta %q result %q]",
		r.State, r.Fingerprint[:2], r.Token, r.Generation, r.Begun, r.LeaseLeft > 0, r.Meta, r.Result)
}
