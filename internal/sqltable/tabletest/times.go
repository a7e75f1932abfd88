package tabletest

import (
	"context"
	"database/sql"
	"testing"

	"github.com/idem-go/idem/keystore"
)

// lostAnswers: a call that was applied and failed is recognised when it is
// made again.
func lostAnswers(t *testing.T, b Backend) {
	s, c := b.counted(t)
	for _, inTx := range []bool{false, true} {
		p := params()
		if inTx {
			// The transaction goes with the answer.
			err := s.InTx(t.Context(), func(ctx context.Context, in keystore.Store) error {
				c.losing(func() {
					_, err := in.Claim(ctx, p)
					b.wantError(t, "claim", err, errLost)
				})
				_, err := in.Claim(ctx, p)
				b.wantError(t, "claim", err, errLost)
				return nil
			})
			b.wantError(t, "commit", err, errLost)
		} else {
			c.losing(func() {
				_, err := s.Claim(t.Context(), p)
				b.wantError(t, "claim", err, errLost)
			})
		}
		o := claim(t, s, p, keystore.Acquired).Owner
		if o.Token != 1 {
			t.Errorf("the repeated claim has token %d, want the first one's", o.Token)
		}
		c.losing(func() {
			b.wantError(t, "renew", s.Renew(t.Context(), o, keystore.RenewParams{Lease: long}), errLost)
			b.wantError(t, "complete", s.Complete(t.Context(), o, keystore.CompleteParams{Retention: long}), errLost)
		})
		complete(t, s, o)

		p = params()
		o = claim(t, s, p, keystore.Acquired).Owner
		reject := keystore.ReleaseParams{How: keystore.Reject}
		c.losing(func() { b.wantError(t, "release", s.Release(t.Context(), o, reject), errLost) })
		if err := s.Release(t.Context(), o, reject); err != nil {
			t.Error(err)
		}
		if got := claim(t, s, rival(p), keystore.Acquired).Record.Generation; got != 1 {
			t.Errorf("the generation is %d after one Reject, sent twice", got)
		}
	}
}

// cancelled: every call says so, and has done nothing.
func cancelled(t *testing.T, b Backend) {
	s, _ := b.open(t, b.NewDSN(t))
	p := params()
	o := claim(t, s, p, keystore.Acquired).Owner
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := s.Claim(ctx, params())
	b.wantError(t, "claim", err, context.Canceled)
	b.wantError(t, "renew", s.Renew(ctx, o, keystore.RenewParams{Lease: long}), context.Canceled)
	b.wantError(t, "complete", s.Complete(ctx, o, keystore.CompleteParams{Retention: long}), context.Canceled)
	b.wantError(t, "release", s.Release(ctx, o, keystore.ReleaseParams{How: keystore.Reject}), context.Canceled)
	_, err = s.Records(ctx, keystore.Query{})
	b.wantError(t, "records", err, context.Canceled)
	_, err = s.Purge(ctx, 1)
	b.wantError(t, "purge", err, context.Canceled)
	b.wantError(t, "begin", s.InTx(ctx, func(context.Context, keystore.Store) error {
		t.Error("the function was called")
		return nil
	}), context.Canceled)
	recs, err := s.Records(t.Context(), keystore.Query{})
	if err != nil || len(recs) != 1 || recs[0].State != keystore.Running {
		t.Errorf("the records are %+v, %v; want the one as it was", recs, err)
	}
}

// heartbeats: what a Renew writes is in no index.
func heartbeats(t *testing.T, b Backend) {
	s, db := b.open(t, b.NewDSN(t))
	for _, begun := range []bool{false, true} {
		p := params()
		p.Begun = begun
		o := claim(t, s, p, keystore.Acquired).Owner
		indexed := func() (expires sql.NullInt64) {
			if err := db.QueryRow("SELECT expires_us FROM idem_records WHERE id = ?", p.ID[:]).Scan(&expires); err != nil {
				t.Fatal(err)
			}
			return expires
		}
		before := indexed()
		if before.Valid == begun {
			t.Errorf("a record with begun %t expires at %v", begun, before)
		}
		if err := s.Renew(t.Context(), o, keystore.RenewParams{Lease: 2 * long}); err != nil {
			t.Fatal(err)
		}
		if after := indexed(); after != before {
			t.Errorf("Renew moved the indexed expiry from %v to %v", before, after)
		}
	}
	// Nor is what is renewed purged when its first lease and Keep are over.
	p := params()
	p.Begun, p.Keep = false, 0
	claim(t, s, p, keystore.Acquired)
	run(t, db, "UPDATE idem_records SET expires_us = 1 WHERE id = ?", p.ID[:])
	gone := params()
	gone.Begun, gone.Keep = false, 0
	o := claim(t, s, gone, keystore.Acquired).Owner
	if err := s.Release(t.Context(), o, keystore.ReleaseParams{How: keystore.Abandon}); err != nil {
		t.Fatal(err)
	}
	if n, err := s.Purge(t.Context(), 10); n != 1 || err != nil {
		t.Errorf("Purge removed %d records, %v; want the abandoned one", n, err)
	}
	claim(t, s, rival(p), keystore.InFlight)
}
