package idemtest_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	_ "modernc.org/sqlite"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemtest"
	"github.com/idem-go/idem/keystore"
	"github.com/idem-go/idem/keystore/sqlitestore"
	"github.com/idem-go/idem/server"
)

// protected returns h behind the key layer, whose tenants a header names. What
// it leaves running ends with the test.
func protected(t *testing.T, cfg server.Config, h http.HandlerFunc, opts ...server.RouteOption) http.Handler {
	cfg.Scope = func(r *http.Request) (string, error) { return r.Header.Get("Tenant"), nil }
	cfg.MaxResponse = 500
	srv, err := server.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := srv.Shutdown(ctx); err != nil {
			t.Errorf("shutdown: %v", err)
		}
	})
	return srv.Handler(h, opts...)
}

// takeOrder is a handler that has its effect through charge.
func takeOrder(charge func(r *http.Request, order string) (string, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var c struct {
			Order string
			Pages int
		}
		if err := json.NewDecoder(r.Body).Decode(&c); err != nil {
			http.Error(w, "no order", http.StatusBadRequest)
			return
		}
		id, err := charge(r, c.Order)
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("Location", "/charges/"+id)
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, "%s %s", id, strings.Repeat("page ", 200*c.Pages))
	}
}

// Handlers behind the server half keep every rule.
func TestCheckHandlerBehindServer(t *testing.T) {
	for name, test := range map[string]struct {
		effects server.Effects
		opts    []server.RouteOption
		change  func(*idemtest.HandlerCheck)
	}{
		"opaque":     {effects: server.Opaque},
		"marked":     {effects: server.Marked},
		"idempotent": {effects: server.Idempotent},
		"no wait":    {effects: server.Marked, opts: []server.RouteOption{server.WithWait(server.NoWait)}},
		"optional": {effects: server.Marked, opts: []server.RouteOption{server.WithOptional()},
			change: func(c *idemtest.HandlerCheck) { c.Optional = true }},
		"unstored": {effects: server.Marked, opts: []server.RouteOption{server.WithoutStoredAnswer()},
			change: func(c *idemtest.HandlerCheck) { c.Unstored = true }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var ledger idemtest.Ledger
				var mu sync.Mutex // guards below
				below := map[idem.Key]string{}
				check := checkOf(&ledger, func(store keystore.Store, reached func()) http.Handler {
					charge := func(r *http.Request, order string) (string, error) {
						if err := server.BeginEffect(r.Context()); err != nil {
							return "", err
						}
						mu.Lock()
						// Two tenants may have chosen the same key.
						key, _ := idem.KeyFrom(r.Context())
						key = idem.DeriveKey(r.Header.Get("Tenant"), string(key))
						id := below[key]
						if id == "" || test.effects != server.Idempotent {
							id = fmt.Sprint("ch_", ledger.Record(order))
							below[key] = id
						}
						mu.Unlock()
						reached()
						return id, nil
					}
					return protected(t, server.Config{Store: store, Effects: test.effects}, takeOrder(charge), test.opts...)
				})
				if test.change != nil {
					test.change(&check)
				}
				idemtest.CheckHandler(t, check)
			})
		})
	}
}

// In a transaction the effect is undone by what goes wrong. The handler that
// has no moment of its own is given one by the store.
func TestCheckHandlerInTransaction(t *testing.T) {
	db, err := sql.Open("sqlite", filepath.Join(t.TempDir(), "shop.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	if _, err := db.ExecContext(t.Context(), "CREATE TABLE charges (id INTEGER PRIMARY KEY, intent TEXT)"); err != nil {
		t.Fatal(err)
	}
	if err := sqlitestore.Migrate(t.Context(), db, sqlitestore.Config{}); err != nil {
		t.Fatal(err)
	}
	store, err := sqlitestore.New(db, sqlitestore.Config{})
	if err != nil {
		t.Fatal(err)
	}
	check := checkOf(nil, func(store keystore.Store, reached func()) http.Handler {
		charge := func(r *http.Request, order string) (string, error) {
			ctx := r.Context()
			tx, ok := sqlitestore.TxFrom(ctx)
			if !ok {
				return "", sql.ErrTxDone
			}
			res, err := tx.ExecContext(ctx, "INSERT INTO charges (intent) VALUES (?)", order)
			if err != nil {
				return "", err
			}
			reached()
			n, err := res.LastInsertId()
			return fmt.Sprint("ch_", n), err
		}
		return protected(t, server.Config{Store: store, Effects: server.Transaction}, takeOrder(charge))
	})
	check.Store = store
	check.Effects = func(n int) (count int) {
		if err := db.QueryRowContext(t.Context(), "SELECT count(*) FROM charges WHERE intent = ?", order(n)).Scan(&count); err != nil {
			t.Error(err)
		}
		return count
	}
	idemtest.CheckHandler(t, check)
}

// A Provider keeps the rules, without a moment of its own, and with requests
// as clients make them.
func TestCheckHandlerProvider(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ledger idemtest.Ledger
		check := checkOf(&ledger, func(store keystore.Store, _ func()) http.Handler {
			p, err := idemtest.NewProvider(idemtest.ProviderConfig{Store: store, Ledger: &ledger})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = p.Shutdown(context.Background()) })
			return p
		})
		check.Large, check.AsAnother = nil, nil
		check.Request = func(n int) *http.Request {
			return newPost(t, "http://provider.test/charges", "", fmt.Sprintf(`{"reference": %q, "amount": 1200, "currency": "EUR"}`, order(n)))
		}
		idemtest.CheckHandler(t, check)
	})
}

// An own handler, right as it is, sees its client go while it works, both by
// the end of its context and by the end of a connection of net/http.
func TestCheckHandlerCutsConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ledger idemtest.Ledger
		b := &book{records: map[string]*entry{}}
		var direct, wire int
		check := checkOf(&ledger, func(_ keystore.Store, reached func()) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				h := &own{"", &ledger, func() {
					reached()
					switch served := r.Context().Value(http.ServerContextKey) != nil; {
					case r.Context().Err() == nil:
					case served:
						wire++
					default:
						direct++
					}
				}, b}
				h.ServeHTTP(w, r)
			})
		})
		check.Except = []string{"slow", "concurrent"}
		idemtest.CheckHandler(t, check)
		if direct < 2 || wire < 2 {
			t.Errorf("the client had gone after the effect %d times, and with its connection %d times, want both before and right after it", direct, wire)
		}
	})
}

// Whoever asks to come again is asked again.
func TestCheckHandlerComesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ledger idemtest.Ledger
		var mu sync.Mutex // guards seen
		seen := map[string]int{}
		b := &book{records: map[string]*entry{}}
		idemtest.CheckHandler(t, checkOf(&ledger, func(_ keystore.Store, reached func()) http.Handler {
			h := &own{"", &ledger, reached, b}
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				key := strings.Join(r.Header.Values("Idempotency-Key"), ",")
				mu.Lock()
				seen[key]++
				busy := seen[key] == 2 && len(key) == 36
				mu.Unlock()
				if busy {
					w.Header().Set("Retry-After", "1")
					http.Error(w, "busy", http.StatusTooManyRequests)
					return
				}
				h.ServeHTTP(w, r)
			})
		}))
	})
}
