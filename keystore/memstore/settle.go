package memstore

import (
	"context"
	"fmt"
	"time"

	"github.com/idem-go/idem/keystore"
)

// Renew implements keystore.Store.
func (s *Store) Renew(ctx context.Context, o keystore.Owner, p keystore.RenewParams) error {
	if err := p.Validate(); err != nil {
		return err
	}
	return s.settle(ctx, o, func(sh *shard, r *row, now time.Time) error {
		if r.state != keystore.Running {
			return keystore.ErrFenced
		}
		if p.Meta != nil {
			if err := s.replace(&r.meta, p.Meta); err != nil {
				return err
			}
		}
		r.begun = r.begun || p.Begun
		r.until = now.Add(p.Lease)
		sh.schedule(r)
		return nil
	})
}

// Complete implements keystore.Store.
func (s *Store) Complete(ctx context.Context, o keystore.Owner, p keystore.CompleteParams) error {
	if err := p.Validate(); err != nil {
		return err
	}
	return s.settle(ctx, o, func(sh *shard, r *row, now time.Time) error {
		switch {
		case r.state == keystore.Done:
			return nil // a repeat
		case r.state != keystore.Running:
			return keystore.ErrFenced
		case len(p.Result) > s.maxResult:
			return fmt.Errorf("%w: Result has %d bytes, Config.MaxResult is %d",
				keystore.ErrTooLarge, len(p.Result), s.maxResult)
		}
		if err := s.replace(&r.result, p.Result); err != nil {
			return err
		}
		r.state = keystore.Done
		r.until = now.Add(p.Retention)
		sh.schedule(r)
		sh.wake(r.id)
		return nil
	})
}

// Release implements keystore.Store.
func (s *Store) Release(ctx context.Context, o keystore.Owner, p keystore.ReleaseParams) error {
	if err := p.Validate(); err != nil {
		return err
	}
	return s.settle(ctx, o, func(sh *shard, r *row, now time.Time) error {
		switch {
		case r.state == keystore.Free && r.released == p.How:
			return nil // a repeat
		case r.state != keystore.Running:
			return keystore.ErrFenced
		}
		if p.Meta != nil || p.How == keystore.Reject {
			if err := s.replace(&r.meta, p.Meta); err != nil {
				return err
			}
		}
		if p.How == keystore.Abandon {
			if r.alive(now) {
				r.until = now
			}
		} else {
			r.state, r.released = keystore.Free, p.How
			r.begun = false
			r.until = now.Add(r.keep)
			if p.How == keystore.Reject {
				r.generation++
			}
		}
		sh.schedule(r)
		sh.wake(r.id)
		return nil
	})
}

// settle applies change to the record that o owns, or owned last if it is
// settled by now. change reports an error before it changes anything.
func (s *Store) settle(ctx context.Context, o keystore.Owner, change func(*shard, *row, time.Time) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return s.withRoom(func() error {
		sh := s.lock(o.ID)
		defer sh.mu.Unlock()
		now := time.Now()
		r := sh.live(o.ID, now)
		if r == nil || r.nonce != o.Nonce || r.token != o.Token {
			return keystore.ErrFenced
		}
		return change(sh, r, now)
	})
}
