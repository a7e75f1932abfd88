// Package tiered puts a fast store in front of an authoritative one: Redis in
// front of a database, say.
//
// The back store grants every claim and holds every record. The front store
// holds copies of settled records, and answers the duplicates of those without
// asking the back. It is never asked for a claim: a front that forgets a claim
// would have it executed twice, a front that forgets a copy costs a look at the
// back.
//
// # The guarantee
//
// Losing the front at any moment, wholly or in part, costs speed only: every
// rule of package keystore holds as it holds for the back alone, with one
// exception. A record that is removed from the back by hand, or restored there
// from a backup, may be replayed from its copy in front until its retention is
// over.
//
// It holds because a copy is written only after the back has settled the
// record, because a settled record never changes until its retention is over,
// and because a copy is valid no longer than its record: for what is left of
// the retention, counted from before the back was asked to settle. The clocks of
// the two need not agree, only run equally fast.
//
// # The cost
//
// A replay asks the front alone. A claim that is granted asks both. Settling
// asks the back once more, for what is copied, and the front twice; that is
// after the record is settled, and bounded for the front by
// Config.FrontTimeout.
package tiered

import (
	"context"
	"fmt"
	"reflect"
	"time"

	"github.com/idem-go/idem/keystore"
)

// Config configures a Store. The zero Config is valid.
type Config struct {
	// FrontTimeout bounds each call to the front store: after it the front
	// counts as absent. 0 means 50 ms.
	FrontTimeout time.Duration
	// OnFrontError is told of each failed call to the front, which costs speed
	// only. It must be safe for concurrent use. Nil ignores it.
	OnFrontError func(error)
}

// store is the two stores as one.
type store struct {
	front, back keystore.Store
	cfg         Config
}

// waiter is one whose back tells of changes. Those who wait for a store that
// says it does, but does not, look less often.
type waiter struct {
	*store
	keystore.Waiter
}

// New returns the two stores as one, with front before back. It is safe for
// concurrent use, and a keystore.Waiter if back is one; a keystore.Transactor it
// is not. The front must hold no records but these copies: give it a prefix of
// its own.
func New(front, back keystore.Store, cfg Config) (keystore.Store, error) {
	for name, s := range map[string]keystore.Store{"front": front, "back": back} {
		if v := reflect.ValueOf(s); s == nil || v.Kind() == reflect.Pointer && v.IsNil() {
			return nil, fmt.Errorf("tiered: the %s store is nil; pass one, or use the other alone", name)
		}
	}
	if cfg.FrontTimeout < 0 {
		return nil, fmt.Errorf("tiered: Config.FrontTimeout is %v; use 0 for 50ms, or a positive duration", cfg.FrontTimeout)
	}
	if cfg.FrontTimeout == 0 {
		cfg.FrontTimeout = 50 * time.Millisecond
	}
	both := &store{front: front, back: back, cfg: cfg}
	if w, ok := back.(keystore.Waiter); ok {
		return waiter{both, w}, nil
	}
	return both, nil
}

// Claim implements keystore.Store. It answers from the copy of a settled
// record if there is one; every other decision is the back's.
func (s *store) Claim(ctx context.Context, p keystore.ClaimParams) (keystore.Claim, error) {
	if err := p.Validate(); err != nil {
		return keystore.Claim{}, err
	}
	if rec, ok := s.copied(ctx, p.ID); ok {
		if rec.Fingerprint != p.Fingerprint {
			rec.Result = nil
			return keystore.Claim{Status: keystore.Mismatch, Record: rec}, nil
		}
		return keystore.Claim{Status: keystore.Completed, Record: rec}, nil
	}
	return s.back.Claim(ctx, p)
}

// Renew implements keystore.Store.
func (s *store) Renew(ctx context.Context, o keystore.Owner, p keystore.RenewParams) error {
	return s.back.Renew(ctx, o, p)
}

// Complete implements keystore.Store. The record is settled when the back has
// settled it; then a copy goes to the front.
func (s *store) Complete(ctx context.Context, o keystore.Owner, p keystore.CompleteParams) error {
	// The back counts the retention from some moment after this one.
	started := time.Now()
	if err := s.back.Complete(ctx, o, p); err != nil {
		return err
	}
	s.copy(ctx, o.ID, started.Add(p.Retention))
	return nil
}

// Release implements keystore.Store.
func (s *store) Release(ctx context.Context, o keystore.Owner, p keystore.ReleaseParams) error {
	return s.back.Release(ctx, o, p)
}

// Records implements keystore.Store. It asks the back.
func (s *store) Records(ctx context.Context, q keystore.Query) ([]keystore.Record, error) {
	return s.back.Records(ctx, q)
}

// Purge implements keystore.Store. It purges both, and counts the back's.
func (s *store) Purge(ctx context.Context, limit int) (int, error) {
	n, err := s.back.Purge(ctx, limit)
	if err != nil {
		return n, err
	}
	s.ask(ctx, func(ctx context.Context) error {
		_, err := s.front.Purge(ctx, limit)
		return err
	})
	return n, nil
}

// ask calls the front within its timeout. An error costs speed only.
func (s *store) ask(ctx context.Context, call func(context.Context) error) {
	bounded, cancel := context.WithTimeout(ctx, s.cfg.FrontTimeout)
	defer cancel()
	err := call(bounded)
	if err != nil && ctx.Err() == nil && s.cfg.OnFrontError != nil {
		s.cfg.OnFrontError(fmt.Errorf("tiered: front: %w", err))
	}
}
