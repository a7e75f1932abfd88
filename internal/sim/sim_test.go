package sim

import (
	"flag"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/idem-go/idem"
)

var (
	flagSeeds = flag.Int("sim.seeds", 300, "how many seeds TestSeeds plays")
	flagStart = flag.Uint64("sim.start", 1, "the first of them")
	flagSeed  = flag.Uint64("sim.seed", 0, "play this seed alone, and show its trace")
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bubble plays a seed in a bubble of its own. Goroutines that are left in it
// are a violation as well.
func bubble(t *testing.T, seed uint64, p planted) (rep Report) {
	var w *world
	defer func() {
		v := recover()
		if v == nil {
			return
		}
		rep = Report{Seed: seed, Broken: []Violation{{NoneLeft, fmt.Sprintf("%v\n%s", v, left())}}}
		if w != nil {
			rep.Broken = append(w.broken, rep.Broken...)
			rep.Trace = w.all()
		}
	}()
	synctest.Test(t, func(*testing.T) {
		w = newWorld(seed, p)
		rep = w.play()
	})
	return rep
}

// left is what the goroutines do that are left in bubbles.
func left() string {
	stacks := make([]byte, 1<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	var in []string
	for _, g := range strings.Split(string(stacks), "\n\n") {
		if strings.Contains(g, "synctest bubble") {
			in = append(in, g)
		}
	}
	return strings.Join(in, "\n\n")
}

// each plays seeds on every CPU, until found wants no more.
func each(t *testing.T, first uint64, seeds int, p planted, found func(*testing.T, Report) (more bool)) {
	var next atomic.Uint64
	var over atomic.Bool
	t.Run("seeds", func(t *testing.T) {
		for range runtime.GOMAXPROCS(0) {
			t.Run("", func(t *testing.T) {
				t.Parallel()
				for !over.Load() {
					n := next.Add(1) - 1
					if n >= uint64(seeds) {
						return
					}
					if !found(t, bubble(t, first+n, p)) {
						over.Store(true)
					}
				}
			})
		}
	})
}

// fail tells of a seed that breaks an invariant, and how to play it again.
func fail(t *testing.T, rep Report) {
	t.Errorf("seed %d: %v\n%s\ngo test ./internal/sim -run TestSeeds -sim.seed=%d -v", rep.Seed, rep.Broken, tail(rep.Trace, 200), rep.Seed)
}

// Whatever goes wrong, no intent has two effects, and nobody is told what is
// not true.
func TestSeeds(t *testing.T) {
	if *flagSeed != 0 {
		rep := bubble(t, *flagSeed, planted{})
		t.Logf("%s", strings.Join(rep.Trace, "\n"))
		for _, v := range rep.Broken {
			t.Error(v)
		}
		return
	}
	var mu sync.Mutex
	var played, failed, effects, crashes int
	outcomes := map[idem.Outcome]int{}
	started := time.Now()
	each(t, *flagStart, *flagSeeds, planted{}, func(t *testing.T, rep Report) bool {
		mu.Lock()
		defer mu.Unlock()
		played++
		effects, crashes = effects+rep.Effects, crashes+rep.Crashes
		for o, n := range rep.Outcomes {
			outcomes[o] += n
		}
		if len(rep.Broken) > 0 {
			failed++
			fail(t, rep)
		}
		return failed < 3
	})
	t.Logf("%d seeds in %v: %d effects, %d ends of processes, told %v", played, time.Since(started).Round(time.Millisecond), effects, crashes, outcomes)
	for _, o := range []idem.Outcome{idem.OutcomeExecuted, idem.OutcomeRejected, idem.OutcomeNotExecuted, idem.OutcomeUnknown, idem.OutcomeInFlight} {
		if played >= 300 && outcomes[o] == 0 {
			t.Errorf("nobody was told %v: the seeds prove nothing about it", o)
		}
	}
}

// The same seed gives the same trace, but for the words of errors, and for the
// seeds that are not steady.
func TestSameTrace(t *testing.T) {
	const steady = 20
	played := 0
	for seed := *flagStart; played < steady; seed++ {
		a := bubble(t, seed, planted{})
		if !a.Steady {
			continue
		}
		played++
		b := bubble(t, seed, planted{})
		if n := differ(a.Trace, b.Trace); n >= 0 {
			t.Errorf("seed %d: the traces differ from line %d of %d on:\n%s\nand\n%s", seed, n+1, len(a.Trace), around(a.Trace, n), around(b.Trace, n))
		}
	}
}

// differ returns the first line in which two traces differ, or -1.
func differ(a, b []string) int {
	for n := range max(len(a), len(b)) {
		if n >= len(a) || n >= len(b) {
			return n
		}
		x, _, _ := strings.Cut(a[n], comment)
		y, _, _ := strings.Cut(b[n], comment)
		if x != y {
			return n
		}
	}
	return -1
}

func around(lines []string, n int) string {
	return strings.Join(lines[max(n-3, 0):min(n+3, len(lines))], "\n")
}
