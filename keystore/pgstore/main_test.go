package pgstore

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"

	"github.com/idem-go/idem/internal/servertest"
	"github.com/idem-go/idem/keystore"
)

const (
	// long is a time that does not end during a test.
	long = time.Hour
	// patience is how long a test waits for what must happen.
	patience = 20 * time.Second
)

// serverURL is that of the server that the tests share.
var serverURL string

// tests are the tests with a server around them.
type tests struct{ *testing.M }

func (m tests) Run() int {
	if serverURL = os.Getenv(servertest.PostgresEnv); serverURL == "" {
		s, err := servertest.StartPostgres()
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer s.Stop()
		serverURL = s.URL
	}
	return m.M.Run()
}

func TestMain(m *testing.M) {
	if child := os.Getenv(childEnv); child != "" {
		os.Exit(runChild(child))
	}
	goleak.VerifyTestMain(tests{m})
}

// newPool connects to the server.
func newPool(t testing.TB, url string, options ...func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	for _, option := range options {
		option(cfg)
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// newStore returns a store in a table of its own.
func newStore(t testing.TB, pool *pgxpool.Pool) *Store {
	t.Helper()
	cfg := Config{Table: newTable(t)}
	if err := Migrate(t.Context(), pool, cfg); err != nil {
		t.Fatal(err)
	}
	return openStore(t, pool, cfg)
}

func openStore(t testing.TB, pool *pgxpool.Pool, cfg Config) *Store {
	t.Helper()
	s, err := New(pool, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// newTable returns the name of a table that is dropped after the test.
func newTable(t testing.TB) string {
	t.Helper()
	name := "Idem_" + rand.Text() // upper case too
	t.Cleanup(func() {
		pool, err := pgxpool.New(context.Background(), serverURL)
		if err != nil {
			t.Fatal(err)
		}
		defer pool.Close()
		if _, err := pool.Exec(context.Background(), "DROP TABLE IF EXISTS "+quoted(name)); err != nil {
			t.Error(err)
		}
	})
	return name
}

// run runs SQL in which {table} stands for the store's table.
func run(t testing.TB, s *Store, sql string, args ...any) {
	t.Helper()
	if _, err := s.pool.Exec(t.Context(), inTable(s, sql), args...); err != nil {
		t.Fatal(err)
	}
}

// query returns what run would.
func query[T any](t testing.TB, s *Store, sql string, args ...any) (v T) {
	t.Helper()
	if err := s.pool.QueryRow(t.Context(), inTable(s, sql), args...).Scan(&v); err != nil {
		t.Fatal(err)
	}
	return v
}

func inTable(s *Store, sql string) string {
	return strings.NewReplacer("{table}_payments", quoted(s.cfg.Table+"_payments"), "{table}", quoted(s.cfg.Table)).Replace(sql)
}

// params are those of a claim to a new record.
func params() keystore.ClaimParams {
	p := keystore.ClaimParams{Fingerprint: [32]byte{1}, Lease: long, Keep: long, Meta: []byte("meta")}
	rand.Read(p.ID[:])
	return rival(p)
}

// rival returns the parameters of another claim to the same record.
func rival(p keystore.ClaimParams) keystore.ClaimParams {
	rand.Read(p.Nonce[:])
	return p
}

// claim claims and wants the status.
func claim(t testing.TB, s keystore.Store, p keystore.ClaimParams, want keystore.Status) keystore.Claim {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	c, err := s.Claim(ctx, p)
	if err != nil || c.Status != want {
		t.Fatalf("Claim: %v, %v; want %v", c.Status, err, want)
	}
	return c
}

func complete(t testing.TB, s keystore.Store, o keystore.Owner, result string) {
	t.Helper()
	if err := s.Complete(t.Context(), o, keystore.CompleteParams{Result: []byte(result), Retention: long}); err != nil {
		t.Fatal(err)
	}
}

func release(t testing.TB, s keystore.Store, o keystore.Owner, how keystore.How) {
	t.Helper()
	if err := s.Release(t.Context(), o, keystore.ReleaseParams{How: how}); err != nil {
		t.Fatal(err)
	}
}

// wantErr wants the error, with the store and the operation in its text.
func wantErr(t testing.TB, err, want error, op string) {
	t.Helper()
	if !errors.Is(err, want) || !strings.Contains(fmt.Sprint(err), op) {
		t.Fatalf("the error is %v, want %v naming %q", err, want, op)
	}
}

// closes wants the channel to close.
func closes(t testing.TB, c <-chan struct{}) {
	t.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-c:
	case <-timer.C:
		t.Fatalf("nothing happened within %v", patience)
	}
}
