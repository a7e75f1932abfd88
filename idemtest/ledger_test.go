package idemtest_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/idem-go/idem/idemtest"
)

// reports is a TB that keeps what is reported to it.
type reports []string

func (*reports) Helper() {}
func (r *reports) Errorf(format string, args ...any) {
	*r = append(*r, fmt.Sprintf(format, args...))
}

func TestLedgerChecks(t *testing.T) {
	var l idemtest.Ledger
	l.Record("order-1", "charge", 12)
	l.Record("order-2")
	if n := l.Record("order-2"); n != 3 {
		t.Errorf("the third effect has the number %d", n)
	}

	var once reports
	l.Once(&once, "order-1", "order-2", "order-3")
	if len(once) != 2 || !strings.HasPrefix(once[0], "order-2 had 2 effects") || !strings.HasPrefix(once[1], "order-3 had 0 effects") {
		t.Errorf("Once reported %q", once)
	}
	var most reports
	l.AtMostOnce(&most)
	if len(most) != 1 || !strings.HasPrefix(most[0], "order-2 had 2 effects") {
		t.Errorf("AtMostOnce reported %q", most)
	}
	if l.Total() != 3 || l.Count("order-2") != 2 || l.Count("order-3") != 0 {
		t.Errorf("total %d, counts %d and %d", l.Total(), l.Count("order-2"), l.Count("order-3"))
	}
	if got, want := l.String(), "1  order-1  charge 12\n2  order-2  \n3  order-2  \n"; got != want {
		t.Errorf("the table is\n%q, want\n%q", got, want)
	}
}

func TestZeroLedger(t *testing.T) {
	var l idemtest.Ledger
	var r reports
	l.AtMostOnce(&r)
	if len(r) != 0 || l.Total() != 0 || len(l.Entries()) != 0 || l.String() != "(no effects)\n" {
		t.Errorf("reported %q; %d effects; %q", r, l.Total(), l.String())
	}
}

func TestLedgerIsSafeForConcurrentUse(t *testing.T) {
	var l idemtest.Ledger
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			l.Record("order-1")
			_ = l.String()
			l.AtMostOnce(&reports{})
		})
	}
	wg.Wait()
	if l.Total() != 50 || l.Count("order-1") != 50 {
		t.Errorf("total %d, count %d, want 50", l.Total(), l.Count("order-1"))
	}
}

// What Entries returns is the caller's own.
func TestEntriesIsACopy(t *testing.T) {
	var l idemtest.Ledger
	l.Record("order-1")
	l.Entries()[0].Intent = "changed"
	if got := l.Entries()[0].Intent; got != "order-1" {
		t.Errorf("the ledger was changed to %q", got)
	}
}
