package idemtest

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
)

// Ledger records effects, such as charges, and is never changed but by adding:
// what is in it has happened. Put Record where the effect is. The zero Ledger
// is empty and ready. It is safe for concurrent use.
type Ledger struct {
	mu      sync.Mutex // guards the rest
	entries []Entry
	counts  map[string]int
}

// Entry is one effect.
type Entry struct {
	// Intent that the effect was for, in the application's words.
	Intent string
	// Detail is what Record was given besides, as fmt.Sprintln spells it.
	Detail string
}

// TB is what the checks need of a *testing.T, so that programs can check too.
type TB interface {
	Helper()
	Errorf(format string, args ...any)
}

// Record adds an effect and returns its number, counted from 1.
func (l *Ledger) Record(intent string, detail ...any) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.counts == nil {
		l.counts = make(map[string]int)
	}
	l.counts[intent]++
	l.entries = append(l.entries, Entry{intent, strings.TrimSuffix(fmt.Sprintln(detail...), "\n")})
	return len(l.entries)
}

// Count returns how many effects the intent has had.
func (l *Ledger) Count(intent string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.counts[intent]
}

// Total returns how many effects there were.
func (l *Ledger) Total() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.entries)
}

// Entries returns the effects in their order.
func (l *Ledger) Entries() []Entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.entries)
}

// Once reports an error for each of the intents that has not had exactly one
// effect.
func (l *Ledger) Once(t TB, intents ...string) {
	t.Helper()
	for _, intent := range intents {
		if n := l.Count(intent); n != 1 {
			t.Errorf("%s had %d effects, want 1; the ledger:\n%s", intent, n, l)
		}
	}
}

// AtMostOnce reports an error for each intent that has had more than one
// effect.
func (l *Ledger) AtMostOnce(t TB) {
	t.Helper()
	var twice []string
	for _, e := range l.Entries() {
		if l.Count(e.Intent) > 1 && !slices.Contains(twice, e.Intent) {
			twice = append(twice, e.Intent)
			t.Errorf("%s had %d effects, want 1 at most; the ledger:\n%s", e.Intent, l.Count(e.Intent), l)
		}
	}
}

// String returns the effects as a table, one on a line: number, intent, detail.
func (l *Ledger) String() string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	entries := l.Entries()
	for i, e := range entries {
		fmt.Fprintf(w, "%d\t%s\t%s\n", i+1, e.Intent, e.Detail)
	}
	if len(entries) == 0 {
		fmt.Fprintln(w, "(no effects)")
	}
	_ = w.Flush() // a strings.Builder never fails
	return b.String()
}
