package server

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/idem-go/idem/keystore"
)

// turns lets one operation of this process at a time open a transaction for a
// record. The others wait in memory: were each of them to ask the database,
// the duplicates of one slow request would take its whole connection pool.
type turns struct {
	mu   sync.Mutex
	held map[[32]byte]*turn
}

// turn is the right to open a transaction for a record.
type turn struct {
	turns       *turns
	record      [32]byte
	fingerprint [32]byte
	since       time.Time
	claimed     bool // guarded by turns.mu
	ended       chan struct{}
}

// take returns a new turn, or nil if another operation has it.
func (ts *turns) take(op *operation) *turn {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if ts.held[op.record] != nil {
		return nil
	}
	if ts.held == nil {
		ts.held = map[[32]byte]*turn{}
	}
	t := &turn{turns: ts, record: op.record, fingerprint: op.fingerprint, since: time.Now(), ended: make(chan struct{})}
	ts.held[op.record] = t
	return t
}

// holder returns the turn that another operation has, if any, and whether it
// executes by now.
func (ts *turns) holder(op *operation) (t *turn, claimed bool) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	t = ts.held[op.record]
	return t, t != nil && t.claimed
}

// claim notes that the operation whose turn it is executes now.
func (t *turn) claim() {
	t.turns.mu.Lock()
	defer t.turns.mu.Unlock()
	t.claimed = true
}

func (t *turn) end() {
	t.turns.mu.Lock()
	defer t.turns.mu.Unlock()
	delete(t.turns.held, t.record)
	close(t.ended)
}

// takeTurn waits for the operation's turn. The turn is nil if the operation is
// answered without one: by g, or by an error. Otherwise g is another owner that
// was seen at work, if any.
func (op *operation) takeTurn(patience context.Context) (t *turn, seen granted, err error) {
	s := op.server
	for {
		other, claimed := s.turns.holder(op)
		switch {
		case other == nil:
			// Replays need no transaction.
			g, err := op.look(patience)
			switch {
			case err != nil:
				g, err = orSeen(seen, err)
				return nil, g, err
			case g.Status != 0:
				return nil, g, nil
			}
			if t := s.turns.take(op); t != nil {
				return t, seen, nil
			}
		case claimed && other.fingerprint != op.fingerprint:
			return nil, granted{Claim: keystore.Claim{Status: keystore.Mismatch}}, nil
		default:
			began := time.Now()
			err := wait(patience, other.ended)
			op.waited += time.Since(began)
			rec := keystore.Record{Age: time.Since(other.since), LeaseLeft: s.cfg.Lease}
			seen = granted{Claim: keystore.Claim{Status: keystore.InFlight, Record: rec}}
			if err != nil {
				return nil, seen, nil
			}
		}
	}
}

// orSeen is the answer to an operation that can't claim because of err. Where
// another owner was seen at work, nobody may say that nothing was executed.
func orSeen(seen granted, err error) (granted, error) {
	if seen.Status == 0 || errors.Is(err, keystore.ErrCorrupt) || errors.Is(err, keystore.ErrFormat) {
		return granted{}, err
	}
	return seen, nil
}

// look reads the record. Its Status is zero if the record is not done: then
// only a claim can tell who may execute.
func (op *operation) look(ctx context.Context) (granted, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
	defer cancel()
	recs, err := op.server.cfg.Store.Records(ctx, keystore.Query{ID: &op.record, Limit: 1})
	switch {
	case ctx.Err() != nil:
		return granted{}, failedClaim(err)
	case err != nil || len(recs) == 0 || recs[0].State != keystore.Done:
		return granted{}, nil // the claim meets an error too
	case recs[0].Fingerprint != op.fingerprint:
		return granted{Claim: keystore.Claim{Status: keystore.Mismatch}}, nil
	}
	return granted{Claim: keystore.Claim{Status: keystore.Completed, Record: recs[0]}}, nil
}
