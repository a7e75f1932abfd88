package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/keystore"
)

// reconcileAtOnce is how many records Reconcile asks about at a time.
const reconcileAtOnce = 4

// Reconcile asks Config.Recover about every unresolved record of the server
// half in the store, the oldest first, and settles what it answers: for those
// whose clients do not come back. Run it on a timer; several processes may do
// so at once. A record about which was asked in vain has to wait, a second at
// first and up to five minutes.
//
// It returns how many records were settled, and an error for all the others,
// whose parts are each an *idem.Error with scope, ID and key (walk them through
// Unwrap() []error): ErrRecoveryRequired for what is still unknown, or not asked
// yet. Without a Recover hook the error is idem.ErrConfig. When ctx or the
// server ends, so does Reconcile, and the rest stays unresolved.
//
// Records that the client half keeps in the same store are left to it.
func (s *Server) Reconcile(ctx context.Context) (settled int, err error) {
	if s.cfg.Recover == nil {
		return 0, badConfig("Recover", "is nil; set what finds out whether an unresolved operation was executed")
	}
	if !s.enter(ctx) {
		return 0, idem.ErrShutdown
	}
	defer s.leave()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(s.stopping, func() { cancel(idem.ErrShutdown) })()

	left, err := s.unresolved(ctx)
	var (
		mu   sync.Mutex // guards settled and errs
		errs = []error{err}
		wg   sync.WaitGroup
		free = make(chan struct{}, reconcileAtOnce)
	)
	note := func(done bool, err error) {
		mu.Lock()
		defer mu.Unlock()
		if done {
			settled++
		}
		errs = append(errs, err)
	}
	for _, l := range left {
		free <- struct{}{}
		if ctx.Err() != nil {
			note(false, context.Cause(ctx))
			break
		}
		wg.Go(func() {
			defer func() { <-free }()
			note(l.op.reconcile(ctx, l.found))
		})
	}
	wg.Wait()
	return settled, errors.Join(errs...)
}

// leftover is an unresolved record, and the operation that settles it.
type leftover struct {
	op    *operation
	found granted
}

// unresolved lists the unresolved records of the server half, the oldest first.
func (s *Server) unresolved(ctx context.Context) (left []leftover, err error) {
	q := keystore.Query{Unresolved: true}
	for {
		asked, cancel := context.WithTimeout(ctx, storeTimeout)
		recs, failed := s.cfg.Store.Records(asked, q)
		cancel()
		if failed != nil {
			err = errors.Join(err, fmt.Errorf("%w: list unresolved records: %w", idem.ErrStore, failed))
		}
		if len(recs) == 0 {
			break
		}
		for _, rec := range recs {
			note, unreadable := metaOf(rec)
			if unreadable != nil {
				err = errors.Join(err, fmt.Errorf("record %x: %w", rec.ID, unreadable))
				continue
			}
			if op := s.ofRecord(rec, note); op != nil {
				left = append(left, leftover{op, granted{Claim: keystore.Claim{Status: keystore.Unresolved, Record: rec}}})
			}
		}
		q.After = recs[len(recs)-1].ID
	}
	slices.SortStableFunc(left, func(a, b leftover) int { return cmp.Compare(b.found.Record.Age, a.found.Record.Age) })
	return left, err
}

// ofRecord is the operation that a record tells of, or nil if it is not one of
// the server half.
func (s *Server) ofRecord(rec keystore.Record, note meta) *operation {
	op := &operation{server: s, route: s.route, started: s.now(), fingerprint: rec.Fingerprint, method: note.Method, path: note.Path}
	op.route.retention, op.route.discard = cmp.Or(note.Retention, defaultRetention), note.Discard
	if note.ID != "" {
		op.byID(note.Scope, note.ID)
	} else {
		op.byKey(note.Scope, idem.Key(note.Key))
	}
	if op.record != rec.ID {
		return nil
	}
	return op
}

// reconcile settles one record, or tells why not.
func (op *operation) reconcile(ctx context.Context, seen granted) (settled bool, err error) {
	g, again := op.recover(ctx, seen)
	switch {
	case again:
		op.observe(ctx, idem.EventRecovered, idem.OutcomeNotExecuted, 0, nil)
		return true, nil
	case g.Status == keystore.Completed:
		if op.recovered {
			a, ref := op.found(g)
			o := outcomeOf(a.Status)
			if ref != nil {
				o = ref.outcome
			}
			op.observe(ctx, idem.EventRecovered, o, 0, nil)
		}
		return op.recovered, nil
	case g.Status != keystore.Unresolved:
		return false, nil // somebody else is at it
	}
	_, ref := op.found(g)
	failure := op.error(ref)
	if g.why != nil || op.asked {
		op.observe(ctx, idem.EventUnresolved, idem.OutcomeUnknown, 0, failure)
	}
	return false, failure
}
