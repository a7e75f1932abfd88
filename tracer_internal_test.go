package idem

import (
	"testing"
)

// Without an Observer an operation pays nothing for being watched.
func TestUnobservedAllocations(t *testing.T) {
	c, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	op := &operation{client: c, scope: "shop"}
	ctx := t.Context()
	if n := testing.AllocsPerRun(100, func() {
		ctx := c.begin(ctx, op)
		ctx = c.watch.StartAttempt(ctx, Attempt{Number: 1}, nil)
		c.watch.EndAttempt(ctx, Attempt{Number: 1})
		c.tell(ctx, op, ending{})
	}); n != 0 {
		t.Errorf("%v allocations, want none", n)
	}
}
