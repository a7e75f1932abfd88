// Package watch calls an application's observer so that it can't hurt what it
// watches: a panic or a Goexit in it ends nothing else, and one that blocks is
// left behind.
package watch

import (
	"context"
	"net/http"
	"sync/atomic"
	"time"
)

const (
	// patience is how long a call waits for the observer, and least how long it
	// does so where its context ends or has ended: its caller has a few
	// milliseconds left then to return what is true.
	patience = time.Second
	least    = 5 * time.Millisecond
	// maxBlocked is how many calls may be left behind at a time. While there
	// are that many, the observer is not called at all.
	maxBlocked = 64
	// maxOrigin bounds what a record keeps of its operation's trace.
	maxOrigin = 128
)

// Observer is idem.Observer, for events of type E.
type Observer[E any] interface {
	Observe(ctx context.Context, e E)
}

// Tracer is idem.Tracer, for events of type E and attempts of type A.
type Tracer[E, A any] interface {
	Observer[E]
	Start(ctx context.Context, e E, r *http.Request) (context.Context, string)
	StartAttempt(ctx context.Context, a A, r *http.Request) context.Context
	EndAttempt(ctx context.Context, a A)
}

// Watch is what watches the operations of one client or server. A nil Watch
// watches nothing. It is safe for concurrent use.
type Watch[E, A any] struct {
	observer Observer[E]
	tracer   Tracer[E, A] // nil if the observer is none
	blocked  atomic.Int32
	lost     atomic.Int64
}

// New returns what calls o, or nil if o is nil.
func New[E, A any](o Observer[E]) *Watch[E, A] {
	if o == nil {
		return nil
	}
	w := &Watch[E, A]{observer: o}
	w.tracer, _ = o.(Tracer[E, A])
	return w
}

// Traces tells whether Start and the attempts' calls do anything.
func (w *Watch[E, A]) Traces() bool { return w != nil && w.tracer != nil }

// Observe tells the observer of an event. event is asked for it, and told how
// many were lost since the last that arrived.
func (w *Watch[E, A]) Observe(ctx context.Context, event func(lost int) E) {
	if w == nil {
		return
	}
	lost := w.lost.Swap(0)
	e := event(int(lost))
	if !w.call(ctx, func() { w.observer.Observe(ctx, e) }) {
		w.lost.Add(lost + 1)
	}
}

// Start tells of a beginning. It returns the context to go on with, and what
// the operation's record is to keep of its trace.
func (w *Watch[E, A]) Start(ctx context.Context, e E, r *http.Request) (context.Context, string) {
	if !w.Traces() {
		return ctx, ""
	}
	return w.start(ctx, e, r)
}

// start is apart so that Start allocates nothing where nobody traces.
func (w *Watch[E, A]) start(ctx context.Context, e E, r *http.Request) (context.Context, string) {
	theirs := own(ctx, r)
	next, origin, ok := w.next(ctx, func() (context.Context, string) { return w.tracer.Start(ctx, e, theirs) })
	switch {
	case !ok:
		return ctx, ""
	case len(origin) > maxOrigin:
		return next, ""
	}
	return next, origin
}

// StartAttempt tells of an attempt's beginning, and returns its context, and
// whether the tracer is to be told of its end. r, nil for a function, gets the
// headers that the tracer has set.
func (w *Watch[E, A]) StartAttempt(ctx context.Context, a A, r *http.Request) (context.Context, bool) {
	if !w.Traces() {
		return ctx, false
	}
	return w.startAttempt(ctx, a, r)
}

func (w *Watch[E, A]) startAttempt(ctx context.Context, a A, r *http.Request) (context.Context, bool) {
	theirs := own(ctx, r)
	next, _, ok := w.next(ctx, func() (context.Context, string) { return w.tracer.StartAttempt(ctx, a, theirs), "" })
	if !ok {
		return ctx, false
	}
	if r != nil {
		for name, values := range theirs.Header {
			r.Header[name] = values
		}
	}
	return next, true
}

// EndAttempt tells of an attempt's end. ctx and told are what StartAttempt
// returned.
func (w *Watch[E, A]) EndAttempt(ctx context.Context, told bool, a A) {
	if told {
		w.endAttempt(ctx, a)
	}
}

func (w *Watch[E, A]) endAttempt(ctx context.Context, a A) {
	w.call(ctx, func() { w.tracer.EndAttempt(ctx, a) })
}

// own is a copy of a request, without its body: what changes it, maybe much
// later, since it was left behind, changes nothing else.
func own(ctx context.Context, r *http.Request) *http.Request {
	if r == nil {
		return nil
	}
	r = r.Clone(ctx)
	r.Body, r.GetBody = http.NoBody, nil
	if r.Header == nil {
		r.Header = make(http.Header)
	}
	return r
}

// next returns what fn returns, and whether it did so in time.
func (w *Watch[E, A]) next(ctx context.Context, fn func() (context.Context, string)) (context.Context, string, bool) {
	var next context.Context
	var origin string
	if !w.call(ctx, func() { next, origin = fn() }) || next == nil {
		return nil, "", false
	}
	return next, origin, true
}

// The states of a call.
const (
	running = iota
	ended
	left
)

// call calls fn on a goroutine of its own and waits for it, as long as patience
// goes, and not for long where ctx ends. It reports whether fn was called and
// its caller may rely on what it did: not if it has not returned. What blocks is
// not interrupted, only left.
func (w *Watch[E, A]) call(ctx context.Context, fn func()) (returned bool) {
	if w.blocked.Load() >= maxBlocked {
		return false
	}
	var state atomic.Int32
	done := make(chan bool, 1)
	go func() {
		ok := false
		defer func() {
			_ = recover()
			if !state.CompareAndSwap(running, ended) {
				w.blocked.Add(-1)
			}
			done <- ok
		}()
		fn()
		ok = true
	}()
	wait := patience
	if end, ok := ctx.Deadline(); ok {
		wait = min(wait, max(time.Until(end), 0)+least)
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case ok := <-done:
		return ok
	case <-timer.C:
	}
	w.blocked.Add(1)
	if !state.CompareAndSwap(running, left) {
		w.blocked.Add(-1)
		return <-done
	}
	return false
}
