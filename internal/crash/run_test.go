package crash

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/storeurl"
	"github.com/idem-go/idem/keystore"
)

// run is one run of everything, on one store and in one mode.
type run struct {
	t       *testing.T
	backend backend
	mode    string
	rng     *rand.Rand

	control  *control
	store    *storeurl.Opened // to look at it
	ledger   *process
	file     string // the ledger's
	servers  []*process
	addrs    []string // of the servers
	client   *process
	killed   map[string]int
	deadline time.Duration
}

// start starts all processes.
func start(t *testing.T, b backend, mode string, seed uint64) *run {
	ctx := t.Context()
	url := b.url(t, mode)
	r := &run{t: t, backend: b, mode: mode, rng: rand.New(rand.NewPCG(seed, uint64(len(b.name)))), killed: map[string]int{}, deadline: 2 * time.Minute}
	store, err := storeurl.Open(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	r.store = store
	if err := store.Migrate(ctx); err != nil {
		t.Fatal(err)
	}
	if mode == "transaction" {
		if err := createEffects(ctx, store); err != nil {
			t.Fatal(err)
		}
	}
	r.control = newControl()
	t.Cleanup(r.control.server.Close)
	var addrs []string
	for range 3 {
		addr, err := freeAddr()
		if err != nil {
			t.Fatal(err)
		}
		addrs = append(addrs, addr)
	}
	r.addrs = addrs[1:]
	r.file = filepath.Join(t.TempDir(), "ledger")
	r.ledger = newProcess("ledger", addrEnv+"="+addrs[0], fileEnv+"="+r.file)
	for i, addr := range r.addrs {
		r.servers = append(r.servers, newProcess("server", addrEnv+"="+addr, storeEnv+"="+url, modeEnv+"="+mode,
			ledgerEnv+"=http://"+addrs[0], fmt.Sprintf("%s=server%d", nameEnv, i+1)))
	}
	r.client = newProcess("client", storeEnv+"="+url, controlEnv+"="+r.control.server.URL, serversEnv+"="+strings.Join(r.addrs, ","))
	for _, p := range append([]*process{r.ledger, r.client}, r.servers...) {
		t.Cleanup(p.kill)
	}
	for i, p := range append([]*process{r.ledger}, r.servers...) {
		r.must(p.start())
		r.must(p.listening(ctx, addrs[i]))
	}
	r.must(r.client.start())
	return r
}

func (r *run) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

// kill kills one of the processes at a random moment, and starts it again.
func (r *run) kill() {
	ctx := r.t.Context()
	r.must(pause(ctx, time.Duration(10+r.rng.IntN(140))*time.Millisecond))
	victim := r.rng.IntN(9)
	down := time.Duration(r.rng.IntN(60)) * time.Millisecond
	switch {
	case victim == 8 && r.backend.kill != nil:
		r.killed["store"]++
		r.must(r.backend.kill())
	case victim < 3:
		r.killed["client"]++
		r.client.kill()
		r.control.clientDied()
		r.must(pause(ctx, down))
		r.must(r.client.start())
	default:
		r.killed["server"]++
		p := r.servers[victim%2]
		p.kill()
		r.must(pause(ctx, down))
		r.must(p.start())
	}
}

// drain lets the client end what is left.
func (r *run) drain(again bool) {
	ctx, cancel := context.WithTimeout(r.t.Context(), r.deadline)
	defer cancel()
	r.control.drain(again)
	for {
		select {
		case <-r.client.exited:
		case <-ctx.Done():
			r.t.Fatalf("%d intents are not told of to the end; the client says:\n%s\nthe servers:\n%s%s", r.control.left(), r.client.output, r.servers[0].output, r.servers[1].output)
		}
		if r.control.left() == 0 {
			return
		}
		r.control.clientDied()
		r.must(r.client.start())
	}
}

// reconcile has every record of the server half settled that its callers have
// not come back for.
func (r *run) reconcile() {
	ctx, cancel := context.WithTimeout(r.t.Context(), r.deadline)
	defer cancel()
	for {
		left, err := r.store.Store.Records(ctx, keystore.Query{Unresolved: true})
		if err == nil && len(left) == 0 {
			return
		}
		said := "nothing"
		if resp, err := http.Post("http://"+r.addrs[0]+"/reconcile", "", nil); err == nil {
			b, _ := io.ReadAll(resp.Body)
			resp.Body.Close()
			said = string(b)
		}
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			r.t.Fatalf("%d records are unresolved (%v); reconcile says %s", len(left), err, said)
		}
	}
}

// effects are those that happened, by intent.
func (r *run) effects() map[string][]int {
	if r.mode == "transaction" {
		byID, err := rows(r.t.Context(), r.store)
		r.must(err)
		return byID
	}
	f, err := os.Open(r.file)
	r.must(err)
	defer f.Close()
	byID := map[string][]int{}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var n int
		var id, by string
		_, err := fmt.Sscan(lines.Text(), &n, &id, &by)
		r.must(err)
		byID[id] = append(byID[id], n)
	}
	return byID
}

// check compares what callers were told with what happened.
func (r *run) check() (executed, rejected int) {
	wrong := slices.Clone(r.control.wrong)
	say := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	effects := r.effects()
	for id, ns := range effects {
		if len(ns) > 1 {
			say("%s has the effects %v", id, ns)
		}
		if _, ok := r.control.told[id]; !ok {
			say("%s has an effect, and nobody was told", id)
		}
	}
	for id, t := range r.control.told {
		ns := effects[id]
		switch {
		case t.Outcome == idem.OutcomeExecuted && !declined(id):
			executed++
			if t.Answer.ID != id || !slices.Contains(ns, t.Answer.Effect) {
				say("%s: told %+v, the effects are %v", id, t.Answer, ns)
			}
		case t.Outcome == idem.OutcomeRejected && declined(id):
			rejected++
			if len(ns) > 0 {
				say("%s: told that it was refused, the effects are %v", id, ns)
			}
		default:
			say("%s: told %v: %s", id, t.Outcome, t.Err)
		}
	}
	for _, w := range wrong[:min(len(wrong), 20)] {
		r.t.Error(w)
	}
	return executed, rejected
}
