package pgstore

import (
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/keystore"
)

func TestMigrateAtOnce(t *testing.T) {
	cfg := Config{Table: newTable(t)}
	var wg sync.WaitGroup
	for i := range 8 {
		level := "read committed"
		if i%2 == 0 {
			level = "serializable"
		}
		pool := newPool(t, serverURL, isolation(level))
		wg.Go(func() {
			for range 2 {
				if err := Migrate(t.Context(), pool, cfg); err != nil {
					t.Errorf("%s: %v", level, err)
				}
			}
		})
	}
	wg.Wait()
}

// Where there is nothing to do, nothing is tried.
func TestMigrateReadOnly(t *testing.T) {
	readOnly := newPool(t, serverURL, func(cfg *pgxpool.Config) {
		cfg.ConnConfig.RuntimeParams["default_transaction_read_only"] = "on"
	})
	cfg := Config{Table: newTable(t)}
	if err := Migrate(t.Context(), readOnly, cfg); err == nil || !strings.HasPrefix(err.Error(), "pgstore: migrate: ") {
		t.Fatalf("Migrate in a database that is read-only: %v", err)
	}
	if err := Migrate(t.Context(), newPool(t, serverURL), cfg); err != nil {
		t.Fatal(err)
	}
	if err := Migrate(t.Context(), readOnly, cfg); err != nil {
		t.Fatalf("Migrate where the table is there: %v", err)
	}
}

func TestMigrateRefuses(t *testing.T) {
	store := newStore(t, newPool(t, serverURL))
	for comment, found := range map[string]int{
		"NULL": 0, "'somebody else''s'": 0, "'idem schema x'": 0, "'idem schema 0'": 0, "'idem schema 2'": 2,
	} {
		run(t, store, "COMMENT ON TABLE {table} IS "+comment)
		err := Migrate(t.Context(), store.pool, store.cfg)
		var e *SchemaError
		if !errors.As(err, &e) || e.Found != found || e.Known != schemaVersion || e.Table != store.cfg.Table {
			t.Errorf("Migrate of a table with the comment %s: %v, want a SchemaError with schema %d", comment, err, found)
		}
	}
}

func TestSchemaByHand(t *testing.T) {
	pool := newPool(t, serverURL)
	cfg := Config{Table: newTable(t)}
	if _, err := pool.Exec(t.Context(), Schema(cfg)); err != nil {
		t.Fatal(err)
	}
	if err := Migrate(t.Context(), pool, cfg); err != nil {
		t.Fatal(err)
	}
	claim(t, openStore(t, pool, cfg), params(), keystore.Acquired)
	if sql := Schema(Config{}); !strings.Contains(sql, `CREATE TABLE "idem_records" (`) {
		t.Errorf("the schema does not create the default table:\n%s", sql)
	}
	if sql := Schema(Config{Table: `x"; DROP TABLE y; --`}); strings.Contains(sql, `x"; DROP`) {
		t.Errorf("the schema lets a name out of its quotes:\n%s", sql)
	}
}
