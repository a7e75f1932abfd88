package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/servertest"
	"github.com/idem-go/idem/internal/storeurl"
	"github.com/idem-go/idem/keystore"
	"github.com/idem-go/idem/server"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(servertest.RedisTests(m)) }

// answered is what a run has written, and its exit code.
type answered struct {
	code        int
	out, errOut string
}

func idemWith(t *testing.T, in io.Reader, args ...string) answered {
	t.Helper()
	var out, errOut bytes.Buffer
	code := run(args, in, &out, &errOut)
	return answered{code, out.String(), errOut.String()}
}

// world is a store of SQLite, as the halves use it, and its URL for the tool.
type world struct {
	t     *testing.T
	url   string
	store keystore.Store
	*storeurl.Opened
}

func newWorld(t *testing.T) *world {
	t.Helper()
	return worldAt(t, "sqlite:"+filepath.Join(t.TempDir(), "idem.db"))
}

func worldAt(t *testing.T, url string) *world {
	t.Helper()
	if got := idemWith(t, nil, "migrate", "-store", url); got.code != exitOK {
		t.Fatalf("migrate: %+v", got)
	}
	s, err := storeurl.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return &world{t: t, url: url, store: s.Store, Opened: s}
}

// idem runs a command on the store, with nobody who answers questions.
func (w *world) idem(command string, args ...string) answered {
	w.t.Helper()
	return idemWith(w.t, strings.NewReader(""), append([]string{command, "-store", w.url}, args...)...)
}

// must is idem that must succeed. It returns what was written.
func (w *world) must(command string, args ...string) string {
	w.t.Helper()
	got := w.idem(command, args...)
	if got.code != exitOK || got.errOut != "" {
		w.t.Fatalf("idem %s %q: exit %d, %s%s", command, args, got.code, got.out, got.errOut)
	}
	return got.out
}

// refuses is idem that must exit with 1 and say this.
func (w *world) refuses(says, command string, args ...string) {
	w.t.Helper()
	if got := w.idem(command, args...); got.code != exitFailed || !strings.Contains(got.errOut, says) {
		w.t.Errorf("idem %s %q: exit %d, %s, want 1 and %q", command, args, got.code, got.errOut, says)
	}
}

func (w *world) client(cfg idem.Config) *idem.Client {
	w.t.Helper()
	cfg.Store, cfg.Policy = w.store, idem.Policy{Attempts: 1}
	c, err := idem.New(cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	return c
}

func (w *world) server(opts ...func(*server.Config)) *server.Server {
	w.t.Helper()
	cfg := server.Config{Store: w.store, Effects: server.Opaque, Scope: server.SingleTenant}
	for _, opt := range opts {
		opt(&cfg)
	}
	s, err := server.New(cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := s.Shutdown(ctx); err != nil {
			w.t.Error(err)
		}
	})
	return s
}

// receipt is what the functions return.
type receipt struct{ Charge string }

var (
	errLost = errors.New("the connection was lost")
	order   = idem.Intent{Scope: "shop", ID: "o1", Payload: map[string]int{"amount": 42}}
)

// do carries out an intent at the client half, by a function that fails with
// err, and returns the key that it was called with, if it was.
func (w *world) do(cfg idem.Config, in idem.Intent, err error) (idem.Result[receipt], idem.Key, error) {
	var sent idem.Key
	res, failed := idem.Do(w.t.Context(), w.client(cfg), in, func(_ context.Context, key idem.Key) (receipt, error) {
		sent = key
		return receipt{"fresh"}, err
	})
	return res, sent, failed
}

// send sends a request by the client half to a server that answers with this
// status, and tells whether it was asked.
func (w *world) send(cfg idem.Config, in idem.Intent, status int) (resp *http.Response, asked bool, err error) {
	w.t.Helper()
	base := roundTripper(func(r *http.Request) (*http.Response, error) {
		asked = true
		rec := httptest.NewRecorder()
		rec.WriteHeader(status)
		return rec.Result(), nil
	})
	ctx := idem.WithIntent(w.t.Context(), in)
	req, err := http.NewRequestWithContext(ctx, "POST", "http://api.test/charges", strings.NewReader(`{"amount":42}`))
	if err != nil {
		w.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err = w.client(cfg).Transport(base).RoundTrip(req)
	return resp, asked, err
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// run calls a function at the server half that fails with err.
func (w *world) run(in idem.Intent, err error, opts ...server.RouteOption) (idem.Result[receipt], error) {
	return server.RunResult(w.t.Context(), w.server(), in, func(context.Context) (receipt, error) {
		return receipt{"fresh"}, err
	}, opts...)
}

// serve sends a request with the key to a handler that answers with this
// status, and tells whether it was called.
func (w *world) serve(key, method string, status int, opts ...server.RouteOption) (rec *httptest.ResponseRecorder, called bool) {
	r := httptest.NewRequest(method, "/charges", strings.NewReader(`{"amount":42}`))
	r.Header.Set("Idempotency-Key", key)
	rec = httptest.NewRecorder()
	w.server().Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		called = true
		w.WriteHeader(status)
	}), opts...).ServeHTTP(rec, r)
	return rec, called
}

// unresolved leaves one record of each door unresolved. They are named by IDs
// and keys o1 to o4, and are 4, 3, 2 and 1 hours old.
func (w *world) unresolved() {
	w.t.Helper()
	_, _, _ = w.do(idem.Config{}, order, idem.Unknown(errLost))
	_, _, _ = w.send(idem.Config{}, idem.Intent{Scope: "shop", ID: "o2"}, 500)
	_, _ = w.run(idem.Intent{Scope: "jobs", ID: "o3"}, errLost)
	_, _ = w.serve("o4", "POST", 500)
	for hours, id := range [][32]byte{
		keystore.RecordID(keystore.Server, "single-tenant", "key", "o4"), keystore.RecordID(keystore.Server, "jobs", "id", "o3"),
		keystore.RecordID(keystore.Client, "shop", "id", "o2"), keystore.RecordID(keystore.Client, "shop", "id", "o1"),
	} {
		if rec := w.record(id); !rec.Unresolved() {
			w.t.Fatalf("record %x is %+v", id, rec)
		}
		w.exec(`UPDATE idem_records SET since_us = since_us - ? WHERE id = ?`, int64(hours+1)*time.Hour.Microseconds(), id[:])
	}
}

// exec changes the table of SQLite.
func (w *world) exec(sql string, args ...any) {
	w.t.Helper()
	if _, err := w.SQL.ExecContext(w.t.Context(), sql, args...); err != nil {
		w.t.Fatal(err)
	}
}

// record reads one record.
func (w *world) record(id [32]byte) keystore.Record {
	w.t.Helper()
	recs, err := w.store.Records(w.t.Context(), keystore.Query{ID: &id})
	if err != nil || len(recs) != 1 {
		w.t.Fatalf("%d records, %v", len(recs), err)
	}
	return recs[0]
}

// file returns the path of a file with the text.
func (w *world) file(text string) string {
	w.t.Helper()
	path := filepath.Join(w.t.TempDir(), "answer")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		w.t.Fatal(err)
	}
	return path
}

func decode[T any](t *testing.T, text string) (v T) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return v
}

var update = flag.Bool("update", false, "write what is found as what is wanted")

// golden compares with a file in testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s: got\n%s\nwant\n%s", name, got, want)
	}
}

func hexOf(id [32]byte) string { return fmt.Sprintf("%x", id) }
