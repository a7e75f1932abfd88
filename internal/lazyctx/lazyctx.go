// Package lazyctx has a context that ends at a deadline or when it is
// cancelled, and that sets no timer and makes no channel before somebody
// listens to it: most calls are over by then.
package lazyctx

import (
	"context"
	"sync"
	"time"
)

// Context is as context.WithCancelCause around context.WithDeadlineCause would
// be, but for one thing: an end of its parent or at its deadline that nobody had
// noticed when it was cancelled has not been. Start it before its use, and Cancel
// it after, as those.
type Context struct {
	parent   context.Context
	deadline time.Time
	late     error // the cause at the deadline

	mu    sync.Mutex
	cause error // of the end, if it came before anybody listened
	// listened is the context of those who listen, nil before.
	listened context.Context
	cancel   context.CancelCauseFunc
	stop     context.CancelFunc
}

// Start makes c a child of parent that ends at the deadline, with the cause
// late. With nil it is as context.WithDeadline, and ends with no causes of its own.
// What c was before is over.
func (c *Context) Start(parent context.Context, deadline time.Time, late error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.parent, c.deadline, c.late = parent, deadline, late
	c.cause, c.listened, c.cancel, c.stop = nil, nil, nil, nil
}

// Cancel ends c with the cause, if it has not ended yet; nil means
// context.Canceled.
func (c *Context) Cancel(cause error) {
	c.mu.Lock()
	if cause == nil || c.late == nil {
		cause = context.Canceled
	}
	cancel, stop := c.cancel, c.stop
	if c.listened == nil && c.cause == nil {
		c.cause = cause
	}
	c.mu.Unlock()
	// Unlocked, since the children end with it, and may ask for values.
	if cancel != nil {
		cancel(cause)
	}
	if stop != nil {
		stop()
	}
}

// Deadline implements context.Context.
func (c *Context) Deadline() (time.Time, bool) {
	if end, ok := c.parent.Deadline(); ok && end.Before(c.deadline) {
		return end, true
	}
	return c.deadline, true
}

// Done implements context.Context.
func (c *Context) Done() <-chan struct{} { return c.listener().Done() }

// Err implements context.Context.
func (c *Context) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err()
}

func (c *Context) err() error {
	switch {
	case c.listened != nil:
		return c.listened.Err()
	case c.cause != nil:
		return context.Canceled
	case !time.Now().Before(c.deadline):
		return c.listen().Err()
	}
	return c.parent.Err()
}

// Value implements context.Context. It is also how context.Cause finds the
// cause, and a child its parent.
func (c *Context) Value(key any) any {
	c.mu.Lock()
	from := c.listened
	if from == nil && c.err() != nil {
		from = c.listen()
	}
	c.mu.Unlock()
	if from == nil {
		from = c.parent
	}
	return from.Value(key)
}

func (c *Context) listener() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.listen()
}

// listen makes the context that ends by itself. The caller holds mu.
func (c *Context) listen() context.Context {
	switch {
	case c.listened != nil:
	case c.cause != nil: // what else has ended since does not count
		c.listened, c.cancel = context.WithCancelCause(context.WithoutCancel(c.parent))
		c.cancel(c.cause)
	default:
		c.listened, c.stop = context.WithDeadlineCause(c.parent, c.deadline, c.late)
		if c.late != nil {
			c.listened, c.cancel = context.WithCancelCause(c.listened)
		}
	}
	return c.listened
}
