package crash

import (
	"context"
	"errors"
	"fmt"

	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	_ "github.com/mattn/go-sqlite3" // reads the clock of the machine, in a bubble too

	"database/sql"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/servertest"
	"github.com/idem-go/idem/internal/storeurl"
	"github.com/idem-go/idem/keystore"
	"github.com/idem-go/idem/keystore/sqlitestore"
	"github.com/idem-go/idem/server"
)

// opened opens and migrates a store.
func opened(t *testing.T, url string) *storeurl.Opened {
	t.Helper()
	store, err := storeurl.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	if err := store.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	return store
}

// smallDisk is a store on a disk of its own with room for 4 MiB, and functions
// that fill it and free it again. Only root may mount one: for others the
// database itself may not grow.
func smallDisk(t *testing.T) (store *storeurl.Opened, fill func(), free func()) {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=4m"); err != nil {
		return smallDatabase(t)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	filler := filepath.Join(dir, "filler")
	fill = func() {
		f, err := os.Create(filler)
		if err != nil {
			t.Error(err)
			return
		}
		defer f.Close()
		block := make([]byte, 4<<10)
		for err == nil {
			_, err = f.Write(block)
		}
		if !errors.Is(err, syscall.ENOSPC) {
			t.Error(err)
		}
	}
	free = func() {
		if err := os.Remove(filler); err != nil {
			t.Error(err)
		}
	}
	return opened(t, "sqlite:"+filepath.Join(dir, "idem.db")), fill, free
}

func smallDatabase(t *testing.T) (store *storeurl.Opened, fill func(), free func()) {
	store = opened(t, "sqlite:"+filepath.Join(t.TempDir(), "idem.db"))
	store.SQL.SetMaxOpenConns(1) // which has the setting
	limit := func(pages int) func() {
		return func() {
			// It is never less than there are.
			if _, err := store.SQL.Exec(fmt.Sprintf("PRAGMA max_page_count = %d", pages)); err != nil {
				t.Error(err)
			}
		}
	}
	return store, limit(1), limit(1 << 30)
}

// B084, B092: the disk is full when the client half's record is to be settled.
// The caller gets what is true; the record is settled when there is room, or is
// unresolved; nothing is executed anew.
func TestDiskFullClient(t *testing.T) {
	store, fill, free := smallDisk(t)
	cfg := idem.Config{Store: store.Store, Scope: "shop", Lease: 2 * time.Second}
	client, err := idem.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	result := strings.Repeat("r", 1<<19) // more than what is left in the last page
	executed := 0
	charge := func(fill func()) func(context.Context, idem.Key) (string, error) {
		return func(context.Context, idem.Key) (string, error) {
			executed++
			fill()
			return result, nil
		}
	}
	res, err := idem.Do(t.Context(), client, idem.Intent{ID: "o1"}, charge(fill))
	if err != nil || res.Value != result || res.Source != idem.SourceExecuted {
		t.Fatalf("%v, %v", res.Report, err)
	}
	rec := only(t, store.Store)
	if rec.State != keystore.Running {
		t.Fatalf("the record is %v: the disk was not full", rec.State)
	}
	if _, err := idem.Do(t.Context(), newClient(t, cfg), idem.Intent{ID: strings.Repeat("o2", 10_000)}, charge(func() {})); !errors.Is(err, idem.ErrNotExecuted) || executed != 1 {
		t.Errorf("a claim without room: %v, %d executed", err, executed)
	}
	free()
	if err := client.Shutdown(t.Context()); err != nil { // waits for what is settled later
		t.Fatal(err)
	}
	res, err = idem.Do(t.Context(), newClient(t, cfg), idem.Intent{ID: "o1"}, charge(func() {}))
	if err != nil || res.Source != idem.SourceReplayed || res.Value != result || executed != 1 {
		t.Errorf("%v, %v, %d executed", res.Report, err, executed)
	}
}

// The same of the server half: the answer is true, and the key stays closed.
func TestDiskFullServer(t *testing.T) {
	store, fill, free := smallDisk(t)
	srv, err := server.New(server.Config{Store: store.Store, Effects: server.Opaque, Scope: server.SingleTenant, Lease: 2 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	result := strings.Repeat("r", 1<<19)
	executed := 0
	in := idem.Intent{Scope: "shop", ID: "o1"}
	got, err := server.Run(t.Context(), srv, in, func(context.Context) (string, error) {
		executed++
		fill()
		return result, nil
	})
	if err != nil || got != result {
		t.Fatalf("%.20q, %v", got, err)
	}
	if rec := only(t, store.Store); rec.State != keystore.Running {
		t.Fatalf("the record is %v: the disk was not full", rec.State)
	}
	free()
	if err := srv.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	srv, err = server.New(server.Config{Store: store.Store, Effects: server.Opaque, Scope: server.SingleTenant})
	if err != nil {
		t.Fatal(err)
	}
	res, err := server.RunResult(t.Context(), srv, in, func(context.Context) (string, error) {
		executed++
		return "", nil
	})
	if err != nil || res.Source != idem.SourceReplayed || res.Value != result || executed != 1 {
		t.Errorf("%v, %v, %d executed", res.Report, err, executed)
	}
}

func newClient(t *testing.T, cfg idem.Config) *idem.Client {
	t.Helper()
	client, err := idem.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func only(t *testing.T, store keystore.Store) keystore.Record {
	t.Helper()
	recs, err := store.Records(t.Context(), keystore.Query{})
	if err != nil || len(recs) != 1 {
		t.Fatalf("%d records, %v", len(recs), err)
	}
	return recs[0]
}

// B146: two nodes whose clocks are ten minutes apart, and decades from the
// store's. Leases, ages and hints are those of the store's clock.
func TestClocks(t *testing.T) {
	dsn := "file:" + filepath.Join(t.TempDir(), "idem.db") + "?_busy_timeout=10000&_txlock=immediate&_synchronous=FULL"
	open := func() keystore.Store {
		db, err := sql.Open("sqlite3", dsn)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = db.Close() })
		if err := sqlitestore.Migrate(t.Context(), db, sqlitestore.Config{}); err != nil {
			t.Fatal(err)
		}
		store, err := sqlitestore.New(db, sqlitestore.Config{})
		if err != nil {
			t.Fatal(err)
		}
		return store
	}
	const lease = time.Minute
	ahead, behind := open(), open()
	ask := func(store keystore.Store, nonce byte) (c keystore.Claim) {
		p := keystore.ClaimParams{ID: [32]byte{1}, Lease: lease, Keep: time.Hour, Begun: true, Nonce: [16]byte{nonce}}
		c, err := store.Claim(t.Context(), p)
		if err != nil {
			t.Error(err)
		}
		return c
	}
	node := func(offset time.Duration, f func()) {
		synctest.Test(t, func(t *testing.T) {
			time.Sleep(time.Hour + offset)
			f()
		})
	}
	var owner keystore.Owner
	node(5*time.Minute, func() {
		c := ask(ahead, 1)
		if owner = c.Owner; c.Status != keystore.Acquired {
			t.Errorf("claim: %v", c.Status)
		}
	})
	node(-5*time.Minute, func() {
		c := ask(behind, 2)
		if c.Status != keystore.InFlight || c.Record.LeaseLeft <= lease/2 || c.Record.LeaseLeft > lease || c.Record.Age < 0 || c.Record.Age > lease/2 {
			t.Errorf("the node behind sees %v, age %v, lease %v", c.Status, c.Record.Age, c.Record.LeaseLeft)
		}
		if err := behind.Renew(t.Context(), owner, keystore.RenewParams{Lease: lease}); err != nil {
			t.Errorf("renew: %v", err)
		}
		if err := behind.Complete(t.Context(), owner, keystore.CompleteParams{Retention: time.Hour}); err != nil {
			t.Errorf("complete: %v", err)
		}
	})
	node(5*time.Minute, func() {
		if c := ask(ahead, 3); c.Status != keystore.Completed {
			t.Errorf("then the node ahead sees %v", c.Status)
		}
	})
}

// The database is killed and restarted between two attempts: the call goes on,
// and its record is settled.
func TestRestartDuringBackoff(t *testing.T) {
	s := servertest.Postgres(t)
	store := opened(t, s.URL)
	client := newClient(t, idem.Config{Store: store.Store, Scope: "shop", Lease: 20 * time.Second,
		Policy: idem.Policy{Overall: 25 * time.Second, AttemptTimeout: 20 * time.Second}})
	attempts := 0
	restarted := make(chan error, 1)
	res, err := idem.Do(t.Context(), client, idem.Intent{ID: "o1"}, func(ctx context.Context, _ idem.Key) (string, error) {
		attempts++
		if attempts == 1 {
			s.Kill()
			go func() { restarted <- s.Restart() }()
			return "", idem.Unknown(errors.New("no reply"))
		}
		return "done", <-restarted
	})
	if err != nil || res.Value != "done" || res.Attempts != 2 {
		t.Fatalf("%+v, %v", res, err)
	}
	if err := client.Shutdown(t.Context()); err != nil { // settled later, if the pool had dead connections left
		t.Fatal(err)
	}
	if rec := only(t, store.Store); rec.State != keystore.Done {
		t.Errorf("the record is %v", rec.State)
	}
}
