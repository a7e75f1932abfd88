package memstore

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/idem-go/idem/keystore"
)

// Renew implements keystore.Store.
func (s *Store) Renew(ctx context.Context, o keystore.Owner, p keystore.RenewParams) error {
	if err := cmp.Or(p.Validate(), ctx.Err()); err != nil {
		return err
	}
	for {
		if err := s.renew(o, p); !s.madeRoom(err) {
			return err
		}
	}
}

func (s *Store) renew(o keystore.Owner, p keystore.RenewParams) error {
	sh := s.lock(o.ID)
	defer sh.mu.Unlock()
	now := time.Now()
	r := sh.owned(o, now)
	if r == nil || r.state != keystore.Running {
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
}

// Complete implements keystore.Store.
func (s *Store) Complete(ctx context.Context, o keystore.Owner, p keystore.CompleteParams) error {
	if err := cmp.Or(p.Validate(), ctx.Err()); err != nil {
		return err
	}
	for {
		if err := s.complete(o, p); !s.madeRoom(err) {
			return err
		}
	}
}

func (s *Store) complete(o keystore.Owner, p keystore.CompleteParams) error {
	sh := s.lock(o.ID)
	defer sh.mu.Unlock()
	now := time.Now()
	r := sh.owned(o, now)
	switch {
	case r == nil:
		return keystore.ErrFenced
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
}

// Release implements keystore.Store.
func (s *Store) Release(ctx context.Context, o keystore.Owner, p keystore.ReleaseParams) error {
	if err := cmp.Or(p.Validate(), ctx.Err()); err != nil {
		return err
	}
	for {
		if err := s.release(o, p); !s.madeRoom(err) {
			return err
		}
	}
}

func (s *Store) release(o keystore.Owner, p keystore.ReleaseParams) error {
	sh := s.lock(o.ID)
	defer sh.mu.Unlock()
	now := time.Now()
	r := sh.owned(o, now)
	switch {
	case r == nil:
		return keystore.ErrFenced
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
}

// owned returns the record that o owns, or owned last if it is settled by now;
// nil if there is no such.
func (sh *shard) owned(o keystore.Owner, now time.Time) *row {
	if r := sh.live(o.ID, now); r != nil && r.nonce == o.Nonce && r.token == o.Token {
		return r
	}
	return nil
}
