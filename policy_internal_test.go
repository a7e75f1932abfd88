package idem

import (
	"math"
	"net/url"
	"testing"
	"time"
)

func TestDelays(t *testing.T) {
	for _, base := range []time.Duration{0, 1, time.Millisecond, 100 * time.Millisecond, time.Hour, math.MaxInt64} {
		for _, most := range []time.Duration{0, 1, time.Second, time.Hour, math.MaxInt64} {
			for _, factor := range []float64{0, 1, 1.5, 10, math.MaxFloat64} {
				p := Policy{BaseDelay: base, MaxDelay: most, Multiplier: factor}
				if err := p.validate(); err != nil {
					t.Fatal(err)
				}
				p = p.withDefaults()
				delay := p.delays()
				for attempt := range 201 {
					limit := max(p.MaxDelay, time.Millisecond)
					if d := delay(); d < time.Millisecond || d > limit {
						t.Fatalf("B039 B040: base %v, cap %v, factor %v, attempt %d: waits %v, want 1ms to %v", base, most, factor, attempt, d, limit)
					}
				}
			}
		}
	}
}

func TestDelaysGrow(t *testing.T) {
	const calls = 1000
	var sums [6]time.Duration
	p := Policy{BaseDelay: 100 * time.Millisecond, MaxDelay: time.Second}.withDefaults()
	for range calls {
		delay := p.delays()
		for i := range sums {
			sums[i] += delay()
		}
	}
	// Half the limit on average; over 1,000 calls that is off by more than a
	// tenth once in 10^8 runs.
	for i, limit := range []time.Duration{100, 200, 400, 800, 1000, 1000} {
		want := limit * time.Millisecond / 2
		if got := sums[i] / calls; got < want*9/10 || got > want*11/10 {
			t.Errorf("wait %d is %v on average, want %v", i+1, got, want)
		}
	}
}

func TestDelaysSpread(t *testing.T) {
	const calls, slots = 1000, 10
	var spread [slots]int
	p := Policy{BaseDelay: time.Second}.withDefaults()
	for range calls {
		d := p.delays()()
		spread[min(int(d*slots/time.Second), slots-1)]++
	}
	// 100 expected, standard deviation 9.5.
	for slot, n := range spread {
		if n < 40 || n > 160 {
			t.Errorf("B050: slot %d of %d has %d of %d first waits: %v", slot, slots, n, calls, spread)
		}
	}
}

func TestBudgets(t *testing.T) {
	b := budgets{size: 3}
	one, two, none := &url.URL{Scheme: "https", Host: "one"}, &url.URL{Scheme: "https", Host: "two"}, (*url.URL)(nil)
	for range 3 {
		if !b.take(one) {
			t.Fatal("spent too early")
		}
	}
	if b.take(one) {
		t.Error("a fourth retry")
	}
	if !b.take(two) {
		t.Error("another origin's budget is spent")
	}
	b.refund(one)
	if !b.take(one) || b.take(one) {
		t.Error("one refund gives one retry")
	}
	for range 10 { // more than were taken
		b.refund(one)
		b.refund(two)
		b.refund(none)
	}
	if len(b.open) != 0 {
		t.Errorf("full budgets are kept: %v", b.open)
	}
	for range 3 {
		if !b.take(one) {
			t.Fatal("refunds overfill or lose the budget")
		}
	}
	if b.take(one) {
		t.Error("refunds overfill the budget")
	}
}
