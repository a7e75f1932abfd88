package idem

import (
	"context"
	"net/http"
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
		at, told := c.watch.StartAttempt(ctx, Attempt{Number: 1}, nil)
		c.watch.EndAttempt(at, told, Attempt{Number: 1})
		c.tell(ctx, op, ending{})
	}); n != 0 {
		t.Errorf("%v allocations, want none", n)
	}
}

type deaf struct{}

func (deaf) Observe(context.Context, Event) {}

type deafTracer struct{ deaf }

func (deafTracer) Start(ctx context.Context, _ Event, _ *http.Request) (context.Context, string) {
	return ctx, ""
}
func (deafTracer) StartAttempt(ctx context.Context, _ Attempt, _ *http.Request) context.Context {
	return ctx
}
func (deafTracer) EndAttempt(context.Context, Attempt) {}

// BenchmarkObserver is what an operation of one attempt pays for being watched:
// by nobody, by an Observer, by a Tracer.
func BenchmarkObserver(b *testing.B) {
	for _, bb := range []struct {
		name     string
		observer Observer
	}{{"off", nil}, {"observer", deaf{}}, {"tracer", deafTracer{}}} {
		b.Run(bb.name, func(b *testing.B) {
			c, err := New(Config{Observer: bb.observer})
			if err != nil {
				b.Fatal(err)
			}
			op := &operation{client: c, scope: "shop"}
			end := ending{report: Report{Key: "3ef1832d5d4e", Outcome: OutcomeExecuted, Source: SourceExecuted}}
			b.ReportAllocs()
			for b.Loop() {
				ctx := c.begin(b.Context(), op)
				at, told := c.watch.StartAttempt(ctx, Attempt{Number: 1}, nil)
				c.watch.EndAttempt(at, told, Attempt{Number: 1})
				c.tell(ctx, op, end)
			}
		})
	}
}
