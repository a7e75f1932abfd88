package crash

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/idem-go/idem/internal/servertest"
	"github.com/idem-go/idem/keystore"
)

var (
	kills = flag.Int("crash.kills", 8, "kills per store and mode")
	seed  = flag.Uint64("crash.seed", 0, "picks who is killed, and about when; 0 is random")
)

func TestMain(m *testing.M) {
	if played, err := Play(); played {
		fmt.Fprintln(os.Stderr, os.Getenv(roleEnv), err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(servertest.RedisTests(m))
}

// B061, B139: whatever dies and whenever, no intent is executed twice, none is
// forgotten, and nobody is told what is not true.
func TestCrash(t *testing.T) {
	if *seed == 0 {
		*seed = rand.Uint64()
	}
	for _, b := range backends {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			backend := b.start(t)
			for _, mode := range backend.modes {
				t.Run(mode, func(t *testing.T) { crash(t, backend, mode) })
			}
		})
	}
}

func crash(t *testing.T, b backend, mode string) {
	defer func() {
		if t.Failed() {
			t.Logf("again: go test -count=1 -run '^%s$' ./internal/crash -crash.kills=%d -crash.seed=%d", t.Name(), *kills, *seed)
		}
	}()
	r := start(t, b, mode, *seed)
	for range *kills {
		r.kill()
	}
	r.drain(false)
	before := len(r.effects())
	// What was told to be executed is replayed, for a new client too. What the
	// client before it was told but could not record, it settles by that.
	r.must(r.client.start())
	r.drain(true)
	r.reconcile()
	executed, rejected := r.check()
	if after := len(r.effects()); after != before {
		t.Errorf("%d effects, and %d after all was asked for again", before, after)
	}
	if left, err := r.store.Store.Records(t.Context(), keystore.Query{Unresolved: true}); err != nil || len(left) > 0 {
		t.Errorf("%d records are unresolved, %v", len(left), err)
	}
	t.Logf("%-8s %-11s killed: client %2d, server %2d, store %2d; intents: %4d executed, %3d refused; %3d calls ended without knowing",
		b.name, mode, r.killed["client"], r.killed["server"], r.killed["store"], executed, rejected, r.control.calls)
	if executed < *kills/4 {
		t.Errorf("%d intents is too little load for %d kills", executed, *kills)
	}
}
