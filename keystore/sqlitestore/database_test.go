package sqlitestore

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	_ "modernc.org/sqlite"

	"github.com/idem-go/idem/keystore"
)

const long = time.Hour

func params() keystore.ClaimParams {
	p := keystore.ClaimParams{Fingerprint: [32]byte{1}, Lease: long, Keep: long, Begun: true}
	_, _ = rand.Read(p.ID[:])
	return rival(p)
}

func rival(p keystore.ClaimParams) keystore.ClaimParams {
	_, _ = rand.Read(p.Nonce[:])
	return p
}

func claim(t *testing.T, s keystore.Store, p keystore.ClaimParams, want keystore.Status) keystore.Claim {
	t.Helper()
	c, err := s.Claim(t.Context(), p)
	if err != nil || c.Status != want {
		t.Fatalf("Claim answered %v, %v; want %v", c.Status, err, want)
	}
	return c
}

// wantError wants the sentinel, and the store and the operation named.
func wantError(t *testing.T, op string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) || !strings.HasPrefix(err.Error(), "sqlitestore: "+op+": ") {
		t.Errorf("%s failed with %v; want %v, beginning with the store and the operation", op, err, want)
	}
}

// drivers are those whose errors the store knows, with what makes them safe.
var drivers = map[string]string{
	"sqlite3": "_busy_timeout=0&_synchronous=FULL",
	"sqlite":  "",
}

func forEachDriver(t *testing.T, test func(t *testing.T, open func(path, settings string) *sql.DB)) {
	for name, safe := range drivers {
		t.Run(name, func(t *testing.T) {
			test(t, func(path, settings string) *sql.DB {
				db, err := sql.Open(name, "file:"+path+"?"+safe+"&"+settings)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { db.Close() })
				return db
			})
		})
	}
}

// B084: where the disk is full, nothing is granted and nothing is lost.
func TestDiskFull(t *testing.T) {
	forEachDriver(t, func(t *testing.T, open func(path, settings string) *sql.DB) {
		db := open(filepath.Join(t.TempDir(), "idem.db"), "")
		db.SetMaxOpenConns(1) // the bound is one connection's
		s := newStore(t, db, Config{})
		p := params()
		o := claim(t, s, p, keystore.Acquired).Owner
		bound := func(pages string) {
			if _, err := db.Exec("PRAGMA max_page_count = " + pages); err != nil {
				t.Fatal(err)
			}
		}
		bound("1") // which means as many as there are
		big := keystore.CompleteParams{Result: make([]byte, 1<<20), Retention: long}
		wantError(t, "complete", s.Complete(t.Context(), o, big), keystore.ErrFull)
		wantError(t, "renew", s.Renew(t.Context(), o, keystore.RenewParams{Lease: long, Meta: make([]byte, keystore.MaxMeta)}), keystore.ErrFull)
		c := params()
		c.Meta = make([]byte, keystore.MaxMeta)
		_, err := s.Claim(t.Context(), c)
		wantError(t, "claim", err, keystore.ErrFull)
		err = s.InTx(t.Context(), func(ctx context.Context, in keystore.Store) error {
			_, err := in.Claim(ctx, c)
			wantError(t, "claim", err, keystore.ErrFull)
			return nil
		})
		wantError(t, "commit", err, keystore.ErrFull)

		claim(t, s, rival(p), keystore.InFlight)
		bound("100000")
		claim(t, s, rival(p), keystore.InFlight)
		claim(t, s, c, keystore.Acquired)
		if err := s.Complete(t.Context(), o, big); err != nil {
			t.Fatal(err)
		}
	})
}

func TestReadOnly(t *testing.T) {
	forEachDriver(t, func(t *testing.T, open func(path, settings string) *sql.DB) {
		path := filepath.Join(t.TempDir(), "idem.db")
		writable := newStore(t, open(path, ""), Config{})
		running, done := params(), params()
		o := claim(t, writable, running, keystore.Acquired).Owner
		err := writable.Complete(t.Context(), claim(t, writable, done, keystore.Acquired).Owner, keystore.CompleteParams{Retention: long})
		if err != nil {
			t.Fatal(err)
		}
		db := open(path, "mode=ro")
		if err := Migrate(t.Context(), db, Config{}); err != nil {
			t.Errorf("Migrate, which has nothing to do: %v", err)
		}
		wantError(t, "migrate", Migrate(t.Context(), db, Config{Table: "other"}), ErrReadOnly)
		s, err := New(db, Config{})
		if err != nil {
			t.Fatal(err)
		}
		claim(t, s, rival(done), keystore.Completed)
		claim(t, s, rival(running), keystore.InFlight)
		_, err = s.Claim(t.Context(), params())
		wantError(t, "claim", err, ErrReadOnly)
		wantError(t, "renew", s.Renew(t.Context(), o, keystore.RenewParams{Lease: long}), ErrReadOnly)
		wantError(t, "begin", s.InTx(t.Context(), nil), ErrReadOnly)
	})
}

// B082: a file of the right length, all NUL bytes, and one whose middle is.
func TestCorruptFile(t *testing.T) {
	forEachDriver(t, func(t *testing.T, open func(path, settings string) *sql.DB) {
		path := filepath.Join(t.TempDir(), "idem.db")
		db := open(path, "")
		s := newStore(t, db, Config{})
		var all []keystore.ClaimParams
		for range 50 {
			all = append(all, params())
			claim(t, s, all[len(all)-1], keystore.Acquired)
		}
		db.Close() // moves the log into the file
		whole, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, intact := range []int{0, 4096} {
			if err := os.WriteFile(path, append(whole[:intact:intact], make([]byte, len(whole)-intact)...), 0o600); err != nil {
				t.Fatal(err)
			}
			db := open(path, "")
			wantError(t, "migrate", Migrate(t.Context(), db, Config{}), keystore.ErrCorrupt)
			s, err := New(db, Config{})
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range all {
				_, err := s.Claim(t.Context(), rival(p))
				wantError(t, "claim", err, keystore.ErrCorrupt)
			}
			db.Close()
		}
	})
}

func TestUnreachable(t *testing.T) {
	forEachDriver(t, func(t *testing.T, open func(path, settings string) *sql.DB) {
		db := open(filepath.Join(t.TempDir(), "no such folder", "idem.db"), "")
		s, err := New(db, Config{})
		if err != nil {
			t.Fatal(err)
		}
		_, err = s.Claim(t.Context(), params())
		if err == nil || !strings.HasPrefix(err.Error(), "sqlitestore: claim: ") || errors.Is(err, keystore.ErrCorrupt) {
			t.Errorf("Claim: %v; want an error that names the store and the operation", err)
		}
		if err := Migrate(t.Context(), db, Config{}); err == nil || !strings.HasPrefix(err.Error(), "sqlitestore: migrate: ") {
			t.Errorf("Migrate: %v; want an error that names the store and the operation", err)
		}
	})
}

// B156: what finds the database busy waits as long as its context lives.
func TestBusy(t *testing.T) {
	forEachDriver(t, func(t *testing.T, open func(path, settings string) *sql.DB) {
		path := filepath.Join(t.TempDir(), "idem.db")
		writer, db := open(path, ""), open(path, "")
		s := newStore(t, db, Config{})
		p := params()
		claim(t, s, p, keystore.Acquired)
		tx, err := writer.BeginTx(t.Context(), nil)
		if err == nil {
			_, err = tx.Exec("UPDATE idem_records SET keep_us = keep_us")
		}
		if err != nil {
			t.Fatal(err)
		}
		claim(t, s, rival(p), keystore.InFlight) // is not kept waiting

		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		_, err = s.Claim(ctx, params())
		wantError(t, "claim", err, context.DeadlineExceeded)

		waiting := make(chan error)
		go func() {
			_, err := s.Claim(t.Context(), params())
			waiting <- err
		}()
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
		if err := <-waiting; err != nil {
			t.Fatal(err)
		}
	})
}
