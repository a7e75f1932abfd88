package crash

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/idem-go/idem/internal/servertest"
	"github.com/idem-go/idem/internal/storeurl"
)

// backend is the server of a store, if it has one.
type backend struct {
	name  string
	modes []string
	// url is that of a new, empty store for one run.
	url func(t *testing.T, run string) string
	// kill kills the server and starts it again; nil if there is none.
	kill func() error
}

var backends = []struct {
	name  string
	start func(*testing.T) backend
}{{"sqlite", sqlite}, {"postgres", postgres}, {"redis", redis}, {"mariadb", mariadb}}

var allModes = []string{"opaque", "marked", "idempotent", "transaction"}

func sqlite(*testing.T) backend {
	return backend{name: "sqlite", modes: allModes, url: func(t *testing.T, _ string) string {
		return "sqlite:" + filepath.Join(t.TempDir(), "idem.db")
	}}
}

func postgres(t *testing.T) backend {
	s := servertest.Postgres(t)
	return backend{name: "postgres", modes: allModes,
		url:  func(_ *testing.T, run string) string { return s.URL + "&idem=crash_" + run },
		kill: func() error { s.Kill(); return s.Restart() }}
}

func redis(t *testing.T) backend {
	s := servertest.Redis(t, servertest.RedisOptions{AOF: true})
	return backend{name: "redis", modes: []string{"opaque", "marked", "idempotent"}, // it has no transactions
		url:  func(_ *testing.T, run string) string { return "redis://" + s.Addr + "/0?idem=crash:" + run + ":" },
		kill: func() error { s.Kill(); return s.Restart() }}
}

func mariadb(t *testing.T) backend {
	s := servertest.MariaDB(t, servertest.MariaDBOptions{})
	db, err := sql.Open("mysql", s.DSN(""))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.ExecContext(t.Context(), `CREATE DATABASE crash`); err != nil {
		t.Fatal(err)
	}
	return backend{name: "mariadb", modes: allModes,
		url:  func(_ *testing.T, run string) string { return "mysql:" + s.DSN("crash") + "?idem=crash_" + run },
		kill: func() error { s.Kill(); return s.Restart() }}
}

// createEffects creates the table of the effects of Transaction mode.
func createEffects(ctx context.Context, s *storeurl.Opened) error {
	var err error
	switch s.Kind {
	case "postgres":
		_, err = s.Postgres.Exec(ctx, `CREATE TABLE effects (id bigserial PRIMARY KEY, intent text NOT NULL)`)
	case "sqlite":
		_, err = s.SQL.ExecContext(ctx, `CREATE TABLE effects (id integer PRIMARY KEY AUTOINCREMENT, intent text NOT NULL)`)
	case "mysql":
		_, err = s.SQL.ExecContext(ctx, `CREATE TABLE effects (id bigint AUTO_INCREMENT PRIMARY KEY, intent varchar(100) NOT NULL) ENGINE=InnoDB`)
	}
	return err
}

// rows are the effects of Transaction mode, by intent.
func rows(ctx context.Context, s *storeurl.Opened) (map[string][]int, error) {
	byID := map[string][]int{}
	const query = `SELECT id, intent FROM effects ORDER BY id`
	note := func(scan func(...any) error) error {
		var n int
		var id string
		err := scan(&n, &id)
		byID[id] = append(byID[id], n)
		return err
	}
	if s.Postgres != nil {
		rows, err := s.Postgres.Query(ctx, query)
		if err != nil {
			return nil, err
		}
		defer rows.Close()
		for rows.Next() {
			if err := note(rows.Scan); err != nil {
				return nil, err
			}
		}
		return byID, rows.Err()
	}
	if s.SQL == nil {
		return nil, fmt.Errorf("%s has no table of effects", s.Kind)
	}
	rows, err := s.SQL.QueryContext(ctx, query)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		if err := note(rows.Scan); err != nil {
			return nil, err
		}
	}
	return byID, rows.Err()
}
