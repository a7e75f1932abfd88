package tiered

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"time"

	"github.com/idem-go/idem/keystore"
)

// A copy is a Done record of the front store. What the front counts by itself,
// its token and generation, differ from the original's; so those of the
// original stand in the copy's result, with Meta, before the original's Result.
// The layout, in big-endian order:
//
//	format 1, token 8, generation 4, begun 1, age 8, valid 8, length of Meta 4, Meta, Result
//
// age is the original's when it was copied. valid is for how long the copy may
// be used, counted by the front's Age: from the claim, since the call that
// settles the copy may be applied late, and would let it outlive its original.
const (
	copyFormat = 1
	copyHead   = 1 + 8 + 4 + 1 + 8 + 8 + 4
)

// copyLease is how long a copy that is being written keeps others from it.
const copyLease = time.Second

var errCopy = errors.New("tiered: a copy can't be read")

func encode(rec keystore.Record, valid time.Duration) []byte {
	b := make([]byte, 0, copyHead+len(rec.Meta)+len(rec.Result))
	b = append(b, copyFormat)
	b = binary.BigEndian.AppendUint64(b, rec.Token)
	b = binary.BigEndian.AppendUint32(b, rec.Generation)
	begun := byte(0)
	if rec.Begun {
		begun = 1
	}
	b = append(b, begun)
	b = binary.BigEndian.AppendUint64(b, uint64(rec.Age))
	b = binary.BigEndian.AppendUint64(b, uint64(valid))
	b = binary.BigEndian.AppendUint32(b, uint32(len(rec.Meta)))
	return append(append(b, rec.Meta...), rec.Result...)
}

// decode returns the original of a copy; fresh is false when the original may
// have expired.
func decode(c keystore.Record) (rec keystore.Record, fresh bool, err error) {
	b := c.Result
	if len(b) < copyHead || b[0] != copyFormat {
		return rec, false, errCopy
	}
	rec = keystore.Record{
		ID: c.ID, Scope: c.Scope, Fingerprint: c.Fingerprint, State: keystore.Done,
		Token: binary.BigEndian.Uint64(b[1:]), Generation: binary.BigEndian.Uint32(b[9:]), Begun: b[13] == 1,
		Age: time.Duration(binary.BigEndian.Uint64(b[14:])) + c.Age,
	}
	valid := time.Duration(binary.BigEndian.Uint64(b[22:]))
	n := binary.BigEndian.Uint32(b[30:])
	if b = b[copyHead:]; uint64(n) > uint64(len(b)) {
		return rec, false, errCopy
	}
	rec.Meta, rec.Result = b[:n:n], b[n:]
	return rec, c.Age < valid, nil
}

// copied returns the record of which the front has a copy that is still valid.
func (s *store) copied(ctx context.Context, id [32]byte) (rec keystore.Record, ok bool) {
	s.ask(ctx, func(ctx context.Context) error {
		recs, err := s.front.Records(ctx, keystore.Query{ID: &id, Limit: 1})
		if err != nil || len(recs) == 0 || recs[0].State != keystore.Done {
			return err
		}
		rec, ok, err = decode(recs[0])
		return err
	})
	return rec, ok
}

// copy writes a copy of a settled record, which expires at until. If that
// fails, the next duplicate asks the back.
func (s *store) copy(ctx context.Context, id [32]byte, until time.Time) {
	recs, err := s.back.Records(ctx, keystore.Query{ID: &id, Limit: 1})
	if err != nil || len(recs) == 0 || recs[0].State != keystore.Done {
		return
	}
	rec := recs[0]
	s.ask(ctx, func(ctx context.Context) error {
		p := keystore.ClaimParams{ID: id, Scope: rec.Scope, Fingerprint: rec.Fingerprint, Lease: copyLease}
		_, _ = rand.Read(p.Nonce[:]) // crypto/rand never fails
		c, err := s.front.Claim(ctx, p)
		if err != nil || c.Status != keystore.Acquired {
			return err
		}
		valid := time.Until(until)
		if valid <= 0 {
			return s.front.Release(ctx, c.Owner, keystore.ReleaseParams{How: keystore.Forget})
		}
		return s.front.Complete(ctx, c.Owner, keystore.CompleteParams{Result: encode(rec, valid), Retention: valid})
	})
}
