package pgstore

import (
	"context"
	"crypto/rand"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/internal/servertest"
	"github.com/idem-go/idem/keystore"
)

// What the server says where it finds no space.
const diskFull = "53100"

// smallDisk returns a store whose table is on a disk of its own, and functions
// that fill the disk and free it again. Only root may mount one: for others a
// trigger says what a server on a full disk does.
func smallDisk(t *testing.T) (s *Store, fill, free func()) {
	t.Helper()
	server := servertest.Postgres(t)
	pool := newPool(t, server.URL)
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=4m"); err != nil {
		return saysFull(t, pool)
	}
	// Lazily: this comes before the server's end, which holds files there.
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	// The folder has to be the server's, which may run as another user.
	var data string
	if err := pool.QueryRow(t.Context(), "SHOW data_directory").Scan(&data); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(data)
	if err != nil {
		t.Fatal(err)
	}
	owner := info.Sys().(*syscall.Stat_t)
	if err := os.Chown(dir, int(owner.Uid), int(owner.Gid)); err != nil {
		t.Fatal(err)
	}
	for up := filepath.Dir(dir); up != filepath.Clean(os.TempDir()) && up != "/"; up = filepath.Dir(up) {
		if err := os.Chmod(up, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	cfg := Config{Table: "small"}
	onDisk := newPool(t, server.URL, func(cfg *pgxpool.Config) {
		cfg.ConnConfig.RuntimeParams["default_tablespace"] = "small"
	})
	if _, err := pool.Exec(t.Context(), "CREATE TABLESPACE small LOCATION '"+dir+"'"); err != nil {
		t.Fatal(err)
	}
	if err := Migrate(t.Context(), onDisk, cfg); err != nil {
		t.Fatal(err)
	}
	filler := filepath.Join(dir, "filler")
	fill = func() {
		f, err := os.Create(filler)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		for block := make([]byte, 4<<10); err == nil; {
			_, err = f.Write(block)
		}
		if !errors.Is(err, syscall.ENOSPC) {
			t.Fatal(err)
		}
	}
	free = func() {
		if err := os.Remove(filler); err != nil {
			t.Fatal(err)
		}
	}
	return openStore(t, onDisk, cfg), fill, free
}

func saysFull(t *testing.T, pool *pgxpool.Pool) (s *Store, fill, free func()) {
	t.Helper()
	cfg := Config{Table: "small"}
	if err := Migrate(t.Context(), pool, cfg); err != nil {
		t.Fatal(err)
	}
	s = openStore(t, pool, cfg)
	run(t, s, `CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS
		$$ BEGIN RAISE EXCEPTION 'could not extend file' USING ERRCODE = '`+diskFull+`'; END $$`)
	fill = func() {
		run(t, s, "CREATE TRIGGER full_disk AFTER INSERT OR UPDATE ON {table} FOR EACH ROW EXECUTE FUNCTION full_disk()")
	}
	free = func() { run(t, s, "DROP TRIGGER full_disk ON {table}") }
	return s, fill, free
}

// noise are bytes that no compression makes fewer.
func noise(n int) []byte {
	b := make([]byte, n)
	rand.Read(b)
	return b
}

// B084: where the disk is full, nothing is granted and nothing is lost.
func TestDiskFull(t *testing.T) {
	t.Parallel()
	s, fill, free := smallDisk(t)
	p, late := params(), params()
	late.Meta = noise(keystore.MaxMeta)
	o := claim(t, s, p, keystore.Acquired).Owner
	big := keystore.CompleteParams{Result: noise(1 << 20), Retention: long}
	fill()

	_, claimErr := s.Claim(t.Context(), late)
	commitErr := s.InTx(t.Context(), func(ctx context.Context, inTx keystore.Store) error {
		// A claim leaves the transaction usable, any other call does not.
		if c, err := inTx.Claim(ctx, late); code(err) != diskFull || c.Status == keystore.Acquired {
			t.Errorf("a claim in a transaction on a full disk: %v, %v", c.Status, err)
		}
		if err := inTx.Complete(ctx, o, big); code(err) != diskFull {
			t.Errorf("a completion in a transaction on a full disk: %v", err)
		}
		return nil // which must not make it a success
	})
	if commitErr == nil || !strings.HasPrefix(commitErr.Error(), "pgstore: commit: ") {
		t.Errorf("the commit of a transaction that has failed: %v, want an error naming store and operation", commitErr)
	}
	for op, err := range map[string]error{
		"claim":    claimErr,
		"renew":    s.Renew(t.Context(), o, keystore.RenewParams{Lease: long, Meta: late.Meta}),
		"complete": s.Complete(t.Context(), o, big),
		"release":  s.Release(t.Context(), o, keystore.ReleaseParams{How: keystore.Abandon, Meta: late.Meta}),
	} {
		if code(err) != diskFull || keystore.Final(err) || !strings.HasPrefix(err.Error(), "pgstore: "+op+": ") {
			t.Errorf("%s on a full disk: %v, want the server's error naming store and operation", op, err)
		}
	}
	claim(t, s, rival(p), keystore.InFlight)

	free()
	claim(t, s, rival(p), keystore.InFlight)
	if err := s.Complete(t.Context(), o, big); err != nil {
		t.Fatal(err)
	}
	got := claim(t, s, rival(p), keystore.Completed).Record
	if string(got.Result) != string(big.Result) {
		t.Error("another result came back")
	}
	claim(t, s, late, keystore.Acquired)
}
