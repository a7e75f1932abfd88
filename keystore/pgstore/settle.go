package pgstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/keystore"
)

// Renew implements keystore.Store. It takes one round trip.
func (s *Store) Renew(ctx context.Context, o keystore.Owner, p keystore.RenewParams) error {
	if err := p.Validate(); err != nil {
		return err
	}
	_, err := s.settle(ctx, "renew", o, last{}, s.update(ctx, "renew", s.sql.renew, o, micros(p.Lease), p.Begun, p.Meta))
	return err
}

// Complete implements keystore.Store. It takes one round trip.
func (s *Store) Complete(ctx context.Context, o keystore.Owner, p keystore.CompleteParams) error {
	if err := p.Validate(); err != nil {
		return err
	}
	repeat := last{state: keystore.Done}
	if len(p.Result) > s.cfg.MaxResult {
		return s.tooLarge(ctx, o, repeat, len(p.Result))
	}
	result := p.Result
	if result == nil {
		result = []byte{}
	}
	c := completion{o, micros(p.Retention), result}
	applied, err := s.settle(ctx, "complete", o, repeat, func() (int64, error) {
		if s.tx != nil || !s.batches {
			return s.completeAlone(ctx, c)
		}
		return s.completes.Do(ctx, o.ID, len(result), c)
	})
	if applied {
		s.changed(o.ID, true)
	}
	return err
}

// Release implements keystore.Store. It takes one round trip.
func (s *Store) Release(ctx context.Context, o keystore.Owner, p keystore.ReleaseParams) (err error) {
	if err := p.Validate(); err != nil {
		return err
	}
	var applied bool
	if p.How == keystore.Abandon {
		applied, err = s.settle(ctx, "release", o, last{}, s.update(ctx, "release", s.sql.abandon, o, p.Meta))
	} else {
		repeat := last{state: keystore.Free, released: p.How}
		applied, err = s.settle(ctx, "release", o, repeat, s.update(ctx, "release", s.sql.free, o, int16(p.How), p.Meta))
	}
	if applied {
		s.changed(o.ID, true)
	}
	return err
}

// update returns the function that runs an update of the record that o owns.
func (s *Store) update(ctx context.Context, op, sql string, o keystore.Owner, params ...any) func() (int64, error) {
	params = append(ownerParams(o), params...)
	return func() (int64, error) { return s.exec(ctx, op, sql, params...) }
}

// settle runs an update of the record that o owns. Where it changed nothing,
// that was a repeat if the record is as the first call has left it, and fenced
// otherwise.
func (s *Store) settle(ctx context.Context, op string, o keystore.Owner, repeat last, update func() (int64, error)) (applied bool, err error) {
	for try := 0; ; try++ {
		changed, err := update()
		if err != nil || changed > 0 {
			return changed > 0, err
		}
		found, err := s.last(ctx, op, o)
		switch {
		case err != nil:
			return false, err
		case found.state == keystore.Running: // by now
			if err := pause(ctx, try); err != nil {
				return false, failed(op, err)
			}
		case found.state != 0 && found == repeat:
			return false, nil
		default:
			return false, keystore.ErrFenced
		}
	}
}

// tooLarge answers a Complete that has to be refused for its size, unless there
// is a better reason.
func (s *Store) tooLarge(ctx context.Context, o keystore.Owner, repeat last, size int) error {
	found, err := s.last(ctx, "complete", o)
	switch {
	case err != nil:
		return err
	case found == repeat:
		return nil
	case found.state != keystore.Running:
		return keystore.ErrFenced
	}
	return fmt.Errorf("%w: Result has %d bytes, Config.MaxResult is %d", keystore.ErrTooLarge, size, s.cfg.MaxResult)
}

// last is what became of a record that an owner has, or had last. It has no
// state where another one was the last owner.
type last struct {
	state    keystore.State
	released keystore.How
}

func (s *Store) last(ctx context.Context, op string, o keystore.Owner) (last, error) {
	var r struct {
		format, state, released int16
		sound, owned, outlived  bool
	}
	err := s.call(ctx, op, func(q querier) error {
		return q.QueryRow(ctx, s.sql.lastOwner, s.args(ownerParams(o)...)...).
			Scan(&r.format, &r.sound, &r.state, &r.released, &r.owned, &r.outlived)
	})
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return last{}, nil
	case err != nil:
		return last{}, err
	case r.format != format:
		return last{}, fmt.Errorf("%w: record %x has format %d", keystore.ErrFormat, o.ID, r.format)
	case !r.sound:
		return last{}, fmt.Errorf("%w: record %x", keystore.ErrCorrupt, o.ID)
	case !r.owned || r.outlived:
		return last{}, nil
	}
	return last{keystore.State(r.state), keystore.How(r.released)}, nil
}

// ownerParams are the first parameters of what an owner does. A token that no
// row can have becomes negative, and so does not match.
func ownerParams(o keystore.Owner) []any { return []any{o.ID[:], o.Nonce[:], int64(o.Token)} }
