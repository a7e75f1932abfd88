package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// group is a comparison: contenders that do the same, measured side by side.
type group struct {
	name string
	// callers is how many goroutines call each contender; 0 means one, at its
	// own pace.
	callers int
	// slow groups wait for a disk or a server, and get a longer time.
	slow bool
	// servers tells that the group needs more than memory.
	servers    bool
	contenders []contender
	// whole measures a group that has a way of its own, instead of contenders.
	whole func(*stage, options) ([]row, error)
}

// contender is one way to do it.
type contender struct {
	name string
	// open is called in each round, and returns what is measured: a function that
	// does it once. Its n rises from 0, and is given to one call only.
	open func(*stage) (func(n int) error, error)
	// floor is called by one goroutine, whatever the group says, and not for long.
	floor  bool
	checks []check
}

// options say how long is measured.
type options struct {
	rounds int
	// slice is how long a contender runs before it is the next one's turn, and
	// slices how often that is in a round.
	slice  time.Duration
	slices int
	// scale divides what is measured by number and not by time.
	scale int
	// crowd is the most goroutines that call at once; 0: as many as a group has.
	crowd int
}

// stage is what a round runs on: its end takes away what was opened.
type stage struct {
	context.Context
	options
	shared *shared
	ends   []func()
}

// callers is n, or fewer where that is too many.
func (o options) callers(n int) int {
	if o.crowd > 0 {
		return min(n, o.crowd)
	}
	return n
}

func (s *stage) onEnd(f func()) { s.ends = append(s.ends, f) }

func (s *stage) end() {
	for _, f := range slices.Backward(s.ends) {
		f()
	}
	s.ends = nil
}

// sample is what one round says of a contender, per operation.
type sample struct {
	Nanos, Bytes, Allocs float64
	ops                  int
}

// round are the samples of one round, by the contenders' names.
type round map[string]sample

// run measures a group. Contenders take turns in slices, so that whatever else
// the machine does meets all of them.
func (g group) run(ctx context.Context, sh *shared, o options) ([]row, error) {
	if g.whole != nil {
		s := &stage{Context: ctx, options: o, shared: sh}
		defer s.end()
		return g.whole(s, o)
	}
	if g.slow {
		o.slice *= 3
	}
	if g.callers > 0 {
		o.slice *= 2 // its ends, where some callers are done already, count less
	}
	var rounds []round
	for n := range o.rounds {
		r, err := g.round(ctx, sh, o, n)
		if err != nil {
			return nil, err
		}
		rounds = append(rounds, r)
	}
	rows := make([]row, 0, len(g.contenders))
	for _, c := range g.contenders {
		rows = append(rows, newRow(g.name, c, rounds))
	}
	return rows, nil
}

func (g group) round(ctx context.Context, sh *shared, o options, nth int) (round, error) {
	s := &stage{Context: ctx, options: o, shared: sh}
	defer s.end()
	meters := make([]*meter, len(g.contenders))
	for i, c := range g.contenders {
		var op func(int) error
		var err error
		labelled(ctx, c.name, func() { op, err = c.open(s) })
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.name, err)
		}
		meters[i] = &meter{op: op, callers: o.callers(g.callers), slice: o.slice}
		if c.floor {
			meters[i].callers, meters[i].slice = 0, o.slice/8
		}
		// Connections are opened now, and statements prepared.
		if err := meters[i].run(ctx); err != nil {
			return nil, fmt.Errorf("%s: %w", c.name, err)
		}
		meters[i].total = totals{}
	}
	runtime.GC()
	for n := range o.slices {
		for i := range meters {
			i := (i + n + nth) % len(meters) // nobody always comes first
			var err error
			labelled(ctx, g.contenders[i].name, func() { err = meters[i].run(ctx) })
			if err != nil {
				return nil, fmt.Errorf("%s: %w", g.contenders[i].name, err)
			}
		}
	}
	r := round{}
	for i, c := range g.contenders {
		r[c.name] = meters[i].total.sample()
	}
	return r, nil
}

// meter counts what a contender takes.
type meter struct {
	op      func(int) error
	callers int
	slice   time.Duration
	next    atomic.Int64
	total   totals
}

type totals struct {
	time          time.Duration
	ops           int
	bytes, allocs uint64
}

func (t totals) sample() sample {
	n := float64(max(1, t.ops))
	return sample{Nanos: float64(t.time) / n, Bytes: float64(t.bytes) / n, Allocs: float64(t.allocs) / n, ops: t.ops}
}

// run calls the contender for a slice, at least once.
func (m *meter) run(ctx context.Context) error {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	start, first := time.Now(), m.next.Load()
	var err error
	if m.callers == 0 {
		err = m.loop(ctx, start.Add(m.slice))
	} else {
		err = m.crowd(ctx, start.Add(m.slice))
	}
	m.total.time += time.Since(start)
	m.total.ops += int(m.next.Load() - first)
	runtime.ReadMemStats(&after)
	m.total.bytes += after.TotalAlloc - before.TotalAlloc
	m.total.allocs += after.Mallocs - before.Mallocs
	return err
}

// loop looks at the clock, and at what others count, once in a burst, so that
// these don't count where an operation takes no longer.
func (m *meter) loop(ctx context.Context, end time.Time) error {
	const long, most = 20 * time.Microsecond, 1024
	for burst := int64(1); ; {
		start, first := time.Now(), m.next.Add(burst)-burst
		for i := range burst {
			if err := m.op(int(first + i)); err != nil {
				return err
			}
		}
		now := time.Now()
		if !now.Before(end) {
			return ctx.Err()
		}
		if now.Sub(start) < long && burst < most {
			burst *= 2
		}
	}
}

// crowd is loop by many goroutines.
func (m *meter) crowd(ctx context.Context, end time.Time) error {
	errs := make([]error, m.callers)
	var all sync.WaitGroup
	for i := range errs {
		all.Go(func() { errs[i] = m.loop(ctx, end) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// median sorts its argument.
func median(of []float64) float64 {
	slices.Sort(of)
	if n := len(of); n%2 == 0 {
		return (of[n/2-1] + of[n/2]) / 2
	}
	return of[len(of)/2]
}
