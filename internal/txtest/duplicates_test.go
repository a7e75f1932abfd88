package txtest

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/idem-go/idem/keystore"
	"github.com/idem-go/idem/server"
)

// gated is a handler that has its effect and then waits to be let go.
type gated struct {
	*backend
	t      testing.TB
	inside atomic.Int64
	runs   atomic.Int64
	gate   chan struct{}
	// fails makes the first run fail.
	fails bool
}

func (g *gated) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	key := r.Header.Get("Idempotency-Key")
	if err := g.effect(r.Context(), key); err != nil {
		g.t.Errorf("the effect: %v", err)
	}
	run := g.runs.Add(1)
	g.inside.Add(1)
	<-g.gate
	if g.fails && run == 1 {
		w.WriteHeader(503)
		return
	}
	w.WriteHeader(201)
	_, _ = fmt.Fprint(w, "made ", key)
}

// arrivals counts the requests that have come.
func arrivals(n *atomic.Int64) func(*server.Config) {
	return func(cfg *server.Config) {
		cfg.Wait = time.Minute
		cfg.Scope = func(r *http.Request) (string, error) {
			n.Add(1)
			return server.SingleTenant(r)
		}
	}
}

// The duplicates of slow requests keep no connection of a small pool.
func TestDuplicatesLeaveConnections(t *testing.T) {
	const conns, duplicates, others = 4, 50, 8
	onEach(t, func(t *testing.T, b *backend) {
		for _, keys := range []int{1, conns} {
			t.Run(fmt.Sprint(keys, " keys"), func(t *testing.T) {
				db := b.create(t, b.newDSN(t), conns)
				var arrived atomic.Int64
				s := newServer(t, db.store, arrivals(&arrived))
				slow := &gated{backend: b, t: t, gate: make(chan struct{})}
				open := sync.OnceFunc(func() { close(slow.gate) })
				defer open()
				h := s.Handler(slow)
				quick := s.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if err := b.effect(r.Context(), "other"); err != nil {
						t.Errorf("the effect: %v", err)
					}
					w.WriteHeader(201)
				}))
				for i := range others {
					want(t, post(quick, fmt.Sprint("before", i), "{}"), "201 first")
				}
				arrived.Store(0)

				var all sync.WaitGroup
				answers := make([]*httptest.ResponseRecorder, keys*duplicates)
				for i := range answers {
					all.Go(func() { answers[i] = post(h, fmt.Sprint("slow", i%keys), "{}") })
				}
				until(t, "all have come", func() bool { return arrived.Load() == int64(len(answers)) })
				running := keys
				if b.oneWriter {
					running = 1
				}
				until(t, "the first ones run", func() bool { return slow.inside.Load() == int64(running) })
				total := others
				if keys < conns {
					until(t, "the duplicates need no connection", func() bool { return db.busy() <= running })
					for i := range others {
						want(t, post(quick, fmt.Sprint("before", i), "{}"), "201 replayed")
						if !b.oneWriter { // nobody else can write then
							total++
							want(t, post(quick, fmt.Sprint("meanwhile", i), "{}"), "201 first")
						}
					}
				}
				open()
				all.Wait()
				firsts := map[string]int{}
				for i, w := range answers {
					key := fmt.Sprint("slow", i%keys)
					if short(w) == "201 first" {
						firsts[key]++
					} else if short(w) != "201 replayed" || w.Body.String() != "made "+key {
						t.Errorf("a duplicate got %s, %s", short(w), w.Body)
					}
				}
				for i := range keys {
					if n := firsts[fmt.Sprint("slow", i)]; n != 1 {
						t.Errorf("key %d: %d first answers, want 1", i, n)
					}
				}
				db.state(t, total+keys, total+keys)
			})
		}
	})
}

// B152: a duplicate in another process waits, and ends in a replay, a run, a
// refusal for its other payload, or in flight; whatever the winner does.
func TestDuplicateInAnotherProcess(t *testing.T) {
	onEach(t, func(t *testing.T, b *backend) {
		for _, tt := range []struct {
			name, body   string
			winnerFails  bool
			outlastsWait bool
			answer       string
		}{
			{"commits", "{}", false, false, "201 replayed"},
			{"rolls back", "{}", true, false, "201 first"},
			{"goes on for longer", "{}", false, true, "409 in-flight"},
			{"commits another payload", "[]", false, false, "422 key-reused"},
			{"rolls another payload back", "[]", true, false, "201 first"},
		} {
			t.Run(tt.name, func(t *testing.T) {
				db, dsn := b.open(t)
				there := b.reopen(t, dsn, 4)
				var met atomic.Bool
				watched := &hooked{txStore: there.store, claimed: func(s keystore.Status) {
					if s == keystore.InFlight {
						met.Store(true)
					}
				}}
				slow := &gated{backend: b, t: t, gate: make(chan struct{}), fails: tt.winnerFails}
				open := sync.OnceFunc(func() { close(slow.gate) })
				defer open()
				wait := time.Minute
				if tt.outlastsWait {
					wait = 50 * time.Millisecond
				}
				here := newServer(t, db.store).Handler(slow)
				other := newServer(t, watched).Handler(slow, server.WithWait(wait))

				var both sync.WaitGroup
				var first, second *httptest.ResponseRecorder
				both.Go(func() { first = post(here, "k", "{}") })
				until(t, "the winner runs", func() bool { return slow.inside.Load() == 1 })
				if tt.outlastsWait {
					want(t, post(other, "k", tt.body), tt.answer)
				} else {
					both.Go(func() { second = post(other, "k", tt.body) })
					until(t, "the duplicate has met the winner", met.Load)
				}
				open()
				both.Wait()
				if tt.winnerFails {
					want(t, first, "503")
				} else {
					want(t, first, "201 first")
				}
				if second != nil {
					want(t, second, tt.answer)
				}
				db.state(t, 1, 1)
			})
		}
	})
}
