package keystoretest

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/idem-go/idem/keystore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fault is a way to break a store, and the rule that it breaks.
type fault struct {
	name    string
	rule    string
	breakIt func(*faulty)
}

// faultEnv names the fault of the store in TestStore.
const faultEnv = "KEYSTORETEST_FAULT"

var faults = slices.Concat(claimFaults, settleFaults, readFaults)

// TestStore runs the suite on the store with the fault that the environment
// names, for TestFaults. Without one the store is sound, and must pass.
func TestStore(t *testing.T) {
	var breakIt func(*faulty)
	if name := os.Getenv(faultEnv); name != "" {
		i := slices.IndexFunc(faults, func(f fault) bool { return f.name == name })
		if i < 0 {
			t.Fatalf("no fault %q", name)
		}
		breakIt = faults[i].breakIt
		defer func(d time.Duration) { patience = d }(patience)
		patience = time.Second
	}
	Run(t, func(t *testing.T) keystore.Store { return newFaulty(breakIt) })
}

// TestFaults shows that every faulty store fails at the rule that it breaks,
// and says so. The suite fails its test, so it runs in a process of its own.
func TestFaults(t *testing.T) {
	for _, f := range faults {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestStore$/./^"+f.rule+"($|_B)")
			// The race detector would make each process sleep a second at its end.
			cmd.Env = append(os.Environ(), faultEnv+"="+f.name, "GORACE=atexit_sleep_ms=0")
			out, err := cmd.CombinedOutput()
			if err == nil {
				t.Fatalf("the suite passes a store with this fault; output:\n%s", out)
			}
			want := fmt.Sprintf("rule %q: ", f.rule)
			if !strings.Contains(string(out), want) {
				t.Fatalf("the output does not name %s:\n%s", want, out)
			}
		})
	}
}
