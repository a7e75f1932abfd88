package tabletest

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/idem-go/idem/internal/sqltable"
	"github.com/idem-go/idem/keystore"
)

// unreadable: a row that can't be is never granted, changed or purged.
func unreadable(t *testing.T, b Backend) {
	for name, tt := range map[string]struct {
		set  string
		want error
	}{
		"B094 newer format": {"format = 2", keystore.ErrFormat},
		"newer and free":    {"format = 2, state = 1, released = 1", keystore.ErrFormat},
		"unknown state":     {"state = 9", keystore.ErrCorrupt},
		"free, but not how": {"state = 1, released = 0", keystore.ErrCorrupt},
		"no token":          {"token = 0", keystore.ErrCorrupt},
		"no revision":       {"revision = 0", keystore.ErrCorrupt},
		"no first claim":    {"since_us = -1", keystore.ErrCorrupt},
		"generation":        {"generation = -1", keystore.ErrCorrupt},
		"begun":             {"begun = 7", keystore.ErrCorrupt},
	} {
		t.Run(name, func(t *testing.T) {
			s, db := b.open(t, b.NewDSN(t))
			db.SetMaxOpenConns(1) // Unchecked is one connection's
			p := params()
			o := claim(t, s, p, keystore.Acquired).Owner
			if b.Unchecked != "" {
				run(t, db, b.Unchecked)
			}
			run(t, db, "UPDATE idem_records SET expires_us = 1, "+tt.set)
			if tt.want == keystore.ErrCorrupt {
				o.Token++ // its own owner alone settles a record without a look at the rest
			}

			r := rival(p)
			r.Takeover = true
			for range 2 {
				_, err := s.Claim(t.Context(), r)
				b.wantError(t, "claim", err, tt.want)
			}
			_, err := s.Records(t.Context(), keystore.Query{ID: &p.ID})
			b.wantError(t, "records", err, tt.want)
			b.wantError(t, "renew", s.Renew(t.Context(), o, keystore.RenewParams{Lease: long}), tt.want)
			b.wantError(t, "complete", s.Complete(t.Context(), o, keystore.CompleteParams{Retention: long}), tt.want)
			b.wantError(t, "release", s.Release(t.Context(), o, keystore.ReleaseParams{How: keystore.Reject}), tt.want)

			if tt.want == keystore.ErrFormat {
				if n, err := s.Purge(t.Context(), 10); n != 0 || err != nil {
					t.Errorf("Purge removed %d records, %v; want 0: the format is unknown", n, err)
				}
			}
			var n int
			if err := db.QueryRow("SELECT count(*) FROM idem_records WHERE expires_us = 1").Scan(&n); err != nil || n != 1 {
				t.Errorf("%d rows are as they were, %v; want 1", n, err)
			}
		})
	}
}

// migrations: many at once, then one that finds a newer schema.
func migrations(t *testing.T, b Backend) {
	dsn := b.NewDSN(t)
	var wg sync.WaitGroup
	for range 8 {
		db := b.connect(t, dsn)
		wg.Go(func() {
			if err := b.Migrate(t.Context(), db); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	db := b.connect(t, dsn)
	var version int
	if err := db.QueryRow("SELECT max(version) FROM idem_records_schema").Scan(&version); err != nil || version != 1 {
		t.Fatalf("the schema has version %d, %v; want 1", version, err)
	}
	run(t, db, "UPDATE idem_records_schema SET version = 2")
	b.wantError(t, "migrate", b.Migrate(t.Context(), db), sqltable.ErrSchema)
}

// manyNewKeys: no deadlock and no busy database reaches the caller.
func manyNewKeys(t *testing.T, b Backend) {
	dsn := b.NewDSN(t)
	for _, inTx := range []bool{false, true} {
		one, _ := b.open(t, dsn)
		other, _ := b.open(t, dsn)
		var wg sync.WaitGroup
		for i := range 50 {
			wg.Go(func() {
				s := []Store{one, other}[i%2]
				p := params()
				var err error
				if inTx {
					err = throughTx(t, s, p)
				} else {
					var c keystore.Claim
					if c, err = s.Claim(t.Context(), p); err == nil && c.Status != keystore.Acquired {
						err = errors.New(c.Status.String())
					}
				}
				if err != nil {
					t.Errorf("a claim to a new record (in a transaction: %t): %v", inTx, err)
				}
			})
		}
		wg.Wait()
		recs, err := one.Records(t.Context(), keystore.Query{Limit: 1000})
		if want := 50; err != nil || !inTx && len(recs) != want || inTx && len(recs) != 2*want {
			t.Errorf("there are %d records, %v", len(recs), err)
		}
	}
}

// throughTx claims in a transaction, and again as long as it is InFlight.
func throughTx(t *testing.T, s Store, p keystore.ClaimParams) error {
	deadline := time.NewTimer(20 * time.Second)
	defer deadline.Stop()
	for {
		c, err := claimInTx(t.Context(), s, p, nil)
		if err != nil || c.Status == keystore.Acquired {
			return err
		}
		select {
		case <-deadline.C:
			return errors.New("the record stayed in flight")
		default:
		}
	}
}
