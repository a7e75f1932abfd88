package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/idem-go/idem/internal/stored"
	"github.com/idem-go/idem/internal/storeurl"
	"github.com/idem-go/idem/keystore"
)

const (
	// takeoverLease is how long the record is held while it is settled.
	takeoverLease = time.Minute
	// settlePatience bounds the settling, which goes on after an interrupt: it
	// takes no longer than the lease, by which it would be undone.
	settlePatience = takeoverLease / 2
	// storeTries is how often the store is asked while it fails.
	storeTries = 3
	retryDelay = 200 * time.Millisecond
)

// resolve settles an unresolved record.
func resolve(c *call) func() error {
	sel, d := c.selector(), c.verdict()
	c.flags.BoolVar(&c.yes, "yes", false, "don't ask")
	c.flags.BoolVar(&c.json, "json", false, "write JSON")
	return func() error {
		if _, _, err := sel.check(c.flags.Args()); err != nil {
			return err
		}
		if err := d.check(c.yes); err != nil {
			return err
		}
		return c.withStore(func(s *storeurl.Opened) error {
			v, err := c.find(s.Store, sel)
			if err != nil {
				return err
			}
			if err := resolvable(v); err != nil {
				return err
			}
			plan, err := d.settlement(v, c.in)
			if err != nil {
				return err
			}
			if err := c.ask("resolve " + v.name() + " as " + plan.as); err != nil {
				return err
			}
			if err := c.settle(s.Store, v, plan); err != nil {
				return err
			}
			if c.json {
				return writeJSON(c.out, map[string]string{"record": v.hexID(), "resolved": plan.as, "now": plan.then})
			}
			_, err = fmt.Fprintf(c.out, "%s is %s\n", v.name(), plan.then)
			return err
		})
	}
}

// resolvable refuses a record that is not unresolved.
func resolvable(v view) error {
	var is string
	switch rec := v.rec; {
	case rec.Unresolved():
		return nil
	case rec.State == keystore.Running && rec.LeaseLeft > 0:
		is = fmt.Sprintf("has an owner, whose lease stands for another %v and who may still settle it; try again later", rec.LeaseLeft.Round(time.Second))
	case rec.State == keystore.Running:
		is = "had not begun when its owner went, so that nothing was executed: the next call takes it"
	case rec.State == keystore.Done:
		is = "is done (" + v.summary() + "); there is nothing to resolve"
	default:
		is = "is free, the next call takes it; there is nothing to resolve"
	}
	return fmt.Errorf("%s is not unresolved: it %s", v.name(), is)
}

var errChanged = errors.New("the record has changed meanwhile; look at it with idem show, and find out again what became of it")

// settle takes the record over, so that an owner who only stalled can't change
// it any more, and brings the settlement into it.
func (c *call) settle(s keystore.Store, v view, plan settlement) error {
	// What was found out is not about an attempt that was made since.
	now, err := s.Records(c.ctx, keystore.Query{ID: &v.rec.ID, Limit: 1})
	switch {
	case err != nil:
		return c.inStore("read the record again", err)
	case len(now) == 0 || now[0].Token != v.rec.Token || !now[0].Unresolved():
		return errChanged
	}
	cl, err := c.takeOver(s, v.rec, plan.retention)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.ctx), settlePatience)
	defer cancel()
	if !cl.Record.Begun {
		// It was freed before the claim, by an owner who knew more.
		err := s.Release(ctx, cl.Owner, keystore.ReleaseParams{How: keystore.Forget})
		return errors.Join(errChanged, err)
	}
	err = persist(ctx, func() error {
		if plan.answer == nil {
			return s.Release(ctx, cl.Owner, plan.release)
		}
		return s.Complete(ctx, cl.Owner, keystore.CompleteParams{Result: stored.Encode(*plan.answer), Retention: plan.retention})
	})
	switch {
	case err == nil:
		return nil
	case errors.Is(err, keystore.ErrFenced):
		return errChanged
	case keystore.Final(err):
		// As it was before.
		err = errors.Join(err, s.Release(ctx, cl.Owner, keystore.ReleaseParams{How: keystore.Abandon}))
		return c.inStore("settle the record, which stays unresolved", err)
	}
	return c.inStore(fmt.Sprintf("settle the record, of which nobody knows now whether it is settled (if not, it is unresolved again in %v; see idem show)", takeoverLease), err)
}

// takeOver claims the unresolved record. The claim does not mark it begun: an
// unresolved record stays begun, so that one that is not was no longer
// unresolved.
func (c *call) takeOver(s keystore.Store, rec keystore.Record, keep time.Duration) (cl keystore.Claim, err error) {
	p := keystore.ClaimParams{
		ID: rec.ID, Scope: rec.Scope, Fingerprint: rec.Fingerprint, Meta: rec.Meta,
		Lease: takeoverLease, Keep: keep, Takeover: true,
	}
	_, _ = rand.Read(p.Nonce[:]) // crypto/rand never fails
	err = persist(c.ctx, func() (err error) {
		cl, err = s.Claim(c.ctx, p)
		return err
	})
	switch {
	case err != nil:
		return cl, c.inStore(fmt.Sprintf("take the record over (if that was granted, it is unresolved again in %v)", takeoverLease), err)
	case cl.Status != keystore.Acquired:
		return cl, fmt.Errorf("%w: a claim was answered %v", errChanged, cl.Status)
	}
	return cl, nil
}

// persist repeats a call to the store while it fails without an answer. It is
// the same call to the store, which knows it again.
func persist(ctx context.Context, call func() error) error {
	for try := 1; ; try++ {
		err := call()
		if err == nil || keystore.Final(err) || try == storeTries {
			return err
		}
		timer := time.NewTimer(time.Duration(try) * retryDelay)
		select {
		case <-ctx.Done():
			timer.Stop()
			return err
		case <-timer.C:
		}
	}
}
