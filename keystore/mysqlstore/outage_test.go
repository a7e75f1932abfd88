package mysqlstore

import (
	"context"
	"crypto/rand"
	"strings"
	"testing"

	"github.com/idem-go/idem/internal/servertest"
	"github.com/idem-go/idem/internal/sqltable"
	"github.com/idem-go/idem/keystore"
)

// noise are bytes that no compression makes fewer.
func noise(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.Read(b)
	return b
}

// A server that became read_only, as a demoted one does, takes no claim from
// its owner. (Root and replication are above that setting, other users not.)
func TestReadOnlyServer(t *testing.T) {
	t.Parallel()
	server := servertest.MariaDB(t, servertest.MariaDBOptions{})
	admin := open(t, server.DSN(""))
	exec(t, admin, "CREATE DATABASE idem")
	exec(t, admin, "CREATE USER shop@'%'")
	exec(t, admin, "GRANT ALL ON idem.* TO shop@'%'")
	db := open(t, strings.Replace(server.DSN("idem"), "root@", "shop@", 1)+"?interpolateParams=true")
	s := newStore(t, db, Config{})
	running, done := params(), params()
	o := claim(t, s, running, keystore.Acquired).Owner
	settle := keystore.CompleteParams{Result: []byte("result"), Retention: long}
	if err := s.Complete(t.Context(), claim(t, s, done, keystore.Acquired).Owner, settle); err != nil {
		t.Fatal(err)
	}

	exec(t, admin, "SET GLOBAL read_only = 1")
	r := rival(running)
	r.Takeover = true
	_, claimErr := s.Claim(t.Context(), params())
	wantError(t, "claim", claimErr, ErrReadOnly)
	wantError(t, "renew", s.Renew(t.Context(), o, keystore.RenewParams{Lease: 1}), ErrReadOnly)
	wantError(t, "complete", s.Complete(t.Context(), o, settle), ErrReadOnly)
	wantError(t, "release", s.Release(t.Context(), o, keystore.ReleaseParams{How: keystore.Forget}), ErrReadOnly)
	wantError(t, "migrate", Migrate(t.Context(), db, Config{Table: "other"}), ErrReadOnly)
	err := s.InTx(t.Context(), func(ctx context.Context, in keystore.Store) error {
		_, err := in.Claim(ctx, params())
		wantError(t, "claim", err, ErrReadOnly)
		return err
	})
	wantError(t, "claim", err, ErrReadOnly)
	claim(t, s, r, keystore.InFlight) // what is only read goes on
	claim(t, s, rival(done), keystore.Completed)

	exec(t, admin, "SET GLOBAL read_only = 0")
	claim(t, s, r, keystore.InFlight)
	if err := s.Complete(t.Context(), o, settle); err != nil {
		t.Fatal(err)
	}
}

// B084: where the server has no room, nothing is granted and nothing is lost.
// All tables are in one file here, which may not grow any further; then the
// server refuses even to delete.
func TestServerFull(t *testing.T) {
	t.Parallel()
	server := servertest.MariaDB(t, servertest.MariaDBOptions{Args: []string{
		"--innodb-file-per-table=0", "--innodb-data-file-path=ibdata1:12M:autoextend:max:24M",
	}})
	db := open(t, newDatabase(t, server.DSN(""))+"?interpolateParams=true")
	s := newStore(t, db, Config{})
	p, late := params(), params()
	late.Meta = noise(keystore.MaxMeta)
	o := claim(t, s, p, keystore.Acquired).Owner
	big := keystore.CompleteParams{Result: noise(1 << 20), Retention: long}

	exec(t, db, "CREATE TABLE filler (b LONGBLOB)")
	for _, size := range []int{1 << 20, 16 << 10} {
		var err error
		for n := 0; err == nil && n < 24<<20; n += size {
			_, err = db.ExecContext(t.Context(), "INSERT INTO filler VALUES (REPEAT('x', ?))", size)
		}
		if fault(err) != sqltable.Full {
			t.Fatalf("filling the file: %v, want no room in the end", err)
		}
	}
	_, claimErr := s.Claim(t.Context(), late)
	for op, err := range map[string]error{
		"claim":    claimErr,
		"renew":    s.Renew(t.Context(), o, keystore.RenewParams{Lease: long, Meta: late.Meta}),
		"complete": s.Complete(t.Context(), o, big),
		"release":  s.Release(t.Context(), o, keystore.ReleaseParams{How: keystore.Abandon, Meta: late.Meta}),
	} {
		wantError(t, op, err, keystore.ErrFull)
	}
	recs, err := s.Records(t.Context(), keystore.Query{})
	if err != nil || len(recs) != 1 || recs[0].State != keystore.Running || recs[0].Token != o.Token || recs[0].LeaseLeft <= 0 {
		t.Errorf("the records are %v, %v; want the one as it was", recs, err)
	}
	claim(t, s, rival(p), keystore.InFlight)
}
