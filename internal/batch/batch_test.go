package batch

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// road is a runner without a server: what it is given is under way for a second
// and answered with itself.
type road struct {
	Group[string, string]
	start time.Time

	mu      sync.Mutex
	trips   []trip
	callers sync.WaitGroup
}

// trip is what has left at once.
type trip struct {
	at    time.Duration
	alone bool
	calls []string
}

func newRoad(limit int) *road {
	r := &road{start: time.Now()}
	r.Group = Group[string, string]{
		Left: func(err error) error { return fmt.Errorf("test: %w", err) }, Limit: limit, Keep: func(s string) string { return "kept " + s },
		Alone: func(ctx context.Context, call string) (string, error) {
			r.leaves(true, call)
			return call, sleep(ctx)
		},
		Together: func(ctx context.Context, members []*Member[string, string]) error {
			calls := make([]string, len(members))
			for i, m := range members {
				calls[i] = m.Call
			}
			r.leaves(len(members) == 1, calls...)
			if err := sleep(ctx); err != nil {
				return err
			}
			for _, m := range members {
				m.Answer, m.Answered = m.Call, true
			}
			return nil
		},
	}
	return r
}

// sleep is how long a trip takes.
func sleep(ctx context.Context) error {
	select {
	case <-time.After(time.Second):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (r *road) leaves(alone bool, calls ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.trips = append(r.trips, trip{time.Since(r.start), alone, calls})
}

// call makes a call, about a record of that name, and returns when it waits or
// is under way.
func (r *road) call(ctx context.Context, name string, size int, ends func(string, error)) {
	var id [32]byte
	copy(id[:], name)
	r.callers.Go(func() { ends(r.Do(ctx, id, size, name)) })
	synctest.Wait()
}

// answered wants the call to be answered with itself.
func answered(t *testing.T, name string) func(string, error) {
	return func(a string, err error) {
		if err != nil || a != name && a != "kept "+name {
			t.Errorf("%q was answered %q, %v", name, a, err)
		}
	}
}

// wants waits for the end and compares what has left.
func (r *road) wants(t *testing.T, want ...trip) {
	t.Helper()
	r.callers.Wait()
	synctest.Wait()
	if got, want := fmt.Sprint(r.trips), fmt.Sprint(want); got != want {
		t.Errorf("what has left is\n%s, want\n%s", got, want)
	}
	r.Group.mu.Lock()
	defer r.Group.mu.Unlock()
	if r.Group.calls != 0 || r.batches != 0 || len(r.waiting) != 0 {
		t.Errorf("in the end %d calls and %d batches are under way, and %d calls wait", r.Group.calls, r.batches, len(r.waiting))
	}
}

func TestBatchLeaves(t *testing.T) {
	t.Run("who waits goes together at a return, sorted", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := newRoad(1)
			for _, name := range []string{"d", "c", "b", "a"} {
				r.call(t.Context(), name, 0, answered(t, name))
			}
			r.wants(t, trip{0, true, []string{"d"}}, trip{time.Second, false, []string{"kept a", "kept b", "kept c"}})
		})
	})
	t.Run("one after another go alone at once", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := newRoad(1)
			for _, name := range []string{"a", "b"} {
				r.call(t.Context(), name, 0, answered(t, name))
				r.callers.Wait()
			}
			r.wants(t, trip{0, true, []string{"a"}}, trip{time.Second, true, []string{"b"}})
		})
	})
	t.Run("one who waits goes alone", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := newRoad(1)
			r.call(t.Context(), "a", 0, answered(t, "a"))
			r.call(t.Context(), "b", 0, answered(t, "b"))
			r.wants(t, trip{0, true, []string{"a"}}, trip{time.Second, true, []string{"b"}})
		})
	})
	t.Run("those who ask together go together", func(t *testing.T) {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
		together := false
		for try := 0; try < 1000 && !together; try++ { // the scheduler may let one go on first
			synctest.Test(t, func(t *testing.T) {
				r := newRoad(1)
				for _, name := range []string{"a", "b", "c"} {
					r.callers.Go(func() { _, _ = r.Do(t.Context(), [32]byte{name[0]}, 0, name) })
				}
				r.callers.Wait()
				together = fmt.Sprint(r.trips) == fmt.Sprint([]trip{{0, false, []string{"kept a", "kept b", "kept c"}}})
			})
		}
		if !together {
			t.Error("they have never gone together")
		}
	})
	t.Run("so many batches", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := newRoad(2)
			for _, at := range []struct {
				names string
				pause time.Duration
			}{{"a", time.Second / 10}, {"bcd", time.Second}, {"ef", time.Second / 10}, {"ghi", 0}} {
				for _, name := range at.names {
					r.call(t.Context(), string(name), 0, answered(t, string(name)))
				}
				time.Sleep(at.pause)
			}
			r.wants(t, trip{0, true, []string{"a"}}, trip{time.Second, false, []string{"kept b", "kept c", "kept d"}},
				trip{2 * time.Second, false, []string{"kept e", "kept f", "kept g", "kept h", "kept i"}})
		})
	})
	t.Run("a record once per batch", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := newRoad(1)
			for _, name := range []string{"x", "a", "a", "b", "b", "a"} {
				r.call(t.Context(), name, 0, answered(t, name))
			}
			r.wants(t, trip{0, true, []string{"x"}}, trip{time.Second, false, []string{"kept a", "kept b"}},
				trip{2 * time.Second, false, []string{"kept a", "kept b"}}, trip{3 * time.Second, true, []string{"a"}})
		})
	})
	t.Run("so many records", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := newRoad(1)
			want := []trip{{0, true, []string{"x"}}, {time.Second, false, nil}, {2 * time.Second, false, nil}}
			r.call(t.Context(), "x", 0, answered(t, "x"))
			for i := range MaxCalls + 2 {
				name := fmt.Sprintf("%03d", i)
				r.call(t.Context(), name, 0, answered(t, name))
				want[1+i/MaxCalls].calls = append(want[1+i/MaxCalls].calls, "kept "+name)
			}
			r.wants(t, want...)
		})
	})
	t.Run("so many bytes", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := newRoad(1)
			for name, size := range map[string]int{"x": 0} {
				r.call(t.Context(), name, size, answered(t, name))
			}
			for i, name := range []string{"a", "b", "c", "d"} {
				r.call(t.Context(), name, []int{MaxBytes - 1, 2, 1, MaxBytes + 1}[i], answered(t, name))
			}
			r.wants(t, trip{0, true, []string{"x"}}, trip{0, true, []string{"d"}}, // waits for nobody
				trip{time.Second, false, []string{"kept a", "kept c"}}, trip{2 * time.Second, true, []string{"b"}})
		})
	})
}

func TestBatchMemberLeaves(t *testing.T) {
	left := func(t *testing.T) func(string, error) {
		start := time.Now()
		return func(_ string, err error) {
			if !errors.Is(err, context.DeadlineExceeded) || err.Error() != "test: context deadline exceeded" {
				t.Errorf("who has left was answered %v", err)
			}
			if d := time.Since(start); d > 3*time.Second/2 {
				t.Errorf("it took %v to leave", d)
			}
		}
	}
	for name, tt := range map[string]struct {
		patience time.Duration // of b; that of c is twice as long
		both     bool          // c leaves too
		want     []trip
	}{
		"while it waits": {time.Second / 2, false, []trip{{0, true, []string{"a"}}, {time.Second, false, []string{"kept c", "kept d"}}}},
		"on the way":     {3 * time.Second / 2, false, []trip{{0, true, []string{"a"}}, {time.Second, false, []string{"kept b", "kept c", "kept d"}}}},
		"all on the way": {3 * time.Second / 2, true, []trip{{0, true, []string{"a"}}, {time.Second, false, []string{"kept b", "kept c"}}}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRoad(1)
				ctx, cancel := context.WithTimeout(t.Context(), tt.patience)
				defer cancel()
				r.call(t.Context(), "a", 0, answered(t, "a"))
				r.call(ctx, "b", 0, left(t))
				if tt.both {
					r.call(ctx, "c", 0, left(t))
				} else {
					r.call(t.Context(), "c", 0, answered(t, "c"))
					r.call(t.Context(), "d", 0, answered(t, "d"))
				}
				r.callers.Wait()
				synctest.Wait()
				end := 2 * time.Second
				if tt.both {
					end = tt.patience // the batch has ended with the last of them
				}
				if d := time.Since(r.start); d != end {
					t.Errorf("it took %v, want %v", d, end)
				}
				r.wants(t, tt.want...)
			})
		})
	}
}

// Who gets a place and leaves in the same moment passes it on.
func TestBatchPlaceIsPassedOn(t *testing.T) {
	r := newRoad(1)
	g := &r.Group
	g.place(nil)
	m := g.enter([32]byte{1}, 0, "leaves")
	g.pass()
	next := g.enter([32]byte{2}, 0, "next")
	g.leave(m)
	<-next.done
	if !next.goes {
		t.Error("who came next has no place")
	}
}

// Of one batch some are answered and some are not; or all are told its error.
func TestBatchAnswers(t *testing.T) {
	lost := errors.New("lost")
	for _, fails := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			r := newRoad(1)
			together := r.Together
			r.Together = func(ctx context.Context, members []*Member[string, string]) error {
				if len(members) == 1 {
					return together(ctx, members)
				}
				if fails {
					return errors.Join(together(ctx, nil), lost)
				}
				i := slices.IndexFunc(members, func(m *Member[string, string]) bool { return m.Call == "kept b" })
				return together(ctx, slices.Delete(slices.Clone(members), i, i+1))
			}
			for _, name := range []string{"x", "a", "b", "c"} {
				ends := answered(t, name)
				if fails && name != "x" {
					ends = func(_ string, err error) {
						if !errors.Is(err, lost) {
							t.Errorf("%q was told %v", name, err)
						}
					}
				}
				r.call(t.Context(), name, 0, ends)
			}
			if fails {
				r.wants(t, trip{0, true, []string{"x"}}, trip{time.Second, false, nil})
			} else {
				r.wants(t, trip{0, true, []string{"x"}}, trip{time.Second, false, []string{"kept a", "kept c"}},
					trip{2 * time.Second, true, []string{"b"}})
			}
		})
	}
}
