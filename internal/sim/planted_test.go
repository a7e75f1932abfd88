package sim

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/keyctx"
	"github.com/idem-go/idem/keystore"
	"github.com/idem-go/idem/server"
)

// within is in how many seeds a planted mistake has to be found.
const within = 1000

// finds plays seeds until one breaks one of the invariants, which without the
// mistake breaks none.
func finds(t *testing.T, p planted, invs ...Invariant) {
	t.Helper()
	var mu sync.Mutex
	var played int
	var first *Report
	each(t, 1, within, p, func(t *testing.T, rep Report) bool {
		found := slices.ContainsFunc(rep.Broken, func(v Violation) bool { return slices.Contains(invs, v.Invariant) }) &&
			len(bubble(t, rep.Seed, planted{}).Broken) == 0
		mu.Lock()
		defer mu.Unlock()
		played++
		if found && first == nil {
			first = &rep
		}
		return first == nil
	})
	if first == nil {
		t.Fatalf("not found in %d seeds", played)
	}
	i := slices.IndexFunc(first.Broken, func(v Violation) bool { return slices.Contains(invs, v.Invariant) })
	t.Logf("found after %d seeds, by seed %d: %v", played, first.Seed, first.Broken[i])
}

// A server that runs the handler before it claims.
func TestPlantedClaimAfterEffect(t *testing.T) {
	finds(t, planted{
		begin: func(context.Context) error { return nil },
		handler: func(orders http.Handler, srv *server.Server) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				key, err := idem.ParseKey(r.Header.Get("Idempotency-Key"))
				if err != nil {
					http.Error(w, err.Error(), http.StatusBadRequest)
					return
				}
				body, _ := io.ReadAll(r.Body)
				again := r.Clone(r.Context())
				again.Body = io.NopCloser(bytes.NewReader(body))
				r.Body = io.NopCloser(bytes.NewReader(body))
				early := httptest.NewRecorder()
				orders.ServeHTTP(early, r.WithContext(keyctx.With(r.Context(), string(key))))
				srv.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					w.WriteHeader(early.Code)
					_, _ = w.Write(early.Body.Bytes())
				})).ServeHTTP(w, again)
			})
		},
	}, OneEffect)
}

// A store that lets anybody complete a record.
func TestPlantedUnfencedComplete(t *testing.T) {
	finds(t, planted{store: func(s keystore.Store) keystore.Store {
		return &unfenced{Store: s, owners: map[[32]byte]keystore.Owner{}}
	}}, OneEffect, ExecutedIsTrue, RejectedIsTrue, NotExecutedIsTrue, ExecutedStays)
}

// unfenced takes every Complete for one of the record's owner.
type unfenced struct {
	keystore.Store

	mu     sync.Mutex // guards owners
	owners map[[32]byte]keystore.Owner
}

func (u *unfenced) Claim(ctx context.Context, p keystore.ClaimParams) (keystore.Claim, error) {
	c, err := u.Store.Claim(ctx, p)
	if err == nil && c.Status == keystore.Acquired {
		u.mu.Lock()
		defer u.mu.Unlock()
		u.owners[p.ID] = c.Owner
	}
	return c, err
}

func (u *unfenced) Complete(ctx context.Context, o keystore.Owner, p keystore.CompleteParams) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.Store.Complete(ctx, u.owners[o.ID], p)
}

// A client that takes a new key for each attempt.
func TestPlantedKeyPerAttempt(t *testing.T) {
	finds(t, planted{wire: func(below http.RoundTripper) http.RoundTripper { return &minting{below: below} }}, OneEffect)
}

type minting struct {
	below http.RoundTripper
	made  atomic.Int64
}

// RoundTrip implements http.RoundTripper.
func (m *minting) RoundTrip(req *http.Request) (*http.Response, error) {
	if key := req.Header.Get("Idempotency-Key"); key != "" {
		req = req.Clone(req.Context())
		req.Header.Set("Idempotency-Key", key+"-"+strconv.FormatInt(m.made.Add(1), 10))
	}
	return m.below.RoundTrip(req)
}
