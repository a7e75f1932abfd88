package pgstore

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/keystore"
)

// B094: a record that can't be read is never granted, and left as it is.
func TestUnreadableRecord(t *testing.T) {
	store := newStore(t, newPool(t, serverURL))
	for name, tt := range map[string]struct {
		sql  string
		want error
	}{
		"state 0":          {"state = 0", keystore.ErrCorrupt},
		"state 4":          {"state = 4", keystore.ErrCorrupt},
		"token 0":          {"token = 0", keystore.ErrCorrupt},
		"generation":       {"generation = 1::bigint << 32", keystore.ErrCorrupt},
		"scope":            {`scope = ''`, keystore.ErrCorrupt},
		"fingerprint":      {`fingerprint = fingerprint || '\x00'`, keystore.ErrCorrupt},
		"nonce":            {`nonce = '\x00'`, keystore.ErrCorrupt},
		"since":            {"since = '-infinity'", keystore.ErrCorrupt},
		"lease":            {"lease_until = '-infinity'", keystore.ErrCorrupt},
		"running, expires": {"expires = '2000-01-01'", keystore.ErrCorrupt},
		"done, forever":    {"state = 3", keystore.ErrCorrupt},
		"free, forever":    {"state = 1", keystore.ErrCorrupt},
		"newer format":     {"format = 2, state = 7, lease_until = '2000-01-01'", keystore.ErrFormat},
		"newer, expired":   {"format = 2, state = 3, expires = '2000-01-01'", keystore.ErrFormat},
	} {
		t.Run(name, func(t *testing.T) {
			p := params()
			o := claim(t, store, p, keystore.Acquired).Owner
			run(t, store, "UPDATE {table} SET "+tt.sql+" WHERE id = $1", p.ID[:])
			const row = "SELECT ctid::text || r::text FROM {table} AS r WHERE id = $1"
			before := query[string](t, store, row, p.ID[:])

			for _, p := range []keystore.ClaimParams{p, rival(p)} {
				for _, takeover := range []bool{false, true} {
					p.Takeover = takeover
					_, err := store.Claim(t.Context(), p)
					wantErr(t, err, tt.want, fmt.Sprintf("%x", p.ID))
				}
			}
			wantErr(t, store.Renew(t.Context(), o, keystore.RenewParams{Lease: long}), tt.want, "")
			wantErr(t, store.Complete(t.Context(), o, keystore.CompleteParams{Retention: long}), tt.want, "")
			for _, how := range []keystore.How{keystore.Forget, keystore.Reject, keystore.Abandon} {
				wantErr(t, store.Release(t.Context(), o, keystore.ReleaseParams{How: how}), tt.want, "")
			}
			_, err := store.Records(t.Context(), keystore.Query{ID: &p.ID})
			wantErr(t, err, tt.want, fmt.Sprintf("%x", p.ID))
			if _, err := store.Purge(t.Context(), 10); err != nil {
				t.Error(err)
			}
			if after := query[string](t, store, row, p.ID[:]); after != before {
				t.Errorf("the row was changed from\n%s\nto\n%s", before, after)
			}
		})
	}
}

// calls makes every call once.
func calls(ctx context.Context, s *Store) map[string]error {
	o := keystore.Owner{Nonce: [16]byte{1}, Token: 1}
	p := params()
	_, claimErr := s.Claim(ctx, p)
	_, recordsErr := s.Records(ctx, keystore.Query{})
	_, purgeErr := s.Purge(ctx, 1)
	return map[string]error{
		"claim":    claimErr,
		"renew":    s.Renew(ctx, o, keystore.RenewParams{Lease: long}),
		"complete": s.Complete(ctx, o, keystore.CompleteParams{Retention: long}),
		"release":  s.Release(ctx, o, keystore.ReleaseParams{How: keystore.Forget}),
		"records":  recordsErr,
		"purge":    purgeErr,
		"begin":    s.InTx(ctx, func(context.Context, keystore.Store) error { return nil }),
		"migrate":  Migrate(ctx, s.pool, s.cfg),
	}
}

func TestUnreachable(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	store := openStore(t, newPool(t, "postgres://idem@"+l.Addr().String()+"/x?sslmode=disable"), Config{})
	for op, err := range calls(t.Context(), store) {
		var e *pgconn.ConnectError
		if !errors.As(err, &e) || !strings.HasPrefix(err.Error(), "pgstore: "+op+": ") {
			t.Errorf("%s without a server: %v, want a ConnectError naming store and operation", op, err)
		}
	}
}

func TestReadOnly(t *testing.T) {
	store := openStore(t, newPool(t, serverURL, func(cfg *pgxpool.Config) {
		cfg.ConnConfig.RuntimeParams["default_transaction_read_only"] = "on"
	}), newStore(t, newPool(t, serverURL)).cfg)
	for op, err := range calls(t.Context(), store) {
		switch op {
		case "records", "begin", "migrate":
			if err != nil {
				t.Errorf("%s in a read-only database: %v, want success: it only reads", op, err)
			}
		default:
			const readOnlyTransaction = "25006"
			if code(err) != readOnlyTransaction || !strings.HasPrefix(err.Error(), "pgstore: "+op+": ") {
				t.Errorf("%s in a read-only database: %v, want the server's error naming store and operation", op, err)
			}
		}
	}
}

func TestCancelled(t *testing.T) {
	store := newStore(t, newPool(t, serverURL))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for op, err := range calls(ctx, store) {
		wantErr(t, err, context.Canceled, "pgstore: "+op)
	}
	if n := query[int](t, store, "SELECT count(*) FROM {table}"); n != 0 {
		t.Errorf("cancelled calls have left %d records", n)
	}
}

// A table that is not there is an error of the server, not an empty store.
func TestNoTable(t *testing.T) {
	store := openStore(t, newPool(t, serverURL), Config{Table: newTable(t)})
	const undefinedTable = "42P01"
	if _, err := store.Claim(t.Context(), params()); code(err) != undefinedTable {
		t.Errorf("Claim without a table: %v", err)
	}
}
