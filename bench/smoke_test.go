package main

import (
	"bytes"
	"context"
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"
)

// brief is enough to see that everything runs.
var brief = options{rounds: 1, slice: time.Millisecond, slices: 1, scale: 1000, crowd: 16}

// Everything that needs no more than memory can be measured, and every figure is
// a number.
func TestSmoke(t *testing.T) {
	for _, g := range groups() {
		if g.servers {
			continue
		}
		t.Run(g.name, func(t *testing.T) {
			rows, err := g.run(t.Context(), &shared{}, brief)
			if err != nil {
				t.Fatal(err)
			}
			if want := max(1, len(g.contenders)); len(rows) < want {
				t.Errorf("%d rows, want %d", len(rows), want)
			}
			for _, r := range rows {
				if r.Ops == 0 {
					t.Errorf("%s was never run", r.Name)
				}
				for _, c := range r.Checks {
					if math.IsNaN(c.Value) || math.IsInf(c.Value, 0) {
						t.Errorf("%s against %q is %v", r.Name, c.Against, c.Value)
					}
				}
			}
		})
	}
}

// Every baseline is measured in the same group, and no name stands for two.
func TestNames(t *testing.T) {
	known := map[string]bool{}
	for _, g := range groups() {
		if known[g.name] {
			t.Errorf("two groups are called %q", g.name)
		}
		known[g.name] = true
		rows := map[string]bool{}
		for _, c := range g.contenders {
			if rows[c.name] {
				t.Errorf("%s: two rows are called %q", g.name, c.name)
			}
			rows[c.name] = true
		}
		for _, c := range g.contenders {
			for _, k := range c.checks {
				if against := strings.TrimPrefix(k.against, addedBy); against != "" && !rows[against] {
					t.Errorf("%s: %s is compared with %q, which is no row", g.name, c.name, against)
				}
			}
		}
	}
}

// The command writes what it has measured as JSON.
func TestJSON(t *testing.T) {
	var out bytes.Buffer
	err := run(t.Context(), []string{"-short", "-rounds", "1", "-json", "-only", "^keys$"}, &out, &out)
	if err != nil {
		t.Fatal(err)
	}
	var rep report
	if err := json.Unmarshal(out.Bytes(), &rep); err != nil {
		t.Fatal(err)
	}
	if len(rep.Rows) != 3 || rep.Head.Rounds != 1 || rep.Rows[1].Checks[0].Against != newUUID {
		t.Errorf("the report is %+v", rep)
	}
}

// A run that is interrupted says so, and leaves nothing behind.
func TestInterrupted(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	stop()
	var out bytes.Buffer
	if err := run(ctx, []string{"-short", "-only", "^keys$"}, &out, &out); err == nil {
		t.Error("an interrupted run ended without an error")
	}
}
