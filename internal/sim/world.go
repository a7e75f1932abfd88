package sim

import (
	"context"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/keystore"
	"github.com/idem-go/idem/keystore/memstore"
	"github.com/idem-go/idem/server"
)

// planted are mistakes that the tests put into a world, to see that they are
// found. Zero is none.
type planted struct {
	// handler stands in for server.Handler.
	handler func(orders http.Handler, srv *server.Server) http.Handler
	// begin stands in for server.BeginEffect.
	begin func(context.Context) error
	// store is put around the shared store.
	store func(keystore.Store) keystore.Store
	// wire is put below the client half.
	wire func(http.RoundTripper) http.RoundTripper
}

// world is everything there is in one run.
type world struct {
	trace
	seed    uint64
	shape   shape
	ctx     context.Context
	planted planted
	begin   func(context.Context) error

	shared  keystore.Store            // the servers', and some clients'
	stores  map[string]keystore.Store // all of them
	hosts   []*host
	clients []*slot

	names        map[[32]byte]string // of records
	keys         map[idem.Key]string
	serverRecord map[[32]byte]place

	workers sync.WaitGroup // of clients
	graves  sync.WaitGroup // of what is left of dead processes

	mu       sync.Mutex // guards the rest, and the hosts' and jobs' own
	counts   map[string]int
	failing  map[repeat]failing
	ledger   ledger
	broken   []Violation
	refused  map[place]bool  // somebody was told so
	voided   map[string]bool // calls that had no effect
	stalled  map[standstill]time.Time
	outcomes map[idem.Outcome]int
}

// Report is what a run has come to.
type Report struct {
	Seed   uint64
	Broken []Violation
	Trace  []string
	// Steady: the same seed gives the same trace.
	Steady bool
	// Outcomes counts what callers were told, Effects what happened, Crashes
	// how many processes ended.
	Outcomes         map[idem.Outcome]int
	Effects, Crashes int
}

// newWorld makes the world of a seed. It must be called in a bubble.
func newWorld(seed uint64, p planted) *world {
	w := &world{
		seed: seed, planted: p, begin: p.begin, ctx: context.Background(),
		names: map[[32]byte]string{}, keys: map[idem.Key]string{}, serverRecord: map[[32]byte]place{},
		stores: map[string]keystore.Store{},
		counts: map[string]int{}, failing: map[repeat]failing{}, refused: map[place]bool{},
		voided: map[string]bool{}, outcomes: map[idem.Outcome]int{}, stalled: map[standstill]time.Time{},
	}
	w.trace.start = time.Now()
	if w.begin == nil {
		w.begin = server.BeginEffect
	}
	w.shape = shapeOf(w.dice("shape", 0))
	return w
}

// play plays it, in the same bubble, to its end.
func (w *world) play() Report {
	w.populate(w.dice("people", 0))
	crashes := w.chaos(w.dice("chaos", 0))
	w.heal()
	return Report{w.seed, w.broken, w.all(), !w.shape.unsteady, w.outcomes, len(w.ledger.effects), crashes}
}

// calm tells whether things have stopped going wrong, calmIn whether they will
// have in a moment.
func (w *world) calm() bool { return w.calmIn(0) }

func (w *world) calmIn(moment time.Duration) bool {
	return time.Since(w.start)+moment >= w.shape.chaos
}

// populate makes stores, servers, clients and their jobs.
func (w *world) populate(r *rand.Rand) {
	sh := w.shape
	shared := newStore()
	w.shared = shared
	if w.planted.store != nil {
		w.shared = w.planted.store(shared)
	}
	w.stores["the shared store"] = shared
	w.note("world", "%+v", sh)
	scopes := []string{"a", "b"}
	for n := range sh.clients {
		c := &slot{w: w, name: fmt.Sprintf("client%d", n+1), scope: scopes[r.IntN(2)]}
		switch r.IntN(4) {
		case 0:
		case 1:
			c.store = w.shared
		default:
			c.store = newStore()
			w.stores[c.name+"'s store"] = c.store
		}
		w.clients = append(w.clients, c)
	}
	for n := range sh.intents {
		w.intend(r, fmt.Sprintf("i%d", n+1))
	}
	queue := &slot{w: w, name: "queue", scope: "queue"}
	for n := range sh.deliveries {
		in := intent{"queue", fmt.Sprintf("m%d", n+1)}
		id := keystore.RecordID(keystore.Server, in.Scope, "id", in.ID)
		key := idem.DeriveKey("server", in.Scope, in.ID)
		w.names[id], w.serverRecord[id] = "run "+in.String(), place{in.Scope, key}
		w.keys[key] = in.String()
		w.job(queue, r, in, 100+n, byQueue)
	}
	w.clients = append(w.clients, queue)
	for n := range sh.hosts {
		h := &host{w: w, name: fmt.Sprintf("server%d", n+1)}
		w.hosts = append(w.hosts, h)
		must(h.start())
	}
	for _, c := range w.clients {
		must(c.start())
	}
}

func newStore() keystore.Store {
	store, err := memstore.New(memstore.Config{})
	must(err)
	return store
}

// intend gives up to three clients jobs for an ID. Where their scopes differ
// these are two intents.
func (w *world) intend(r *rand.Rand, id string) {
	door := door(r.IntN(3))
	amount := 100 + r.IntN(900)
	contested := false
	switch r.IntN(8) {
	case 0:
		amount = declined
	case 1:
		contested = w.shape.contested
	}
	for _, scope := range []string{"a", "b"} {
		w.baptise(intent{scope, id}, door)
	}
	for n := range 1 + r.IntN(3) {
		c := w.clients[r.IntN(len(w.clients))]
		asked := amount
		if contested {
			asked += n % 2
		}
		w.job(c, r, intent{c.scope, id}, asked, door)
	}
}

func (w *world) job(c *slot, r *rand.Rand, in intent, amount int, door door) {
	j := &job{name: fmt.Sprintf("%s job %d", c.name, len(c.jobs)+1), intent: in, amount: amount, door: door,
		at: between(r, time.Millisecond, w.shape.chaos/2)}
	c.jobs = append(c.jobs, j)
}

// baptise gives names to the keys and records of an intent.
func (w *world) baptise(in intent, door door) {
	if door == byKey {
		key := "key-" + in.ID
		w.keys[idem.Key(key)] = key
		w.names[keystore.RecordID(keystore.Client, in.Scope, "key", key)] = "client " + in.Scope + "/" + key
		id := keystore.RecordID(keystore.Server, in.Scope, "key", key)
		w.names[id], w.serverRecord[id] = "server "+in.Scope+"/"+key, place{in.Scope, idem.Key(key)}
		return
	}
	w.names[keystore.RecordID(keystore.Client, in.Scope, "id", in.ID)] = "client " + in.String()
	for g := range 8 {
		key, name := idem.DeriveKey("intent", in.Scope, in.ID), in.String()
		if g > 0 {
			key, name = idem.DeriveKey("intent", in.Scope, in.ID, count(g)), name+"'"+count(g)
		}
		w.keys[key] = name
		id := keystore.RecordID(keystore.Server, in.Scope, "key", string(key))
		w.names[id], w.serverRecord[id] = "server "+name, place{in.Scope, key}
	}
}

// name is what a record is called in the trace.
func (w *world) name(id [32]byte) string {
	if n, ok := w.names[id]; ok {
		return n
	}
	return hex.EncodeToString(id[:4])
}

func (w *world) keyName(k idem.Key) string {
	if n, ok := w.keys[k]; ok {
		return n
	}
	return fmt.Sprintf("%q", string(k))
}

// sleep waits until the moment, counted from the start.
func (w *world) sleep(until time.Duration) { time.Sleep(until - time.Since(w.start)) }
