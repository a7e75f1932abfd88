package sqlitestore

import (
	"database/sql"
	"path/filepath"
	"strings"
	"testing"

	"github.com/idem-go/idem/keystore"
)

func TestNewRefuses(t *testing.T) {
	db := open(t, newDSN(t))
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
	db := open(t, newDSN(t))
	cfg := Config{Table: "other"}
	for range 2 {
		if _, err := db.Exec(Schema(cfg)); err != nil {
			t.Fatal(err)
		}
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

func TestMaxResult(t *testing.T) {
	s := newStore(t, open(t, newDSN(t)), Config{MaxResult: 10})
	o := claim(t, s, params(), keystore.Acquired).Owner
	wantError(t, "complete", s.Complete(t.Context(), o, keystore.CompleteParams{Result: make([]byte, 11), Retention: long}), keystore.ErrTooLarge)
	if err := s.Complete(t.Context(), o, keystore.CompleteParams{Result: make([]byte, 10), Retention: long}); err != nil {
		t.Fatal(err)
	}
}

// A pool whose connections have a database each would grant every claim.
func TestMemory(t *testing.T) {
	forEachDriver(t, func(t *testing.T, open func(path, settings string) *sql.DB) {
		db := open(":memory:", "")
		wantError(t, "migrate", Migrate(t.Context(), db, Config{}), ErrSchema)

		db = open(":memory:", "")
		db.SetMaxOpenConns(1)
		claim(t, newStore(t, db, Config{}), params(), keystore.Acquired)

		shared := "mode=memory&cache=shared"
		one, other := open("shared", shared), open("shared", shared)
		p := params()
		claim(t, newStore(t, one, Config{}), p, keystore.Acquired)
		claim(t, newStore(t, other, Config{}), rival(p), keystore.InFlight)
	})
}

func TestSynchronous(t *testing.T) {
	dsn := "file:" + filepath.Join(t.TempDir(), "idem.db")
	db := open(t, dsn) // the driver's default is NORMAL
	wantError(t, "migrate", Migrate(t.Context(), db, Config{}), ErrSchema)
	if err := Migrate(t.Context(), db, Config{Volatile: true}); err != nil {
		t.Fatal(err)
	}
	if err := Migrate(t.Context(), open(t, dsn+"?_synchronous=FULL"), Config{}); err != nil {
		t.Fatal(err)
	}
}
