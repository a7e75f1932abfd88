package txtest

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/idem-go/idem/keystore"
)

// A row that exists already is the application's own business: it may answer a
// refusal, which is kept, or go on, and what it did before is not spoiled.
func TestUniqueViolation(t *testing.T) {
	onEach(t, func(t *testing.T, b *backend) {
		for _, tt := range []struct {
			name string
			// careful keeps the error from the transaction.
			careful bool
			status  int
			answer  string
			effects int
			// next is what a retry gets.
			next string
		}{
			{"refused", true, 409, "409 first", 0, "409 replayed"},
			{"refused at once", false, 409, "409 first", 0, "409 replayed"},
			{"gone on", true, 201, "201 first", 2, "201 replayed"},
			{"failed", false, 500, "500", 0, "500"},
		} {
			t.Run(tt.name, func(t *testing.T) {
				db, _ := b.open(t)
				if err := b.takeSeat(t.Context(), db, "12a"); err != nil {
					t.Fatal(err)
				}
				h := newServer(t, db.store).Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					ctx := r.Context()
					take := func(h handle) error { return b.takeSeat(ctx, h, "12a") }
					err := b.effect(ctx, "before")
					if err != nil {
						t.Errorf("the effect before: %v", err)
					}
					if tt.careful {
						err = b.try(ctx, take)
					} else {
						err = take(b.in(ctx))
					}
					if !taken(err) {
						t.Errorf("taking a seat twice: %v", err)
					}
					if tt.careful {
						if err := b.effect(ctx, "after"); err != nil {
							t.Errorf("the effect after: %v", err)
						}
					}
					w.WriteHeader(tt.status)
				}))
				want(t, post(h, "k", "{}"), tt.answer)
				records := 1
				if tt.next == "500" {
					records = 0
				}
				db.state(t, tt.effects, records)
				want(t, post(h, "k", "{}"), tt.next)
				db.state(t, tt.effects, records)
			})
		}
	})
}

// An application that takes no notice of an error gets no commit out of a
// transaction that its database has given up.
func TestUnnoticedViolation(t *testing.T) {
	t.Parallel()
	b := postgres
	db, _ := b.open(t)
	if err := b.takeSeat(t.Context(), db, "12a"); err != nil {
		t.Fatal(err)
	}
	seat := "12a"
	h := newServer(t, db.store).Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := b.effect(r.Context(), "before"); err != nil {
			t.Errorf("the effect: %v", err)
		}
		_ = b.takeSeat(r.Context(), b.in(r.Context()), seat)
		w.WriteHeader(201)
	}))
	want(t, post(h, "k", "{}"), "503 rolled-back")
	db.state(t, 0, 0)
	seat = "12b"
	want(t, post(h, "k", "{}"), "201 first")
	db.state(t, 1, 1)
}

var errUndo = errors.New("undo")

// B151, B153: a claim that meets another one, whatever its state, leaves the
// transaction of its caller as it was.
func TestClaimConflict(t *testing.T) {
	onEach(t, func(t *testing.T, b *backend) {
		for _, level := range []string{"", b.serializable} {
			dsn := b.newDSN(t) + level
			db := b.create(t, dsn, 8)
			there := b.reopen(t, dsn, 8)
			h := newServer(t, db.store).Handler(status(201))
			for i, name := range []string{"done", "done with another payload", "claimed"} {
				key := fmt.Sprint("k", i)
				p := keystore.ClaimParams{ID: keystore.RecordID(keystore.Server, "single-tenant", "key", key),
					Nonce: [16]byte{1}, Lease: time.Minute, Keep: time.Minute}
				wanted := keystore.Mismatch
				if name == "claimed" {
					wanted = keystore.InFlight
					if c, err := there.store.Claim(t.Context(), p); err != nil || c.Status != keystore.Acquired {
						t.Fatal(c.Status, err)
					}
				} else {
					want(t, post(h, key, "{}"), "201 first")
				}
				if name == "done" {
					wanted = keystore.Completed
					recs, err := db.store.Records(t.Context(), keystore.Query{ID: &p.ID})
					if err != nil || len(recs) != 1 {
						t.Fatal(len(recs), err)
					}
					p.Fingerprint = recs[0].Fingerprint
				}
				p.Nonce = [16]byte{2}
				before, err := db.number(t.Context(), "SELECT count(*) FROM effects")
				if err != nil {
					t.Fatal(err)
				}
				err = db.store.InTx(t.Context(), func(ctx context.Context, in keystore.Store) error {
					if err := b.effect(ctx, "before"); err != nil {
						return err
					}
					if c, err := in.Claim(ctx, p); err != nil || c.Status != wanted {
						t.Errorf("%s%s: the claim answered %v, %v; want %v", name, level, c.Status, err, wanted)
					}
					return b.effect(ctx, "after")
				})
				after, countErr := db.number(t.Context(), "SELECT count(*) FROM effects")
				if err != nil || countErr != nil || after != before+2 {
					t.Errorf("%s%s: InTx: %v, %d effects, %v; want %d", name, level, err, after, countErr, before+2)
				}
			}
			if !b.oneWriter {
				committedMeanwhile(t, db, there)
			}
		}
	})
}

// committedMeanwhile claims in a transaction what another one has claimed and
// committed since it began, which it may not be able to see.
func committedMeanwhile(t *testing.T, db, there *database) {
	t.Helper()
	h := newServer(t, there.store).Handler(status(201))
	p := keystore.ClaimParams{ID: keystore.RecordID(keystore.Server, "single-tenant", "key", "meanwhile"),
		Nonce: [16]byte{3}, Lease: time.Minute, Keep: time.Minute}
	err := db.store.InTx(t.Context(), func(ctx context.Context, in keystore.Store) error {
		if err := db.effect(ctx, "before"); err != nil {
			return err
		}
		want(t, post(h, "meanwhile", "{}"), "201 first")
		if c, err := in.Claim(ctx, p); err != nil || c.Status != keystore.InFlight && c.Status != keystore.Mismatch {
			t.Errorf("a claim behind what was committed meanwhile answered %v, %v", c.Status, err)
		}
		return db.effect(ctx, "after")
	})
	if err != nil {
		t.Errorf("InTx of a claim behind what was committed meanwhile: %v", err)
	}
}

// B152: whatever becomes of a winner that is not committed yet, who claims
// after it is told the truth, in the transaction where it asks.
func TestClaimBehindUncommitted(t *testing.T) {
	onEach(t, func(t *testing.T, b *backend) {
		for name, commits := range map[string]bool{"commits": true, "rolls back": false} {
			db, dsn := b.open(t)
			there := b.reopen(t, dsn, 4)
			p := keystore.ClaimParams{ID: sha256.Sum256([]byte(name)), Nonce: [16]byte{1}, Lease: time.Minute, Keep: time.Minute}
			rival := p
			rival.Nonce = [16]byte{2}
			ask := func() (status keystore.Status) {
				err := there.store.InTx(t.Context(), func(ctx context.Context, in keystore.Store) error {
					c, err := in.Claim(ctx, rival)
					status = c.Status
					return errors.Join(err, errUndo)
				})
				if !errors.Is(err, errUndo) {
					t.Errorf("%s: InTx: %v", name, err)
				}
				return status
			}
			err := db.store.InTx(t.Context(), func(ctx context.Context, in keystore.Store) error {
				c, err := in.Claim(ctx, p)
				if err != nil || c.Status != keystore.Acquired {
					t.Errorf("%s: the winner's claim: %v, %v", name, c.Status, err)
				}
				if got := ask(); got != keystore.InFlight {
					t.Errorf("%s: meanwhile it is %v", name, got)
				}
				if !commits {
					return errUndo
				}
				return in.Complete(ctx, c.Owner, keystore.CompleteParams{Retention: time.Minute})
			})
			if (err == nil) != commits {
				t.Errorf("%s: InTx: %v", name, err)
			}
			if got, wanted := ask(), map[bool]keystore.Status{true: keystore.Completed, false: keystore.Acquired}[commits]; got != wanted {
				t.Errorf("%s: afterwards it is %v, want %v", name, got, wanted)
			}
		}
	})
}

// B153: where every transaction is serializable by default, the database aborts
// some of them. That is a rollback that says so, and a retry runs.
func TestSerializable(t *testing.T) {
	const keys, each = 8, 6
	t.Parallel()
	for _, b := range []*backend{postgres, mariadb} {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			dsn := b.newDSN(t) + b.serializable
			dbs := []*database{b.create(t, dsn, 8), b.reopen(t, dsn, 8)}
			handle := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				// Reading what others write makes conflicts likely.
				_, err := b.in(r.Context()).number(r.Context(), "SELECT count(*) FROM effects")
				if err == nil {
					err = b.effect(r.Context(), "e")
				}
				if err != nil {
					w.WriteHeader(503)
					return
				}
				w.WriteHeader(201)
			})
			var mounts []http.Handler
			for _, db := range dbs {
				mounts = append(mounts, newServer(t, db.store).Handler(handle))
			}
			var all sync.WaitGroup
			for i := range keys * each {
				all.Go(func() {
					for range 100 {
						switch got := short(post(mounts[i%2], fmt.Sprint(i%keys), "{}")); got {
						case "503", "503 rolled-back", "409 in-flight":
						case "201 first", "201 replayed":
							return
						default:
							t.Errorf("got %q", got)
							return
						}
					}
					t.Error("100 tries were not enough")
				})
			}
			all.Wait()
			dbs[0].state(t, keys, keys)
		})
	}
}
