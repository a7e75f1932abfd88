package txtest

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"github.com/idem-go/idem/internal/servertest"
	"github.com/idem-go/idem/keystore"
	"github.com/idem-go/idem/server"
)

// patience is how long a test waits for what must happen.
const patience = 30 * time.Second

// The servers that the tests share.
var postgresURL, mariaDSN string

// tests are the tests with the servers around them.
type tests struct{ *testing.M }

func (m tests) Run() int {
	if postgresURL = os.Getenv(servertest.PostgresEnv); postgresURL == "" {
		s, err := servertest.StartPostgres()
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer s.Stop()
		postgresURL = s.URL
	}
	if mariaDSN = os.Getenv(servertest.MySQLEnv); mariaDSN == "" {
		s, err := servertest.StartMariaDB(servertest.MariaDBOptions{})
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer s.Stop()
		mariaDSN = s.DSN("")
	}
	return m.M.Run()
}

func TestMain(m *testing.M) {
	// What the driver has to say of the connections that the tests break.
	_ = mysql.SetLogger(log.New(io.Discard, "", 0))
	if orders, ok := os.LookupEnv(childEnv); ok {
		os.Exit(runChild(orders))
	}
	goleak.VerifyTestMain(tests{m})
}

func startPostgres(t testing.TB) (victim, string) {
	s := servertest.Postgres(t)
	return postgresVictim{s, t}, s.URL
}

// postgresVictim dies whole: the processes that serve its connections outlive
// the first one by a moment, in which they may still commit.
type postgresVictim struct {
	*servertest.PostgresServer
	t testing.TB
}

func (v postgresVictim) Kill() {
	conn, err := pgx.Connect(context.Background(), v.URL)
	var pids []int
	if err == nil {
		rows, _ := conn.Query(context.Background(), "SELECT pid FROM pg_stat_activity")
		pids, err = pgx.CollectRows(rows, pgx.RowTo[int])
		_ = conn.Close(context.Background())
	}
	if err != nil {
		v.t.Errorf("asking PostgreSQL for its processes: %v", err)
	}
	v.PostgresServer.Kill()
	until(v.t, "all processes of PostgreSQL have ended", func() bool {
		return !slices.ContainsFunc(pids, func(pid int) bool {
			// That of a process that has ended, but was not waited for, is empty.
			line, err := os.ReadFile(fmt.Sprint("/proc/", pid, "/cmdline"))
			return err == nil && len(line) > 0
		})
	})
}

func startMariaDB(t testing.TB) (victim, string) {
	s := servertest.MariaDB(t, servertest.MariaDBOptions{})
	mariaAdmin(t, s.DSN(""), "CREATE DATABASE shop")
	return s, s.DSN("shop") + mariaSettings
}

var backends = []*backend{postgres, sqlite, mariadb}

// onEach runs a test on every database.
func onEach(t *testing.T, test func(*testing.T, *backend)) {
	t.Parallel()
	for _, b := range backends {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			test(t, b)
		})
	}
}

// newServer returns a server on the store that ends with the test.
func newServer(t testing.TB, store txStore, change ...func(*server.Config)) *server.Server {
	t.Helper()
	cfg := server.Config{Store: store, Effects: server.Transaction, Scope: server.SingleTenant}
	for _, c := range change {
		c(&cfg)
	}
	s, err := server.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := s.Shutdown(ctx); err != nil {
			t.Errorf("Shutdown: %v", err)
		}
	})
	return s
}

func post(h http.Handler, key, body string) *httptest.ResponseRecorder {
	r := httptest.NewRequest("POST", "/orders", strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Idempotency-Key", key)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// short is an answer in one line: its status, and whether it is a replay or the
// code of a problem.
func short(w *httptest.ResponseRecorder) string {
	var p struct{ Code string }
	switch replayed := w.Header().Get("Idempotent-Replayed"); {
	case w.Header().Get("Content-Type") == "application/problem+json":
		_ = json.Unmarshal(w.Body.Bytes(), &p)
		return fmt.Sprint(w.Code, " ", p.Code)
	case replayed == "true":
		return fmt.Sprint(w.Code, " replayed")
	case replayed == "false":
		return fmt.Sprint(w.Code, " first")
	}
	return fmt.Sprint(w.Code)
}

func want(t testing.TB, w *httptest.ResponseRecorder, answer string) {
	t.Helper()
	if got := short(w); got != answer {
		t.Fatalf("got %q, want %q; body: %s", got, answer, w.Body)
	}
}

// state holds the tables against what is expected: effects, and records, all of
// which are done.
func (db *database) state(t testing.TB, effects, records int) {
	t.Helper()
	n, err := db.number(t.Context(), "SELECT count(*) FROM effects")
	if err != nil {
		t.Fatal(err)
	}
	recs, err := db.store.Records(t.Context(), keystore.Query{Limit: 1000})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range recs {
		if r.State != keystore.Done {
			t.Errorf("a record is %v", r.State)
		}
	}
	if n != effects || len(recs) != records {
		t.Fatalf("there are %d effects and %d records, want %d and %d", n, len(recs), effects, records)
	}
}

// until waits for what must happen, on any goroutine.
func until(t testing.TB, what string, holds func() bool) {
	t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Errorf("waited in vain until %s", what)
			return
		}
	}
}

// hooked is a store whose transactions a test can interfere with. It is no
// Waiter, as a store in another process would be.
type hooked struct {
	txStore
	// claimed is told what a claim in a transaction has answered.
	claimed func(keystore.Status)
	// beforeCommit is called where a settled record is about to be committed,
	// afterCommit once it was; its error is InTx's.
	beforeCommit func()
	afterCommit  func() error
}

// inTx is the store in such a transaction.
type inTx struct {
	keystore.Store
	all     *hooked
	settled bool
}

func (h *hooked) InTx(ctx context.Context, fn func(context.Context, keystore.Store) error) error {
	in := &inTx{all: h}
	err := h.txStore.InTx(ctx, func(ctx context.Context, s keystore.Store) error {
		in.Store = s
		err := fn(ctx, in)
		if err == nil && in.settled && h.beforeCommit != nil {
			h.beforeCommit()
		}
		return err
	})
	if err == nil && in.settled && h.afterCommit != nil {
		err = h.afterCommit()
	}
	return err
}

func (in *inTx) Claim(ctx context.Context, p keystore.ClaimParams) (keystore.Claim, error) {
	c, err := in.Store.Claim(ctx, p)
	if err == nil && in.all.claimed != nil {
		in.all.claimed(c.Status)
	}
	return c, err
}

func (in *inTx) Complete(ctx context.Context, o keystore.Owner, p keystore.CompleteParams) error {
	err := in.Store.Complete(ctx, o, p)
	in.settled = in.settled || err == nil
	return err
}
