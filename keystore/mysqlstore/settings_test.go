package mysqlstore

import (
	"cmp"
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/idem-go/idem/internal/sqltable"
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
	if !errors.Is(err, want) || !strings.HasPrefix(err.Error(), "mysqlstore: "+op+": ") {
		t.Errorf("%s failed with %v; want %v, beginning with the store and the operation", op, err, want)
	}
}

func exec(t *testing.T, db *sql.DB, statement string) {
	t.Helper()
	if _, err := db.ExecContext(t.Context(), statement); err != nil {
		t.Fatal(err)
	}
}

func TestNewRefuses(t *testing.T) {
	db := open(t, serverDSN)
	for field, tt := range map[string]struct {
		db  *sql.DB
		cfg Config
	}{
		"*sql.DB":          {nil, Config{}},
		"Config.Table":     {db, Config{Table: "a`; DROP TABLE b"}},
		"Config.MaxResult": {db, Config{MaxResult: -1}},
	} {
		if _, err := New(tt.db, tt.cfg); err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("New(%v, %+v) = %v, want an error that names %s", tt.db, tt.cfg, err, field)
		}
		if err := Migrate(t.Context(), tt.db, tt.cfg); err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("Migrate(%v, %+v) = %v, want an error that names %s", tt.db, tt.cfg, err, field)
		}
	}
	if n := db.Stats().OpenConnections; n != 0 {
		t.Errorf("New opened %d connections", n)
	}
}

func TestTablesOfOneDatabase(t *testing.T) {
	db := open(t, newDSN(t))
	one, other := newStore(t, db, Config{}), newStore(t, db, Config{Table: "Select"}) // a word of SQL
	p := params()
	claim(t, one, p, keystore.Acquired)
	claim(t, other, rival(p), keystore.Acquired)
}

func TestSchemaByHand(t *testing.T) {
	cfg := Config{Table: "other"}
	db := open(t, newDSN(t)+"&multiStatements=true")
	for range 2 {
		exec(t, db, Schema(cfg))
	}
	s, err := New(db, cfg)
	if err != nil {
		t.Fatal(err)
	}
	claim(t, s, params(), keystore.Acquired)
	if err := Migrate(t.Context(), db, cfg); err != nil {
		t.Fatal(err)
	}
}

func TestMigrateRefuses(t *testing.T) {
	dsn := newDSN(t)
	db := open(t, dsn)
	wantError(t, "migrate", Migrate(t.Context(), db, Config{MaxResult: 1 << 30}), ErrSchema)
	wantError(t, "migrate", Migrate(t.Context(), open(t, dsn+"&autocommit=0"), Config{}), ErrSchema)
	exec(t, db, "ALTER TABLE idem_records ENGINE = MyISAM")
	wantError(t, "migrate", Migrate(t.Context(), db, Config{}), ErrSchema)
	exec(t, db, "DROP TABLE idem_records")
	wantError(t, "migrate", Migrate(t.Context(), db, Config{}), ErrSchema)
}

func TestNoTable(t *testing.T) {
	s, err := New(open(t, newDSN(t)), Config{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.Claim(t.Context(), params())
	wantError(t, "claim", err, ErrSchema)
}

func TestReadOnly(t *testing.T) {
	dsn := newDSN(t)
	writable := newStore(t, open(t, dsn), Config{})
	p := params()
	o := claim(t, writable, p, keystore.Acquired).Owner
	db := open(t, dsn+"&tx_read_only=1")
	s := newStore(t, db, Config{}) // has nothing to do
	claim(t, s, rival(p), keystore.InFlight)
	_, err := s.Claim(t.Context(), params())
	wantError(t, "claim", err, ErrReadOnly)
	wantError(t, "renew", s.Renew(t.Context(), o, keystore.RenewParams{Lease: long}), ErrReadOnly)
	wantError(t, "migrate", Migrate(t.Context(), db, Config{Table: "other"}), ErrReadOnly)
}

func TestUnreachable(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	l.Close()
	db := open(t, "root@tcp("+addr+")/idem")
	s, err := New(db, Config{})
	if err != nil {
		t.Fatal(err)
	}
	_, claimErr := s.Claim(t.Context(), params())
	for op, err := range map[string]error{
		"claim":   claimErr,
		"renew":   s.Renew(t.Context(), keystore.Owner{}, keystore.RenewParams{Lease: long}),
		"begin":   s.InTx(t.Context(), nil),
		"migrate": Migrate(t.Context(), db, Config{}),
	} {
		var network *net.OpError
		if !errors.As(err, &network) || !strings.HasPrefix(err.Error(), "mysqlstore: "+op+": ") {
			t.Errorf("%s failed with %v; want a *net.OpError, beginning with the store and the operation", op, err)
		}
	}
}

// Where the server has ended a transaction for a deadlock, it was not
// committed, whatever its function makes of the error.
func TestDeadlock(t *testing.T) {
	s := newStore(t, open(t, newDSN(t)), Config{})
	owners := []keystore.Owner{
		claim(t, s, params(), keystore.Acquired).Owner,
		claim(t, s, params(), keystore.Acquired).Owner,
	}
	var first sync.WaitGroup
	first.Add(2)
	errs := make([]error, 2)
	var all sync.WaitGroup
	for i := range 2 {
		all.Go(func() {
			errs[i] = s.InTx(t.Context(), func(ctx context.Context, in keystore.Store) error {
				_ = in.Renew(ctx, owners[i], keystore.RenewParams{Lease: 2 * long})
				first.Done()
				first.Wait()
				_ = in.Renew(ctx, owners[1-i], keystore.RenewParams{Lease: 3 * long})
				return nil
			})
		})
	}
	all.Wait()
	if err := cmp.Or(errs...); errs[0] != nil && errs[1] != nil || fault(err) != sqltable.Again {
		t.Fatalf("the transactions ended with %v and %v; want one to fail for the deadlock", errs[0], errs[1])
	}
}

// A transaction that lasts keeps nobody waiting for long who claims the same
// record outside of it.
func TestClaimBesideTransaction(t *testing.T) {
	db := open(t, newDSN(t))
	s := newStore(t, db, Config{})
	impatient := dialect
	impatient.Patience = 20 * time.Millisecond
	beside, err := sqltable.New(db, sqltable.DefaultName, 0, impatient)
	if err != nil {
		t.Fatal(err)
	}
	p := params()
	err = s.InTx(t.Context(), func(ctx context.Context, in keystore.Store) error {
		claim(t, in, p, keystore.Acquired)
		inFlight(t, beside, rival(p))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	claim(t, beside, p, keystore.Acquired)
}

// MySQL can't be told how long to wait, but not to wait for a row that is there.
func TestClaimInTxAsOnMySQL(t *testing.T) {
	db := open(t, newDSN(t))
	s := newStore(t, db, Config{})
	asOnMySQL := dialect
	asOnMySQL.Try = ""
	table, err := sqltable.New(db, sqltable.DefaultName, 0, asOnMySQL)
	if err != nil {
		t.Fatal(err)
	}
	p := params()
	o := claim(t, s, p, keystore.Acquired).Owner
	if err := s.Release(t.Context(), o, keystore.ReleaseParams{How: keystore.Forget}); err != nil {
		t.Fatal(err)
	}
	err = s.InTx(t.Context(), func(ctx context.Context, in keystore.Store) error {
		claim(t, in, rival(p), keystore.Acquired)
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		return table.Run(ctx, tx, true, func(other keystore.Store) error {
			inFlight(t, other, rival(p))
			return nil
		})
	})
	if err != nil {
		t.Fatal(err)
	}
}

// inFlight wants the answer well before innodb_lock_wait_timeout, 50 s.
func inFlight(t *testing.T, s keystore.Store, p keystore.ClaimParams) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if c, err := s.Claim(ctx, p); err != nil || c.Status != keystore.InFlight {
		t.Errorf("Claim answered %v, %v; want in-flight", c.Status, err)
	}
}
