package idem

import (
	"context"
	"sync"
	"time"
)

// wait cancels an exchange that takes too long, in one wait at a time: for the
// header, or in one read of the body. Its timer is not set for each wait, as that
// can cost more than the wait: the runtime may wake a thread to look after it.
type wait struct {
	limit  time.Duration
	late   error
	cancel context.CancelCauseFunc

	mu    sync.Mutex // guards the rest
	timer *time.Timer
	set   bool      // the timer is
	since time.Time // when the present wait began; zero if there is none
}

func (w *wait) begin() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.since = time.Now()
	switch {
	case w.timer == nil:
		w.timer = time.AfterFunc(w.limit, w.fire)
	case !w.set:
		w.timer.Reset(w.limit)
	}
	w.set = true
}

func (w *wait) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.since = time.Time{}
}

// fire looks how long the present wait has lasted: the timer was set for an
// earlier one.
func (w *wait) fire() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.since.IsZero() {
		w.set = false
		return
	}
	if left := w.limit - time.Since(w.since); left > 0 {
		w.timer.Reset(left)
		return
	}
	w.cancel(w.late)
}

// stop frees the timer.
func (w *wait) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.since, w.set = time.Time{}, false
	w.timer.Stop()
}
