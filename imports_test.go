package idem_test

import (
	"os/exec"
	"strings"
	"testing"
)

// TestImports holds the promise about dependencies: the standard library, this
// module without its backends, and three small modules.
func TestImports(t *testing.T) {
	const module = "github.com/idem-go/idem"
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", ".").CombinedOutput()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, out)
	}
	allowed := func(path string) bool {
		for _, prefix := range []string{module + "/internal", "github.com/cenkalti/backoff/v4", "golang.org/x/sync", "github.com/google/uuid"} {
			if path == prefix || strings.HasPrefix(path, prefix+"/") {
				return true
			}
		}
		return path == module || path == module+"/keystore"
	}
	deps := strings.Fields(string(out))
	if len(deps) < 3 {
		t.Fatalf("go list found %q only", deps)
	}
	for _, path := range deps {
		if !allowed(path) {
			t.Errorf("the root package imports %s", path)
		}
	}
}
