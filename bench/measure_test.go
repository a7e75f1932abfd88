package main

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"
)

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		of   []float64
		want float64
	}{{[]float64{3}, 3}, {[]float64{9, 1, 2}, 2}, {[]float64{4, 1, 9, 2}, 3}} {
		if got := median(c.of); got != c.want {
			t.Errorf("the median of %v is %v, want %v", c.of, got, c.want)
		}
	}
}

// A ratio is the median of the rounds' ratios: one round in which the machine was
// busy for half of the time does not count more than another.
func TestRatioIsOfOneRound(t *testing.T) {
	rounds := []round{
		{"a": {Nanos: 100}, "b": {Nanos: 110}},
		{"a": {Nanos: 900}, "b": {Nanos: 990}},
		{"a": {Nanos: 100}, "b": {Nanos: 500}},
	}
	c := contender{name: "b", checks: []check{ratio("a").within(1.2), speed("a").atLeast(1), added("a").within(50)}}
	r := newRow("group", c, rounds)
	for i, want := range []struct {
		value float64
		holds bool
	}{{1.1, true}, {1 / 1.1, false}, {90, false}} {
		got := r.Checks[i]
		if d := got.Value - want.value; d < -1e-9 || d > 1e-9 || *got.Holds != want.holds {
			t.Errorf("%s is %v (%v), want %v (%v)", got.Unit, got.Value, *got.Holds, want.value, want.holds)
		}
	}
	if r.Nanos != 500 {
		t.Errorf("the median is %v, want 500", r.Nanos)
	}
}

// What a middleware adds is compared with what another one adds to a handler of
// its own.
func TestAddedThan(t *testing.T) {
	all := round{"bare": {Nanos: 10}, "mine": {Nanos: 40}, "other bare": {Nanos: 100}, "other": {Nanos: 120}}
	if got := addedThan("bare", "other", "other bare").of(all["mine"], all); got != 1.5 {
		t.Errorf("30 ns against 20 ns are %v times, want 1.5", got)
	}
}

// Every contender has its turn in every round, with numbers of its own, and what
// is opened is closed.
func TestRounds(t *testing.T) {
	opened, closed, calls := 0, 0, map[string]map[int]bool{}
	contend := func(name string) contender {
		return contender{name: name, open: func(s *stage) (func(int) error, error) {
			opened++
			s.onEnd(func() { closed++ })
			seen := map[int]bool{}
			calls[name] = seen
			return func(n int) error {
				if seen[n] {
					return errors.New("a number came twice")
				}
				seen[n] = true
				return nil
			}, nil
		}}
	}
	g := group{name: "g", contenders: []contender{contend("a"), contend("b")}}
	rows, err := g.run(t.Context(), &shared{}, options{rounds: 3, slice: time.Microsecond, slices: 2})
	if err != nil {
		t.Fatal(err)
	}
	if opened != 6 || closed != 6 || len(rows) != 2 || rows[0].Ops == 0 || len(calls["b"]) == 0 {
		t.Errorf("opened %d and closed %d of 6; rows: %+v", opened, closed, rows)
	}
}

// An error ends a group, whichever goroutine meets it, and is told with its row.
func TestFailure(t *testing.T) {
	broken := errors.New("broken")
	for _, callers := range []int{0, 4} {
		g := group{name: "g", callers: callers, contenders: []contender{{name: "the row", open: func(*stage) (func(int) error, error) {
			return func(n int) error {
				if n == 7 {
					return broken
				}
				return nil
			}, nil
		}}}}
		_, err := g.run(context.Background(), &shared{}, brief)
		if !errors.Is(err, broken) || !strings.Contains(err.Error(), "the row") {
			t.Errorf("with %d callers the error is %v", callers, err)
		}
	}
}

func TestTable(t *testing.T) {
	yes, no := true, false
	var out bytes.Buffer
	print(&out, "a group", []row{
		{Name: "bare", Nanos: 950, Bytes: 64, Allocs: 2},
		{Name: "idem", Nanos: 12_340, Checks: []result{
			{Against: "bare", Value: 1.5, Unit: times, Target: "≤ ×2.00", Holds: &yes},
			{Value: 30, Unit: allocs, Target: "≤ 20 allocs", Holds: &no},
		}},
		{Name: "lost", Error: "no server"},
	})
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	for i, want := range []string{
		"a group|time|bytes|allocs|against|is|target|holds", "bare|950 ns|64|2.0", "idem|12.3 µs|0|0.0|bare|×1.50|≤ ×2.00|yes",
		"30 allocs|≤ 20 allocs|NO", "lost|failed: no server",
	} {
		var cells []string
		for _, c := range strings.Split(lines[i], "  ") {
			if c = strings.TrimSpace(c); c != "" {
				cells = append(cells, c)
			}
		}
		if got := strings.Join(cells, "|"); got != want {
			t.Errorf("line %d is %q, want %q", i, got, want)
		}
	}
}
