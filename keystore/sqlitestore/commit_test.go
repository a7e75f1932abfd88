package sqlitestore

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/idem-go/idem/keystore"
)

// Those who would wait for the writer share one commit. Where one of them fails,
// it fails alone.
func TestWritesShareACommit(t *testing.T) {
	const callers = 20
	for _, bad := range []int{0, 1} {
		t.Run(fmt.Sprintf("%d of them can't", bad), func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "idem.db")
			db := open(t, "file:"+path+"?_busy_timeout=0&_synchronous=FULL")
			s := newStore(t, db, Config{})
			if _, err := db.ExecContext(t.Context(), `CREATE TRIGGER no BEFORE INSERT ON idem_records
				WHEN NEW.meta = x'626164' BEGIN SELECT RAISE(ABORT, 'it is bad'); END`); err != nil {
				t.Fatal(err)
			}
			if err := s.table.Enter(t.Context()); err != nil {
				t.Fatal(err)
			}
			var wg sync.WaitGroup
			for i := range callers {
				p := keystore.ClaimParams{Lease: time.Hour, Keep: time.Hour, Begun: true, Meta: []byte("good")}
				_, _ = rand.Read(p.ID[:])
				_, _ = rand.Read(p.Nonce[:])
				isBad := i < bad
				if isBad {
					p.Meta = []byte("bad")
				}
				wg.Go(func() {
					c, err := s.Claim(t.Context(), p)
					if isBad {
						if err == nil || !strings.Contains(err.Error(), "it is bad") {
							t.Errorf("the bad one was answered %v, %v", c.Status, err)
						}
					} else if err != nil || c.Status != keystore.Acquired || c.Owner.Token != 1 {
						t.Errorf("a good one was answered %v, %v", c, err)
					}
				})
			}
			for deadline := time.Now().Add(time.Minute); s.table.Pending() < callers; runtime.Gosched() {
				if time.Now().After(deadline) {
					t.Fatalf("%d of %d writes are pending", s.table.Pending(), callers)
				}
			}
			before := commits(t, path)
			s.table.Leave()
			wg.Wait()
			switch n := commits(t, path) - before; {
			case bad == 0 && n > 2: // those who came first, and those who waited for them
				t.Errorf("%d commits for %d claims, want 2 at most", n, callers)
			case bad > 0 && n > callers-bad:
				t.Errorf("%d commits for %d claims", n, callers-bad)
			}
		})
	}
}

// commits counts the frames of the write-ahead log that end a transaction:
// those that say how large the database is then (sqlite.org/fileformat2.html).
func commits(t *testing.T, path string) (n int) {
	t.Helper()
	log, err := os.ReadFile(path + "-wal")
	if err != nil || len(log) < 32 {
		t.Fatalf("the log has %d bytes: %v", len(log), err)
	}
	page := int(binary.BigEndian.Uint32(log[8:]))
	for frame := log[32:]; len(frame) >= 24+page; frame = frame[24+page:] {
		if binary.BigEndian.Uint32(frame[4:]) != 0 {
			n++
		}
	}
	return n
}
