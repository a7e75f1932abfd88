package pgstore

import (
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/keystore"
	"github.com/idem-go/idem/keystore/keystoretest"
)

func isolation(level string) func(*pgxpool.Config) {
	return func(cfg *pgxpool.Config) { cfg.ConnConfig.RuntimeParams["default_transaction_isolation"] = level }
}

func mode(m pgx.QueryExecMode) func(*pgxpool.Config) {
	return func(cfg *pgxpool.Config) { cfg.ConnConfig.DefaultQueryExecMode = m }
}

func conns(n int32) func(*pgxpool.Config) {
	return func(cfg *pgxpool.Config) { cfg.MaxConns = n }
}

func TestContract(t *testing.T) {
	t.Parallel()
	for name, setup := range map[string]func(t *testing.T) *pgxpool.Pool{
		"read committed B152": func(t *testing.T) *pgxpool.Pool { return newPool(t, serverURL, conns(16)) },
		"serializable B153": func(t *testing.T) *pgxpool.Pool {
			return newPool(t, serverURL, conns(16), isolation("serializable"))
		},
		"pooler B155": func(t *testing.T) *pgxpool.Pool {
			return newPool(t, newPooler(t, serverURL), conns(16))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := newStore(t, setup(t))
			keystoretest.Run(t, func(*testing.T) keystore.Store { return store })
		})
	}
}

// Every mode of pgx sends and reads the same bytes and times.
func TestModes(t *testing.T) {
	for _, m := range []pgx.QueryExecMode{
		pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
	} {
		t.Run(m.String(), func(t *testing.T) {
			store := newStore(t, newPool(t, serverURL, mode(m)))
			p := params()
			p.Meta = []byte("a\x00\xff\\'")
			c := claim(t, store, p, keystore.Acquired)
			claim(t, store, rival(p), keystore.InFlight)
			if err := store.Renew(t.Context(), c.Owner, keystore.RenewParams{Lease: long}); err != nil {
				t.Fatal(err)
			}
			complete(t, store, c.Owner, "r\x00\xff\\'")
			complete(t, store, c.Owner, "repeated")
			got := claim(t, store, rival(p), keystore.Completed).Record
			if string(got.Meta) != string(p.Meta) || string(got.Result) != "r\x00\xff\\'" {
				t.Errorf("Meta %q, Result %q came back", got.Meta, got.Result)
			}
			if recs, err := store.Records(t.Context(), keystore.Query{Scope: &p.Scope, Unresolved: true}); err != nil || len(recs) != 0 {
				t.Errorf("Records: %d, %v", len(recs), err)
			}
			q := params()
			release(t, store, claim(t, store, q, keystore.Acquired).Owner, keystore.Reject)
			release(t, store, claim(t, store, rival(q), keystore.Acquired).Owner, keystore.Abandon)
			if _, err := store.Purge(t.Context(), 10); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestNewRefuses(t *testing.T) {
	pool := newPool(t, serverURL)
	for field, cfg := range map[string]Config{
		"Config.Table is":   {Table: `x"; DROP TABLE y; --`},
		"Config.Table has":  {Table: strings.Repeat("x", maxTable+1)},
		"Config.MaxResult":  {MaxResult: -1},
		"Config.MaxResult ": {MaxResult: maxResult + 1},
	} {
		_, err := New(pool, cfg)
		migrateErr := Migrate(t.Context(), pool, cfg)
		for _, err := range []error{err, migrateErr} {
			if err == nil || !strings.Contains(err.Error(), field) {
				t.Errorf("%+v: %v, want an error that names %s", cfg, err, field)
			}
		}
	}
	if _, err := New(nil, Config{}); err == nil {
		t.Error("New took no pool")
	}
	if err := Migrate(t.Context(), nil, Config{}); err == nil {
		t.Error("Migrate took no pool")
	}
}

func TestMaxResult(t *testing.T) {
	pool := newPool(t, serverURL)
	store := openStore(t, pool, Config{Table: newStore(t, pool).cfg.Table, MaxResult: 10})
	p := params()
	o := claim(t, store, p, keystore.Acquired).Owner
	over := keystore.CompleteParams{Result: make([]byte, 11), Retention: long}
	stranger := o
	stranger.Token++
	if err := store.Complete(t.Context(), stranger, over); !errors.Is(err, keystore.ErrFenced) {
		t.Fatalf("Complete over MaxResult by a stranger: %v, want ErrFenced", err)
	}
	if err := store.Complete(t.Context(), o, over); !errors.Is(err, keystore.ErrTooLarge) {
		t.Fatalf("Complete over MaxResult: %v, want ErrTooLarge", err)
	}
	complete(t, store, o, "0123456789") // the record was unchanged
	if err := store.Complete(t.Context(), o, over); err != nil {
		t.Fatalf("repeated Complete: %v, want success", err)
	}
}

func BenchmarkStore(b *testing.B) {
	for _, m := range []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeExec} {
		b.Run(m.String(), func(b *testing.B) {
			store := newStore(b, newPool(b, serverURL, conns(16), mode(m)))
			keystoretest.Bench(b, func(*testing.B) keystore.Store { return store })
		})
	}
}
