package txtest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"
)

var errLost = errors.New("the reply is lost")

// A server that dies at a commit leaves the caller with an honest answer, and
// the retry with the truth.
func TestDatabaseDiesAtCommit(t *testing.T) {
	t.Parallel()
	for _, b := range []*backend{postgres, mariadb} {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			srv, dsn := b.start(t)
			db := b.create(t, dsn, 8)
			store := &hooked{txStore: db.store}
			h := newServer(t, store).Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				key := r.Header.Get("Idempotency-Key")
				if err := b.effect(r.Context(), key); err != nil {
					w.WriteHeader(503)
					return
				}
				status(201)(w, r)
			}))
			restart := func() {
				if err := srv.Restart(); err != nil {
					t.Error(err)
				}
			}
			n := 0
			for _, tt := range []struct {
				name          string
				before, after bool // the commit
				up            bool // again when the record is asked
				answer, next  string
			}{
				{"before, and is back", true, false, true, "503 rolled-back", "201 first"},
				{"before, and stays away", true, false, false, "503 commit-unknown", "201 first"},
				{"after, and is back", false, true, true, "201 first", "201 replayed"},
				{"after, and stays away", false, true, false, "503 commit-unknown", "201 replayed"},
			} {
				die := sync.OnceFunc(func() {
					srv.Kill()
					if tt.up {
						restart()
					}
				})
				if tt.before {
					store.beforeCommit = die
				}
				if tt.after {
					store.afterCommit = func() error { die(); return errLost }
				}
				key := fmt.Sprint("k", n)
				answer := post(h, key, "{}")
				store.beforeCommit, store.afterCommit = nil, nil
				if !tt.up {
					restart()
				}
				if got := short(answer); got != tt.answer {
					t.Errorf("%s: got %q, want %q; body: %s", tt.name, got, tt.answer, answer.Body)
				}
				next := retried(t, h, key)
				if got := short(next); got != tt.next {
					t.Errorf("%s: the retry got %q, want %q", tt.name, got, tt.next)
				}
				n++
				db.state(t, n, n)
			}

			// At any moment around the commit.
			for i := range 10 {
				var killing sync.WaitGroup
				store.beforeCommit = sync.OnceFunc(func() {
					killing.Go(func() {
						timer := time.NewTimer(rand.N(time.Millisecond))
						defer timer.Stop()
						<-timer.C
						srv.Kill()
						restart()
					})
				})
				key := fmt.Sprint("random", i)
				answer := short(post(h, key, "{}"))
				killing.Wait()
				store.beforeCommit = nil
				switch answer {
				case "201 first", "503 rolled-back", "503 commit-unknown":
				default:
					t.Errorf("killed at random: got %q", answer)
				}
				next := short(retried(t, h, key))
				if answer == "201 first" && next != "201 replayed" || next != "201 first" && next != "201 replayed" ||
					answer == "503 rolled-back" && next != "201 first" {
					t.Errorf("killed at random: the answers are %q, then %q", answer, next)
				}
				n++
				db.state(t, n, n)
			}
		})
	}
}

// retried posts until the database is back for good: connections that died with
// it may still be in the pool.
func retried(t testing.TB, h http.Handler, key string) (w *httptest.ResponseRecorder) {
	t.Helper()
	until(t, "the database serves again", func() bool {
		w = post(h, key, "{}")
		return w.Code != 503
	})
	return w
}
