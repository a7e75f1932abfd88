package model

import (
	"flag"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	flagExecutors  = flag.Int("model.owners", 0, "explore one larger model per mode, with so many executing owners")
	flagRecoverers = flag.Int("model.recoverers", 1, "with -model.owners: how many recoverers")
	flagDelayed    = flag.Int("model.delayed", 1, "with -model.owners: how many calls are on their way at once")
)

// Every invariant holds of every step that can be reached. Larger models are
// explored with the flags above; 3 owners take a minute or two.
func TestModel(t *testing.T) {
	for _, mode := range []Mode{Opaque, Marked, Idempotent} {
		t.Run(mode.String(), func(t *testing.T) {
			m := Model{Mode: mode, Executors: 2, Recoverers: 1, Delayed: 1}
			if *flagExecutors > 0 {
				m.Executors, m.Recoverers, m.Delayed = *flagExecutors, *flagRecoverers, *flagDelayed
			}
			started := time.Now()
			r := m.Explore()
			t.Logf("%d owners, %d recoverers, %d calls under way: %d states, %d transitions, depth %d, %v",
				m.Executors, m.Recoverers, m.Delayed, r.States, r.Transitions, r.Depth, time.Since(started).Round(time.Millisecond))
			for inv, trace := range r.Broken {
				t.Errorf("%v does not hold:\n%v", inv, trace)
			}
		})
	}
}
