package idem_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/keystore"
	"github.com/idem-go/idem/keystore/memstore"
)

// order is what most tests ask for, receipt what they get.
type order struct {
	ID     string
	Amount int
}

type receipt struct{ Charge string }

var errBoom = errors.New("boom")

// intent names the order o1 in the scope shop.
var intent = idem.Intent{Scope: "shop", ID: "o1", Payload: order{"o1", 42}}

func newClient(t testing.TB, cfg idem.Config) *idem.Client {
	t.Helper()
	c, err := idem.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // ends what goes on trying to reach a store
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		_ = c.Shutdown(ended)
	})
	return c
}

func newStore(t testing.TB) *memstore.Store {
	t.Helper()
	s, err := memstore.New(memstore.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// script is a decorated function that returns one error after the other, the
// last one again and again, and remembers the keys it was called with.
type script struct {
	errs []error

	mu   sync.Mutex
	keys []idem.Key
}

func answers(errs ...error) *script { return &script{errs: errs} }

func (s *script) call(_ context.Context, key idem.Key) (receipt, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keys = append(s.keys, key)
	n := len(s.keys)
	if err := s.errs[min(n, len(s.errs))-1]; err != nil {
		return receipt{}, err
	}
	return receipt{"ch_1"}, nil
}

func (s *script) calls() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.keys)
}

// sent returns the one key of all calls.
func (s *script) sent(t *testing.T) idem.Key {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.keys) == 0 {
		t.Fatal("nothing was sent")
	}
	for _, k := range s.keys {
		if k != s.keys[0] {
			t.Fatalf("keys differ between attempts: %v", s.keys)
		}
	}
	return s.keys[0]
}

// failure is the error of a call that must have one.
func failure(t *testing.T, err error) *idem.Error {
	t.Helper()
	var e *idem.Error
	if !errors.As(err, &e) {
		t.Fatalf("error %v (%T), want an *idem.Error", err, err)
	}
	return e
}

// wantOutcome checks an error's outcome, and that it is each of the sentinels.
func wantOutcome(t *testing.T, err error, o idem.Outcome, is ...error) *idem.Error {
	t.Helper()
	e := failure(t, err)
	if e.Outcome != o {
		t.Fatalf("outcome %v, want %v: %v", e.Outcome, o, err)
	}
	for _, target := range is {
		if !errors.Is(err, target) {
			t.Fatalf("error %q is not %q", err, target)
		}
	}
	return e
}

// wantSource checks a result.
func wantSource[T any](t *testing.T, res idem.Result[T], err error, s idem.Source) {
	t.Helper()
	if err != nil {
		t.Fatalf("Do: %v; want a result, %v", err, s)
	}
	if res.Source != s || res.Outcome != idem.OutcomeExecuted {
		t.Fatalf("source %v, outcome %v; want %v, executed", res.Source, res.Outcome, s)
	}
}

// records returns all that the store holds.
func records(t *testing.T, s keystore.Store) []keystore.Record {
	t.Helper()
	recs, err := s.Records(t.Context(), keystore.Query{})
	if err != nil {
		t.Fatal(err)
	}
	return recs
}

// record returns the only record of the store.
func record(t *testing.T, s keystore.Store) keystore.Record {
	t.Helper()
	recs := records(t, s)
	if len(recs) != 1 {
		t.Fatalf("the store has %d records, want 1", len(recs))
	}
	return recs[0]
}

// keyIn returns the key that a record keeps.
func keyIn(t *testing.T, rec keystore.Record) idem.Key {
	t.Helper()
	var m struct {
		Key idem.Key `json:"k"`
	}
	if err := json.Unmarshal(rec.Meta, &m); err != nil {
		t.Fatalf("meta %q: %v", rec.Meta, err)
	}
	return m.Key
}

// hookStore is a store with a log of its calls, and a hook around them.
type hookStore struct {
	keystore.Store
	// hook gets the method's name and the call; what it returns is the error.
	hook func(method string, call func() error) error
	// onClaim may change what a claim answers.
	onClaim func(*keystore.Claim)

	mu  sync.Mutex
	log []string
}

func (h *hookStore) do(method string, call func() error) error {
	h.note(method)
	if h.hook == nil {
		return call()
	}
	return h.hook(method, call)
}

// note appends to the log.
func (h *hookStore) note(what string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.log = append(h.log, what)
}

// noted returns the log.
func (h *hookStore) noted() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.log)
}

func (h *hookStore) count(what string) (n int) {
	for _, l := range h.noted() {
		if l == what {
			n++
		}
	}
	return n
}

func (h *hookStore) Claim(ctx context.Context, p keystore.ClaimParams) (cl keystore.Claim, err error) {
	err = h.do("claim", func() (err error) {
		cl, err = h.Store.Claim(ctx, p)
		return err
	})
	if err == nil && h.onClaim != nil {
		h.onClaim(&cl)
	}
	return cl, err
}

func (h *hookStore) Renew(ctx context.Context, o keystore.Owner, p keystore.RenewParams) error {
	return h.do("renew", func() error { return h.Store.Renew(ctx, o, p) })
}

func (h *hookStore) Complete(ctx context.Context, o keystore.Owner, p keystore.CompleteParams) error {
	return h.do("complete", func() error { return h.Store.Complete(ctx, o, p) })
}

func (h *hookStore) Release(ctx context.Context, o keystore.Owner, p keystore.ReleaseParams) error {
	return h.do("release "+p.How.String(), func() error { return h.Store.Release(ctx, o, p) })
}

// roundTripper is an http.RoundTripper without a wire.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// replies answers every request with the status.
func replies(status int, header ...string) roundTripper {
	return func(req *http.Request) (*http.Response, error) {
		h := http.Header{}
		for i := 0; i < len(header); i += 2 {
			h.Set(header[i], header[i+1])
		}
		return &http.Response{StatusCode: status, Header: h, Body: http.NoBody, Request: req}, nil
	}
}

// graceOver waits, in a bubble, until a flight without callers has ended.
func graceOver() {
	time.Sleep(2 * time.Second)
	synctest.Wait()
}

// after returns a context that ends after d.
func after(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}
