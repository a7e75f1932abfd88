package idem_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/keystore"
)

// gated is a decorated function that waits until it is let go.
type gated struct {
	gate  chan struct{}
	calls atomic.Int64
	ended atomic.Bool // its context ended while it waited
}

func newGated() *gated { return &gated{gate: make(chan struct{})} }

func (g *gated) call(ctx context.Context, _ idem.Key) (int64, error) {
	n := g.calls.Add(1)
	select {
	case <-g.gate:
		return n, nil
	case <-ctx.Done():
		g.ended.Store(true)
		return 0, ctx.Err()
	}
}

// patient lets an attempt last as long as a test.
var patient = idem.Policy{AttemptTimeout: time.Hour, Overall: time.Hour}

// caller is one call that runs in the background.
type caller[T any] struct {
	cancel context.CancelFunc
	done   chan struct{}
	res    idem.Result[T]
	err    error
}

func start[T any](t *testing.T, c *idem.Client, in idem.Intent, call func(context.Context, idem.Key) (T, error)) *caller[T] {
	ctx, cancel := context.WithCancel(t.Context())
	b := &caller[T]{cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(b.done)
		b.res, b.err = idem.Do(ctx, c, in, call)
	}()
	synctest.Wait()
	return b
}

func (b *caller[T]) wait() (idem.Result[T], error) {
	<-b.done
	return b.res, b.err
}

func TestOneFlight(t *testing.T) {
	for callers, store := range map[int64]keystore.Store{100: nil, 10_000: newStore(t)} {
		synctest.Test(t, func(t *testing.T) {
			c := newClient(t, idem.Config{Policy: patient, Store: store})
			g := newGated()
			var sources [4]atomic.Int64
			var all sync.WaitGroup
			for range callers {
				all.Go(func() {
					res, err := idem.Do(t.Context(), c, intent, g.call)
					if err != nil || res.Value != 1 || res.Outcome != idem.OutcomeExecuted || res.Attempts > 1 {
						t.Error(res, err)
					}
					sources[res.Source].Add(1)
				})
			}
			synctest.Wait() // all have joined
			close(g.gate)
			all.Wait()
			if n := g.calls.Load(); n != 1 {
				t.Errorf("%d effects of one intent", n)
			}
			if e, j := sources[idem.SourceExecuted].Load(), sources[idem.SourceJoined].Load(); e != 1 || e+j != callers {
				t.Errorf("%d executed, %d joined", e, j)
			}
		})
	}
}

// Callers who come while another one's flight ends join it or meet its record.
func TestOneEffect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t, idem.Config{Store: newStore(t)})
		var effects atomic.Int64
		var sources [4]atomic.Int64
		var all sync.WaitGroup
		for range 1000 {
			all.Go(func() {
				time.Sleep(rand.N(20 * time.Millisecond))
				res, err := idem.Do(t.Context(), c, intent, func(context.Context, idem.Key) (int64, error) {
					time.Sleep(10 * time.Millisecond)
					return effects.Add(1), nil
				})
				if err != nil || res.Value != 1 {
					t.Error(res, err)
				}
				sources[res.Source].Add(1)
			})
		}
		all.Wait()
		if effects.Load() != 1 || sources[idem.SourceExecuted].Load() != 1 || sources[idem.SourceReplayed].Load() == 0 {
			t.Errorf("%d effects, %d executed, %d replayed", effects.Load(), sources[idem.SourceExecuted].Load(), sources[idem.SourceReplayed].Load())
		}
	})
}

// TestCallersLeave: whoever leaves, leaves alone.
func TestCallersLeave(t *testing.T) {
	bubble := func(name string, test func(t *testing.T, c *idem.Client, g *gated)) {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { test(t, newClient(t, idem.Config{Policy: patient}), newGated()) })
		})
	}
	stopped := func(t *testing.T, b *caller[int64]) {
		t.Helper()
		began := time.Now()
		b.cancel()
		_, err := b.wait()
		wantOutcome(t, err, idem.OutcomeUnknown, context.Canceled)
		if d := time.Since(began); d != 0 {
			t.Errorf("B078: returned %v after its cancellation", d)
		}
	}
	gets := func(t *testing.T, b *caller[int64], g *gated) {
		t.Helper()
		res, err := b.wait()
		wantSource(t, res, err, idem.SourceJoined)
		if res.Value != 1 || g.calls.Load() != 1 || g.ended.Load() {
			t.Errorf("value %d, %d calls, cancelled %v", res.Value, g.calls.Load(), g.ended.Load())
		}
	}
	bubble("B068 the starter", func(t *testing.T, c *idem.Client, g *gated) {
		a, b := start(t, c, intent, g.call), start(t, c, intent, g.call)
		stopped(t, a)
		time.Sleep(time.Minute)
		close(g.gate)
		gets(t, b, g)
	})
	bubble("B069 a joiner, then another one comes", func(t *testing.T, c *idem.Client, g *gated) {
		a, b := start(t, c, intent, g.call), start(t, c, intent, g.call)
		stopped(t, b)
		d := start(t, c, intent, g.call)
		close(g.gate)
		gets(t, d, g)
		res, err := a.wait()
		wantSource(t, res, err, idem.SourceExecuted)
	})
	bubble("B070 the only one, then another one comes", func(t *testing.T, c *idem.Client, g *gated) {
		a := start(t, c, intent, g.call)
		stopped(t, a)
		time.Sleep(time.Second - 1) // the grace is nearly over
		b := start(t, c, intent, g.call)
		time.Sleep(time.Minute)
		close(g.gate)
		gets(t, b, g)
	})
	bubble("all of them, twice", func(t *testing.T, c *idem.Client, g *gated) {
		stopped(t, start(t, c, intent, g.call))
		time.Sleep(time.Second - 1)
		stopped(t, start(t, c, intent, g.call))
		time.Sleep(time.Second - 1)
		if g.ended.Load() {
			t.Error("the grace was not counted from the last one's leaving")
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if !g.ended.Load() {
			t.Error("the flight goes on without callers")
		}
	})
	bubble("B078 a joiner with a short deadline", func(t *testing.T, c *idem.Client, g *gated) {
		a := start(t, c, intent, g.call)
		began := time.Now()
		_, err := idem.Do(after(t, 10*time.Millisecond), c, intent, g.call)
		wantOutcome(t, err, idem.OutcomeUnknown, context.DeadlineExceeded)
		if d := time.Since(began); d != 10*time.Millisecond {
			t.Errorf("returned after %v", d)
		}
		close(g.gate)
		res, err := a.wait()
		wantSource(t, res, err, idem.SourceExecuted)
	})
	bubble("a starter with a short deadline", func(t *testing.T, c *idem.Client, g *gated) {
		go idem.Do(after(t, 10*time.Millisecond), c, intent, func(ctx context.Context, key idem.Key) (int64, error) {
			return g.call(context.WithoutCancel(ctx), key) // this attempt's end was fixed when it began
		})
		synctest.Wait()
		b := start(t, c, intent, g.call)
		time.Sleep(time.Minute)
		close(g.gate)
		gets(t, b, g)
	})
	bubble("many at random", func(t *testing.T, c *idem.Client, g *gated) {
		var all []*caller[int64]
		for range 300 {
			all = append(all, start(t, c, intent, g.call))
		}
		gone := map[int]bool{}
		for range 600 {
			i := rand.IntN(len(all) - 1) // the last one stays
			gone[i] = true
			all[i].cancel()
			time.Sleep(rand.N(20 * time.Millisecond))
		}
		close(g.gate)
		for i, b := range all {
			res, err := b.wait()
			if gone[i] {
				wantOutcome(t, err, idem.OutcomeUnknown, context.Canceled)
			} else if err != nil || res.Value != 1 {
				t.Errorf("caller %d: %v, %v", i, res, err)
			}
		}
		if g.calls.Load() != 1 || g.ended.Load() {
			t.Errorf("%d calls, cancelled %v", g.calls.Load(), g.ended.Load())
		}
	})
}

// An attempt that is under way when callers come and go keeps its timeout; the
// next one gets what the callers then allow.
func TestLatestDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t, idem.Config{Policy: idem.Policy{AttemptTimeout: time.Hour, Overall: time.Hour, MaxDelay: time.Millisecond}})
		var ends []time.Duration
		began := time.Now()
		call := func(ctx context.Context, _ idem.Key) (int, error) {
			<-ctx.Done()
			ends = append(ends, time.Since(began).Round(time.Second))
			return 0, ctx.Err()
		}
		go idem.Do(after(t, 10*time.Second), c, intent, call)
		synctest.Wait()
		go idem.Do(after(t, 60*time.Second), c, intent, call)
		synctest.Wait()
		_, err := idem.Do(after(t, 30*time.Second), c, intent, call)
		wantOutcome(t, err, idem.OutcomeUnknown, context.DeadlineExceeded)
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(ends) != 2 || ends[0] != 10*time.Second || ends[1] != 60*time.Second {
			t.Errorf("attempts ended at %v, want 10s and 60s", ends)
		}
	})
}

// A flight has the values of its starter's context, and not its end.
func TestFlightContext(t *testing.T) {
	type traceKey struct{}
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t, idem.Config{FlightGrace: time.Minute, Policy: patient})
		ctx, cancel := context.WithCancel(context.WithValue(t.Context(), traceKey{}, "trace-1"))
		var trace any
		var alive error
		go idem.Do(ctx, c, intent, func(ctx context.Context, _ idem.Key) (int, error) {
			time.Sleep(time.Second)
			trace, alive = ctx.Value(traceKey{}), ctx.Err()
			return 0, nil
		})
		synctest.Wait()
		cancel()
		graceOver()
		if trace != "trace-1" || alive != nil {
			t.Errorf("B079: trace %v, %v", trace, alive)
		}
	})
}
