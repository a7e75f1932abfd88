// Package observe combines observers of idem's operations. Those that are ready
// to use are in its sub-packages: slogobs writes a log line for each operation,
// otelobs makes OpenTelemetry spans and metrics of them.
//
//	cfg.Observer = observe.All(slogobs.New(slogobs.Config{}), traces)
//
// docs/operations.md lists the events, what each means and what to do.
package observe

import (
	"context"
	"net/http"

	"github.com/idem-go/idem"
)

// All returns an Observer that tells each of the observers, in their order; nil
// ones are left out. It is an idem.Tracer if one of them is; then the context
// passes through all tracers, and the first text that one returns is kept with
// the result. They share the time that an Observer has: a slow one makes the
// others late.
func All(observers ...idem.Observer) idem.Observer {
	var told all
	traces := false
	for _, o := range observers {
		if o != nil {
			told = append(told, o)
			_, ok := o.(idem.Tracer)
			traces = traces || ok
		}
	}
	switch {
	case len(told) == 0:
		return nil
	case len(told) == 1:
		return told[0]
	case traces:
		return &allTracers{told}
	}
	return &told
}

type all []idem.Observer

// Observe implements idem.Observer.
func (a all) Observe(ctx context.Context, e idem.Event) {
	// Deferred, so that a panic in one keeps no other from being told.
	for i := len(a) - 1; i >= 0; i-- {
		defer a[i].Observe(ctx, e)
	}
}

type allTracers struct{ all }

// Start implements idem.Tracer. A tracer that panics, or returns no context, is
// as if it had not been called: the others go on without it.
func (a allTracers) Start(ctx context.Context, e idem.Event, r *http.Request) (context.Context, string) {
	var origin string
	for _, o := range a.all {
		if t, ok := o.(idem.Tracer); ok {
			ctx = guarded(ctx, func() context.Context {
				next, own := t.Start(ctx, e, r)
				if origin == "" && next != nil {
					origin = own
				}
				return next
			})
		}
	}
	return ctx, origin
}

// StartAttempt implements idem.Tracer, as Start does.
func (a allTracers) StartAttempt(ctx context.Context, at idem.Attempt, r *http.Request) context.Context {
	for _, o := range a.all {
		if t, ok := o.(idem.Tracer); ok {
			ctx = guarded(ctx, func() context.Context { return t.StartAttempt(ctx, at, r) })
		}
	}
	return ctx
}

// guarded returns what call returns, or ctx.
func guarded(ctx context.Context, call func() context.Context) (next context.Context) {
	defer func() {
		if recover() != nil || next == nil {
			next = ctx
		}
	}()
	return call()
}

// EndAttempt implements idem.Tracer.
func (a allTracers) EndAttempt(ctx context.Context, at idem.Attempt) {
	for i := len(a.all) - 1; i >= 0; i-- {
		if t, ok := a.all[i].(idem.Tracer); ok {
			defer t.EndAttempt(ctx, at)
		}
	}
}
