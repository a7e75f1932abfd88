package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/keystore"
	"github.com/idem-go/idem/keystore/memstore"
	"github.com/idem-go/idem/server"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errDown = errors.New("the store is down")

func newStore(t testing.TB) keystore.Store {
	t.Helper()
	store, err := memstore.New(memstore.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return store
}

// newServer returns a server that ends with the test. What cfg leaves open is
// a store in memory, Opaque effects and one tenant.
func newServer(t testing.TB, cfg server.Config) *server.Server {
	t.Helper()
	if cfg.Store == nil {
		cfg.Store = newStore(t)
	}
	if cfg.Effects == 0 {
		cfg.Effects = server.Opaque
	}
	if cfg.Scope == nil {
		cfg.Scope = server.SingleTenant
	}
	s, err := server.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := s.Shutdown(ctx); err != nil {
			t.Errorf("Shutdown: %v", err)
		}
	})
	return s
}

func request(key, body string) *http.Request {
	r := httptest.NewRequest("POST", "/charges", strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	return r
}

func serve(h http.Handler, r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func post(h http.Handler, key, body string) *httptest.ResponseRecorder {
	return serve(h, request(key, body))
}

// code returns the code of a problem, or "" for another answer.
func code(w *httptest.ResponseRecorder) string {
	if w.Header().Get("Content-Type") != "application/problem+json" {
		return ""
	}
	var p struct{ Code string }
	_ = json.Unmarshal(w.Body.Bytes(), &p)
	return p.Code
}

// want checks status and, for a problem, its code.
func want(t testing.TB, w *httptest.ResponseRecorder, status int, problem string) {
	t.Helper()
	if w.Code != status || code(w) != problem {
		t.Fatalf("got %d %q, want %d %q; body: %s", w.Code, code(w), status, problem, w.Body)
	}
}

// wantReplay checks for a replay of the answer, and wantFirst for the answer
// itself.
func wantReplay(t testing.TB, w *httptest.ResponseRecorder, status int, body string) {
	t.Helper()
	wantAnswer(t, w, status, body, "true")
}

func wantFirst(t testing.TB, w *httptest.ResponseRecorder, status int, body string) {
	t.Helper()
	wantAnswer(t, w, status, body, "false")
}

func wantAnswer(t testing.TB, w *httptest.ResponseRecorder, status int, body, replayed string) {
	t.Helper()
	if got := w.Header().Get("Idempotent-Replayed"); w.Code != status || w.Body.String() != body || got != replayed {
		t.Fatalf("got %d %q, Idempotent-Replayed %q; want %d %q, %q", w.Code, w.Body, got, status, body, replayed)
	}
}

// counter is a handler that counts its runs and answers 201.
type counter struct {
	mu sync.Mutex
	n  int
	// do, if set, answers instead.
	do func(w http.ResponseWriter, r *http.Request, run int)
}

func (c *counter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	c.n++
	n := c.n
	c.mu.Unlock()
	if c.do != nil {
		c.do(w, r, n)
		return
	}
	w.WriteHeader(http.StatusCreated)
	_, _ = io.WriteString(w, "made")
}

func (c *counter) runs() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n
}

func (c *counter) want(t testing.TB, runs int) {
	t.Helper()
	if got := c.runs(); got != runs {
		t.Fatalf("ran %d times, want %d", got, runs)
	}
}

// status is a handler's do that answers with a status and a body.
func status(code int, body string) func(http.ResponseWriter, *http.Request, int) {
	return func(w http.ResponseWriter, _ *http.Request, _ int) {
		w.WriteHeader(code)
		_, _ = io.WriteString(w, body)
	}
}

// events collects what an observer is told.
type events struct {
	mu  sync.Mutex
	all []idem.Event
}

func (e *events) Observe(_ context.Context, ev idem.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all = append(e.all, ev)
}

// take returns the events so far and forgets them.
func (e *events) take() []idem.Event {
	e.mu.Lock()
	defer e.mu.Unlock()
	all := e.all
	e.all = nil
	return all
}

// names returns the names of the events so far, and forgets them.
func (e *events) names() string {
	var names []string
	for _, ev := range e.take() {
		names = append(names, ev.Name)
	}
	return strings.Join(names, " ")
}

// hooked is a store whose calls a test can interfere with. It is no Waiter, so
// waiting is by polls.
type hooked struct {
	keystore.Store
	claim    func(p keystore.ClaimParams, next func() (keystore.Claim, error)) (keystore.Claim, error)
	renew    func(p keystore.RenewParams, next func() error) error
	complete func(p keystore.CompleteParams, next func() error) error
	release  func(p keystore.ReleaseParams, next func() error) error
}

func (s *hooked) Claim(ctx context.Context, p keystore.ClaimParams) (keystore.Claim, error) {
	next := func() (keystore.Claim, error) { return s.Store.Claim(ctx, p) }
	if s.claim == nil {
		return next()
	}
	return s.claim(p, next)
}

func (s *hooked) Renew(ctx context.Context, o keystore.Owner, p keystore.RenewParams) error {
	next := func() error { return s.Store.Renew(ctx, o, p) }
	if s.renew == nil {
		return next()
	}
	return s.renew(p, next)
}

func (s *hooked) Complete(ctx context.Context, o keystore.Owner, p keystore.CompleteParams) error {
	next := func() error { return s.Store.Complete(ctx, o, p) }
	if s.complete == nil {
		return next()
	}
	return s.complete(p, next)
}

func (s *hooked) Release(ctx context.Context, o keystore.Owner, p keystore.ReleaseParams) error {
	next := func() error { return s.Store.Release(ctx, o, p) }
	if s.release == nil {
		return next()
	}
	return s.release(p, next)
}
