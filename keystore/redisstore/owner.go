package redisstore

import (
	"context"
	"fmt"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/idem-go/idem/keystore"
)

var statuses = map[string]keystore.Status{
	saysAcquired: keystore.Acquired,
	"in-flight":  keystore.InFlight,
	"completed":  keystore.Completed,
	"mismatch":   keystore.Mismatch,
	"unresolved": keystore.Unresolved,
}

// Claim implements keystore.Store. It is keystore.ErrFull where the server's
// maxmemory is reached.
func (s *Store) Claim(ctx context.Context, p keystore.ClaimParams) (keystore.Claim, error) {
	if err := p.Validate(); err != nil {
		return keystore.Claim{}, err
	}
	c, err := s.claim(ctx, p)
	if err != nil {
		return keystore.Claim{}, fmt.Errorf("redisstore: claim: %w", err)
	}
	return c, nil
}

func (s *Store) claim(ctx context.Context, p keystore.ClaimParams) (keystore.Claim, error) {
	answer, err := s.run(ctx, claimScript, p.ID,
		p.Fingerprint[:], p.Scope[:], p.Nonce[:], micros(p.Lease), micros(p.Keep),
		flag(p.Begun), flag(p.Takeover), p.Meta, s.channel(), p.ID[:])
	if redis.HasErrorPrefix(err, "OOM") {
		err = fmt.Errorf("%w: %w", keystore.ErrFull, err)
	}
	if err != nil {
		return keystore.Claim{}, err
	}
	rec, err := s.view(p.ID, answer)
	if err != nil {
		return keystore.Claim{}, err
	}
	c := keystore.Claim{Status: statuses[answer[0]], Record: rec}
	if c.Status == keystore.Acquired {
		c.Owner = keystore.Owner{ID: p.ID, Nonce: p.Nonce, Token: rec.Token}
		s.watches.wake(p.ID)
	}
	return c, nil
}

// Renew implements keystore.Store.
func (s *Store) Renew(ctx context.Context, o keystore.Owner, p keystore.RenewParams) error {
	if err := p.Validate(); err != nil {
		return err
	}
	_, err := s.run(ctx, renewScript, o.ID, o.Nonce[:], token(o), micros(p.Lease), flag(p.Begun),
		flag(p.Meta != nil), p.Meta)
	if err != nil {
		return fmt.Errorf("redisstore: renew: %w", err)
	}
	return nil
}

// Complete implements keystore.Store.
func (s *Store) Complete(ctx context.Context, o keystore.Owner, p keystore.CompleteParams) error {
	if err := p.Validate(); err != nil {
		return err
	}
	if len(p.Result) > s.maxResult {
		return fmt.Errorf("redisstore: complete: %w: Result has %d bytes, Config.MaxResult is %d",
			keystore.ErrTooLarge, len(p.Result), s.maxResult)
	}
	_, err := s.run(ctx, completeScript, o.ID, o.Nonce[:], token(o), micros(p.Retention), p.Result,
		s.channel(), o.ID[:])
	if err != nil {
		return fmt.Errorf("redisstore: complete: %w", err)
	}
	s.watches.wake(o.ID)
	return nil
}

// Release implements keystore.Store.
func (s *Store) Release(ctx context.Context, o keystore.Owner, p keystore.ReleaseParams) error {
	if err := p.Validate(); err != nil {
		return err
	}
	_, err := s.run(ctx, releaseScript, o.ID, o.Nonce[:], token(o), p.How.String(),
		flag(p.Meta != nil || p.How == keystore.Reject), p.Meta, s.channel(), o.ID[:])
	if err != nil {
		return fmt.Errorf("redisstore: release: %w", err)
	}
	s.watches.wake(o.ID)
	return nil
}

// token is the owner's token as the scripts compare it: as text, because a
// number would lose digits.
func token(o keystore.Owner) string { return strconv.FormatUint(o.Token, 10) }
