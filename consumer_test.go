package idem_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A module that imports the root package gets no backend: neither in what it
// builds, nor as a line in its go.sum.
func TestConsumer(t *testing.T) {
	here, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("go.mod", "module example.com/consumer\n\ngo 1.25.0\n\nrequire github.com/idem-go/idem v0.0.0\n\nreplace github.com/idem-go/idem => "+here+"\n")
	write("main.go", `package main

import (
	"fmt"

	"github.com/idem-go/idem"
)

func main() { fmt.Println(idem.DeriveKey("shop", "order-1")) }
`)
	// As "go get" does, but from what is on the disk already.
	run := func(args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "go", args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GOFLAGS=-mod=mod", "GOPROXY=off", "GOSUMDB=off", "GOWORK=off")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, out)
		}
		return string(out)
	}
	run("get", "github.com/idem-go/idem")
	run("build", "-o", os.DevNull, ".")

	sum, err := os.ReadFile(filepath.Join(dir, "go.sum"))
	if err != nil {
		t.Fatal(err)
	}
	var modules []string
	for line := range strings.Lines(string(sum)) {
		if module, _, _ := strings.Cut(line, " "); !slices.Contains(modules, module) {
			modules = append(modules, module)
		}
	}
	if want := []string{"github.com/cenkalti/backoff/v4", "github.com/google/uuid"}; !slices.Equal(modules, want) {
		t.Errorf("go.sum has lines of %q, want %q", modules, want)
	}
	if built := run("list", "-deps", "-f", "{{with .Module}}{{.Path}}{{end}}", "."); strings.Contains(built, "pgx") || strings.Contains(built, "redis") || strings.Contains(built, "sql") {
		t.Errorf("it builds %s", built)
	}
}
