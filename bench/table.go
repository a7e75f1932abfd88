package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"unicode/utf8"
)

// head says what was measured, and where.
type head struct {
	Go       string            `json:"go"`
	CPU      string            `json:"cpu"`
	CPUs     int               `json:"cpus"`
	System   string            `json:"system"`
	Load     string            `json:"load"` // before the first round
	Rounds   int               `json:"rounds"`
	Versions map[string]string `json:"versions"`
}

// compared are the modules whose versions are told.
var compared = []string{
	"github.com/failsafe-go/failsafe-go", "github.com/go-json-experiment/json", "github.com/go-sql-driver/mysql",
	"github.com/gofiber/fiber/v2", "github.com/google/uuid", "github.com/hashicorp/go-retryablehttp",
	"github.com/jackc/pgx/v5", "github.com/redis/go-redis/v9", "github.com/stripe/stripe-go/v82",
	"golang.org/x/sync", "modernc.org/sqlite",
}

func newHead(o options) head {
	h := head{
		Go: runtime.Version(), CPU: cpu(), CPUs: runtime.GOMAXPROCS(0), System: runtime.GOOS + "/" + runtime.GOARCH,
		Load: load(), Rounds: o.rounds, Versions: map[string]string{},
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return h
	}
	for _, m := range info.Deps {
		for _, name := range compared {
			if m.Path == name {
				h.Versions[name] = m.Version
			}
		}
	}
	return h
}

// cpu is the processor's name, where the system tells it.
func cpu() string {
	f, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return "unknown CPU"
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		if name, value, _ := strings.Cut(s.Text(), ":"); strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return "unknown CPU"
}

// load is the system's load of the last minute, five and fifteen.
func load() string {
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	return strings.Join(strings.Fields(string(b))[:3], " ")
}

func (h head) print(w io.Writer) {
	fmt.Fprintf(w, "%s, %s, %d × %s, load %s, %d rounds\n", h.Go, h.System, h.CPUs, h.CPU, h.Load, h.Rounds)
	for _, name := range compared {
		if v := h.Versions[name]; v != "" {
			fmt.Fprintf(w, "  %s %s\n", name, v)
		}
	}
}

// widths of the columns.
var widths = [...]int{38, 10, 9, 8, 30, 15, 16, 5}

// print writes a group's rows as a table. A row's further checks have lines of
// their own.
func print(w io.Writer, name string, rows []row) {
	fmt.Fprintln(w)
	if utf8.RuneCountInString(name) > widths[0] {
		fmt.Fprintln(w, name)
		name = ""
	}
	line(w, name, "time", "bytes", "allocs", "against", "is", "target", "holds")
	for _, r := range rows {
		if r.Error != "" {
			line(w, "  "+r.Name, "failed: "+r.Error)
			continue
		}
		cells := []string{"  " + r.Name, duration(r.Nanos), fmt.Sprintf("%.0f", r.Bytes), fmt.Sprintf("%.1f", r.Allocs)}
		if r.Nanos == 0 {
			cells = []string{"  " + r.Name, "", "", ""}
		}
		for _, c := range r.Checks {
			line(w, append(cells, c.cells()...)...)
			cells = []string{"", "", "", ""}
		}
		if len(r.Checks) == 0 {
			line(w, cells...)
		}
	}
}

func (c result) cells() []string {
	holds := ""
	if c.Holds != nil {
		holds = "yes"
		if !*c.Holds {
			holds = "NO"
		}
	}
	return []string{c.Against, c.Unit.show(c.Value), c.Target, holds}
}

// line pads by characters, the first cell to the right and the numbers to the
// left.
func line(w io.Writer, cells ...string) {
	var b strings.Builder
	for i, c := range cells {
		pad := strings.Repeat(" ", max(0, widths[i]-utf8.RuneCountInString(c)))
		if i >= 1 && i <= 3 || i == 5 {
			c = pad + c
		} else {
			c += pad
		}
		b.WriteString(c + "  ")
	}
	fmt.Fprintln(w, strings.TrimRight(b.String(), " "))
}
