package storeurl

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/idem-go/idem/keystore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestSQLite(t *testing.T) {
	path := filepath.Join(t.TempDir(), "with blank?no.db")
	for _, u := range []string{"sqlite:" + filepath.Join(t.TempDir(), "a.db"), "sqlite://" + filepath.Join(t.TempDir(), "b.db") + "?idem=mine", "sqlite:" + filepath.Dir(path) + "/with blank.db"} {
		s, err := Open(t.Context(), u)
		if err != nil {
			t.Fatal(u, err)
		}
		if err := s.Migrate(t.Context()); err != nil {
			t.Fatal(u, err)
		}
		if _, err := s.Store.Records(t.Context(), keystore.Query{}); err != nil {
			t.Error(u, err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestKinds(t *testing.T) {
	for u, kind := range map[string]string{
		"memory:": "memory",
		"postgres://u:p@127.0.0.1:1/db?sslmode=disable&idem=mine":      "postgres",
		"postgres:postgres://u:p@127.0.0.1:1/db":                       "postgres",
		"redis://127.0.0.1:1/0":                                        "redis",
		"redis:redis://127.0.0.1:1/0?idem=app:":                        "redis",
		"mysql://u:p@127.0.0.1/db?timeout=1s":                          "mysql",
		"mysql:u:p@tcp(127.0.0.1:1)/db?interpolateParams=true&idem=me": "mysql",
	} {
		s, err := Open(t.Context(), u)
		if err != nil {
			t.Error(u, err)
			continue
		}
		if s.Kind != kind {
			t.Errorf("%s is of kind %s", u, s.Kind)
		}
		_ = s.Close()
	}
}

func TestMySQLDSN(t *testing.T) {
	got, err := mysqlDSN("//user:p%40ss@host/shop?timeout=1s")
	if want := "user:p@ss@tcp(host:3306)/shop?interpolateParams=true&timeout=1s"; err != nil || got != want {
		t.Errorf("got %s, %v; want %s", got, err, want)
	}
}

func TestRefused(t *testing.T) {
	for _, u := range []string{
		"", "idem.db", "oracle:x", "sqlite:", "postgres://u:secret@h:port/db", "redis://:secret@h/notanumber",
		"mysql:nonsense", "mysql://u:secret@h:port/db", "mysql://u:secret@h/db?timeout=soon", "memory:?idem=%zz", "u:secret@host",
		"redis://:secret/x@h/0", "postgres://u:secret/x@h/db", "mysql://u:secret/x@h/db", "redis://:sec%zzret@h/0", "mysql://u:secret?x@h/db",
	} {
		_, err := Open(context.Background(), u)
		if !errors.Is(err, ErrURL) {
			t.Errorf("%q: got %v, want ErrURL", u, err)
		} else if strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: the error shows the password: %v", u, err)
		}
	}
}
