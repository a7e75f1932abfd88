package lazyctx_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/idem-go/idem/internal/lazyctx"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	errLate  = errors.New("late")
	errOwn   = errors.New("cancelled")
	errOuter = errors.New("the parent's")
)

type valueKey struct{}

// Whoever asks, by whatever method and at whatever time, is told the same as by
// the contexts of the standard library.
func TestAsContext(t *testing.T) {
	ends := map[string]func(cancel, outer context.CancelCauseFunc){
		"none":             func(context.CancelCauseFunc, context.CancelCauseFunc) {},
		"cancelled":        func(cancel, _ context.CancelCauseFunc) { cancel(errOwn) },
		"cancelled twice":  func(cancel, _ context.CancelCauseFunc) { cancel(errOwn); cancel(errLate) },
		"without cause":    func(cancel, _ context.CancelCauseFunc) { cancel(nil) },
		"by the parent":    func(_, outer context.CancelCauseFunc) { outer(errOuter) },
		"parent, then own": func(cancel, outer context.CancelCauseFunc) { outer(errOuter); synctest.Wait(); cancel(errOwn) },
		"own, then parent": func(cancel, outer context.CancelCauseFunc) { cancel(errOwn); outer(errOuter) },
		"own, then late":   func(cancel, _ context.CancelCauseFunc) { cancel(errOwn); time.Sleep(time.Minute) },
		"late":             func(context.CancelCauseFunc, context.CancelCauseFunc) { time.Sleep(time.Minute); synctest.Wait() },
		"late, then own":   func(cancel, _ context.CancelCauseFunc) { time.Sleep(time.Minute); synctest.Wait(); cancel(errOwn) },
	}
	looks := map[string]func(context.Context) any{
		"Err":   func(ctx context.Context) any { return ctx.Err() },
		"Cause": func(ctx context.Context) any { return context.Cause(ctx) },
		"Value": func(ctx context.Context) any { return ctx.Value(valueKey{}) },
		"Done": func(ctx context.Context) any {
			synctest.Wait()
			select {
			case <-ctx.Done():
				return true
			default:
				return false
			}
		},
		"child": func(ctx context.Context) any {
			child, stop := context.WithCancel(ctx)
			defer stop()
			synctest.Wait()
			return context.Cause(child)
		},
		"AfterFunc": func(ctx context.Context) any {
			called := make(chan struct{})
			stop := context.AfterFunc(ctx, func() { close(called) })
			synctest.Wait()
			defer stop()
			select {
			case <-called:
				return true
			default:
				return false
			}
		},
	}
	for end, what := range ends {
		for name, look := range looks {
			for n := range 4 {
				listening, late := n%2 == 1, errLate
				if n/2 == 1 {
					late = nil
				}
				asks := name == "Err" || name == "Cause" || name == "Value" // and does not listen
				if (asks || !listening) && (end == "parent, then own" || end == "late, then own") {
					continue // nobody had noticed the first end
				}
				synctest.Test(t, func(t *testing.T) {
					both := func(start func(context.Context) (context.Context, context.CancelCauseFunc)) (any, any) {
						outer, cancelOuter := context.WithCancelCause(context.WithValue(t.Context(), valueKey{}, "v"))
						defer cancelOuter(nil)
						ctx, cancel := start(outer)
						defer cancel(nil)
						var before any
						if listening {
							before = look(ctx)
						}
						what(cancel, cancelOuter)
						return before, look(ctx)
					}
					wantBefore, want := both(func(outer context.Context) (context.Context, context.CancelCauseFunc) {
						timed, stop := context.WithTimeoutCause(outer, time.Minute, late)
						if late == nil {
							return timed, func(error) { stop() }
						}
						ctx, cancel := context.WithCancelCause(timed)
						return ctx, func(err error) { cancel(err); stop() }
					})
					gotBefore, got := both(func(outer context.Context) (context.Context, context.CancelCauseFunc) {
						c := new(lazyctx.Context)
						c.Start(outer, time.Now().Add(time.Minute), late)
						return c, c.Cancel
					})
					if gotBefore != wantBefore || got != want {
						t.Errorf("%s of %s, listening %v, late %v: %v, %v; want %v, %v", name, end, listening, late, gotBefore, got, wantBefore, want)
					}
				})
			}
		}
	}
}

func TestDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		soon, stop := context.WithTimeoutCause(t.Context(), time.Second, errOuter)
		defer stop()
		for _, limit := range []time.Duration{time.Millisecond, time.Minute} {
			want, stop := context.WithTimeoutCause(soon, limit, errLate)
			defer stop()
			c := new(lazyctx.Context)
			c.Start(soon, time.Now().Add(limit), errLate)
			defer c.Cancel(nil)
			at, ok := c.Deadline()
			if wantAt, _ := want.Deadline(); !ok || !at.Equal(wantAt) {
				t.Errorf("ends at %v, want %v", at, wantAt)
			}
			<-c.Done()
			synctest.Wait()
			if c.Err() != context.DeadlineExceeded || context.Cause(c) != context.Cause(want) {
				t.Errorf("ended by %v, %v; want %v", c.Err(), context.Cause(c), context.Cause(want))
			}
		}
	})
}

// Nobody who does not listen pays for a timer or a channel.
func TestAllocatesNothing(t *testing.T) {
	var c lazyctx.Context
	parent := context.Background()
	if n := testing.AllocsPerRun(100, func() {
		c.Start(parent, time.Now().Add(time.Minute), nil)
		if c.Err() != nil || c.Value(valueKey{}) != nil {
			t.Error(c.Err())
		}
		c.Cancel(nil)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
