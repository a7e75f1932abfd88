package idemtest_test

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idem-go/idem/idemtest"
	"github.com/idem-go/idem/keystore"
)

// The report says in plain words what was seen, what was expected, and what to
// do.
func TestCheckHandlerSpeaksPlainly(t *testing.T) {
	for f, want := range map[flaw]string{
		"no keys": `CheckHandler: replay: after a request and its retry, the intent has had 2 effects
	want: 1 effect
	Usual cause: the handler does not look at the key, or forgets it. Claim the key before the effect and keep the answer under it, as server.Handler does.`,
		"no headers": `CheckHandler: replay: for a retry, the header Content-Type: application/json is missing
	want: the first answer, 201 "{\"id\":\"ch_2\",\"pages\":\"\"}"
	Usual cause: the answer is put together anew, or only a part of it is kept. Keep status, headers and body of the first answer, and answer retries with nothing else.`,
		"leaks": `CheckHandler: payload: another payload under the key was told the body "the key belongs to {\"id\":\"ch_7\",\"pages\":\"\"}\n", which is of the stored answer
	want: nothing of it
	Usual cause: the key alone is compared. Keep a fingerprint of the request beside the key, and answer another one with 422 and nothing of the stored answer.`,
		"stuck": `CheckHandler: panic: after a panic right after the effect, every retry is answered 409 "in flight\n": the key is stuck
	want: the answer, or a refusal that does not say to come again
	Usual cause: nothing takes the key back when the handler panics, or a failure is kept like an answer. In a deferred function free the key if the effect has not begun, and otherwise answer 409 without Retry-After.`,
		"in memory": `CheckHandler: restart: after a request, a restart and a retry, the intent has had 2 effects
	want: 1 effect
	Usual cause: keys or answers are in the process' memory. Keep them in a store that outlives it and that all replicas share.`,
	} {
		t.Run(string(f), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var n notes
				checkOwn(&n, f)
				if len(n.texts) == 0 || n.texts[0] != want {
					t.Errorf("got:\n%s\nwant first:\n%s", strings.Join(n.texts, "\n"), want)
				}
			})
		})
	}
}

// A handler that can't be tried is not tried: what would follow is noise.
func TestCheckHandlerCantTry(t *testing.T) {
	accept := func(keystore.Store, func()) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	}
	good := func() idemtest.HandlerCheck { return checkOf(&idemtest.Ledger{}, accept) }
	for want, change := range map[string]func(*idemtest.HandlerCheck){
		"CheckHandler: request: a valid request with a key was answered 404 \"404 page not found\\n\", and had 0 effects": func(c *idemtest.HandlerCheck) {
			c.New = func(keystore.Store, func()) http.Handler { return http.NotFoundHandler() }
		},
		"CheckHandler: request: a valid request with a key was answered 204 without a body, and had 0 effects": func(*idemtest.HandlerCheck) {},
		"CheckHandler: request: a valid request with a key was answered a panic (oops), and had 0 effects": func(c *idemtest.HandlerCheck) {
			c.New = func(keystore.Store, func()) http.Handler {
				return http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("oops") })
			}
		},
		"CheckHandler: config: New is nil":         func(c *idemtest.HandlerCheck) { c.New = nil },
		"CheckHandler: config: Request is nil":     func(c *idemtest.HandlerCheck) { c.Request = nil },
		"CheckHandler: config: Effects is nil":     func(c *idemtest.HandlerCheck) { c.Effects = nil },
		"CheckHandler: config: Patience is -1s":    func(c *idemtest.HandlerCheck) { c.Patience = -time.Second },
		"CheckHandler: config: Except names \"x\"": func(c *idemtest.HandlerCheck) { c.Except = []string{"replay", "x"} },
	} {
		var n notes
		c := good()
		change(&c)
		idemtest.CheckHandler(&n, c)
		if len(n.texts) != 1 || !strings.HasPrefix(n.texts[0], want) {
			t.Errorf("got %q, want one report: %s", n.texts, want)
		}
	}
}

// What is excepted, or lacks what it needs, is not tried.
func TestCheckHandlerExcept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n notes
		var ledger idemtest.Ledger
		c := checkOf(&ledger, func(_ keystore.Store, reached func()) http.Handler {
			return &own{"no keys", &ledger, reached, &book{records: map[string]*entry{}}}
		})
		c.Large, c.AsAnother = nil, nil
		c.Except = []string{"concurrent", "payload", "hang-up", "panic", "slow"}
		idemtest.CheckHandler(&n, c)
		if got, want := n.rules(t), []string{"replay", "restart", "other-key"}; !slices.Equal(got, want) {
			t.Errorf("reported were %v, want %v", got, want)
		}
	})
}

// The key may be in another header.
func TestCheckHandlerHeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ledger idemtest.Ledger
		b := &book{records: map[string]*entry{}}
		c := checkOf(&ledger, func(_ keystore.Store, reached func()) http.Handler {
			h := &own{"", &ledger, reached, b}
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				r.Header["Idempotency-Key"] = r.Header["Request-Key"]
				h.ServeHTTP(w, r)
			})
		})
		c.Header = "Request-Key"
		request := c.Request
		c.Request = func(n int) *http.Request {
			r := request(n)
			r.Header.Set("Request-Key", "left over")
			return r
		}
		idemtest.CheckHandler(t, c)
	})
}

// A handler that hangs after a panic is told to do so, and the check ends.
func TestCheckHandlerHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n notes
		var ledger idemtest.Ledger
		var hung []chan struct{}
		b := &book{records: map[string]*entry{}}
		c := checkOf(&ledger, func(_ keystore.Store, reached func()) http.Handler {
			h := &own{"", &ledger, reached, b}
			turn := make(chan struct{}, 1)
			hung = append(hung, turn)
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				turn <- struct{}{}
				h.ServeHTTP(w, r)
				<-turn // not deferred
			})
		})
		c.Patience = time.Minute
		idemtest.CheckHandler(&n, c)
		if got := n.rules(t); !slices.Equal(got, []string{"panic"}) || !strings.Contains(n.texts[0], "has not answered request") {
			t.Errorf("reported were %v:\n%s", got, strings.Join(n.texts, "\n"))
		}
		for _, turn := range hung { // let them go
			for range 100 {
				select {
				case <-turn:
				default:
				}
				synctest.Wait()
			}
		}
	})
}

// frees is a handler on a store that frees the key where its answer can't be
// recorded after the effect.
func frees(store keystore.Store, ledger *idemtest.Ledger) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			http.Error(w, "the body broke off", http.StatusBadRequest)
			return
		}
		key := r.Header.Get("Idempotency-Key")
		p := keystore.ClaimParams{ID: keystore.RecordID(keystore.Server, "all", "key", key), Fingerprint: sha256.Sum256(body), Lease: time.Minute, Begun: true}
		_, _ = rand.Read(p.Nonce[:])
		ctx := context.WithoutCancel(r.Context())
		c, err := store.Claim(ctx, p)
		switch {
		case err != nil:
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		case c.Status == keystore.Completed:
			w.WriteHeader(http.StatusCreated)
			_, _ = w.Write(c.Record.Result)
		case c.Status == keystore.Acquired:
			var n int
			_, _ = fmt.Sscanf(string(body), `{"order":"order-%d"`, &n)
			answer := fmt.Sprint("ch_", ledger.Record(order(n)))
			if store.Complete(ctx, c.Owner, keystore.CompleteParams{Result: []byte(answer), Retention: time.Hour}) != nil {
				_ = store.Release(ctx, c.Owner, keystore.ReleaseParams{How: keystore.Forget})
			}
			w.WriteHeader(http.StatusCreated)
			_, _ = w.Write([]byte(answer))
		default:
			w.Header().Set("Retry-After", "1")
			http.Error(w, "in flight", http.StatusConflict)
		}
	})
}

func TestCheckHandlerFindsUnrecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n notes
		var ledger idemtest.Ledger
		c := checkOf(&ledger, func(store keystore.Store, _ func()) http.Handler { return frees(store, &ledger) })
		c.Large, c.AsAnother = nil, nil
		c.Except = []string{"payload", "missing-key", "bad-key"}
		idemtest.CheckHandler(&n, c)
		if got := n.rules(t); !slices.Equal(got, []string{"unrecorded"}) || !strings.Contains(n.texts[0], "and a retry, the intent has had") {
			t.Errorf("reported were %v:\n%s", got, strings.Join(n.texts, "\n"))
		}
	})
}
