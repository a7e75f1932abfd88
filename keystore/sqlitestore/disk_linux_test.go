package sqlitestore

import (
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/idem-go/idem/keystore"
)

// B084: a real disk without room. The file of the database may not grow, nor
// the log of what is to go there; TestDiskFull bounds the first of these alone,
// and needs no right to mount anything.
func TestSmallDisk(t *testing.T) {
	forEachDriver(t, func(t *testing.T, open func(path, settings string) *sql.DB) {
		dir := t.TempDir()
		if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=4m"); err != nil {
			t.Logf("no disk of our own may be mounted here (%v): TestDiskFull has to do", err)
			return
		}
		t.Cleanup(func() {
			if err := syscall.Unmount(dir, 0); err != nil {
				t.Error(err)
			}
		})
		db := open(filepath.Join(dir, "idem.db"), "")
		s := newStore(t, db, Config{})
		p, late := params(), params()
		o := claim(t, s, p, keystore.Acquired).Owner
		late.Meta = make([]byte, keystore.MaxMeta)
		big := keystore.CompleteParams{Result: make([]byte, 1<<20), Retention: long}

		filler := filepath.Join(dir, "filler")
		fill(t, filler)
		_, claimErr := s.Claim(t.Context(), late)
		for op, err := range map[string]error{
			"claim":    claimErr,
			"renew":    s.Renew(t.Context(), o, keystore.RenewParams{Lease: long, Meta: late.Meta}),
			"complete": s.Complete(t.Context(), o, big),
			"release":  s.Release(t.Context(), o, keystore.ReleaseParams{How: keystore.Abandon, Meta: late.Meta}),
		} {
			wantError(t, op, err, keystore.ErrFull)
		}
		if recs, err := s.Records(t.Context(), keystore.Query{}); err != nil || len(recs) != 1 || recs[0].State != keystore.Running {
			t.Errorf("the records are %v, %v; want the one as it was", recs, err)
		}
		claim(t, s, rival(p), keystore.InFlight)

		if err := os.Remove(filler); err != nil {
			t.Fatal(err)
		}
		claim(t, s, rival(p), keystore.InFlight)
		if err := s.Complete(t.Context(), o, big); err != nil {
			t.Fatal(err)
		}
		if got := claim(t, s, rival(p), keystore.Completed).Record; string(got.Result) != string(big.Result) {
			t.Error("another result came back")
		}
		claim(t, s, late, keystore.Acquired)
	})
}

// fill takes what room the file's disk has left.
func fill(t *testing.T, file string) {
	t.Helper()
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for block := []byte(strings.Repeat("x", 4<<10)); err == nil; {
		_, err = f.Write(block)
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
}
