package idem

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// However many waits there are, and whatever lies between them, each has its
// whole limit, and none has more.
func TestWait(t *testing.T) {
	const limit = 10 * time.Second
	type step struct{ wait, pause time.Duration }
	for name, steps := range map[string][]step{
		"the first is too long":  {{limit + 1, 0}},
		"exactly the limit":      {{limit, 0}},
		"many short ones":        {{9 * time.Second, 0}, {9 * time.Second, 0}, {9 * time.Second, 0}, {limit + 1, 0}},
		"a pause":                {{time.Second, time.Hour}, {9 * time.Second, time.Hour}, {limit + 1, 0}},
		"a pause up to the time": {{time.Second, 9 * time.Second}, {9 * time.Second, 0}, {limit + 1, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				late := errors.New("late")
				var cancelled time.Time
				w := wait{limit: limit, late: late, cancel: func(cause error) {
					if cause != late {
						t.Errorf("cause %v", cause)
					}
					cancelled = time.Now()
				}}
				for i, s := range steps {
					w.begin()
					began := time.Now()
					time.Sleep(s.wait)
					synctest.Wait()
					last := i == len(steps)-1
					if !last && !cancelled.IsZero() {
						t.Fatalf("wait %d, of %v, was cancelled after %v", i, s.wait, cancelled.Sub(began))
					}
					if last && cancelled.Sub(began) != limit {
						t.Errorf("cancelled after %v, want %v", cancelled.Sub(began), limit)
					}
					w.end()
					time.Sleep(s.pause)
				}
				w.stop()
				cancelled = time.Time{}
				time.Sleep(time.Hour)
				if !cancelled.IsZero() {
					t.Error("cancelled after the end")
				}
			})
		})
	}
}
