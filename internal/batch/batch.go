// Package batch lets concurrent calls of one process travel together: one
// statement, or one commit, for all.
package batch

import (
	"bytes"
	"context"
	"runtime"
	"slices"
	"sync"
)

// What bounds a batch.
const (
	MaxCalls = 128
	MaxBytes = 1 << 20
)

// Group lets calls travel together. A call that finds none under way goes at once.
// The others wait, for nothing but the return of something that is under way:
// then all who wait go together, each record once, unless Limit batches are under
// way.
type Group[C, A any] struct {
	// Left is what the caller is told who has left, because its context ended so.
	Left func(error) error
	// Alone makes one call.
	Alone func(context.Context, C) (A, error)
	// Together makes several calls, sorted by their records, in one statement. Calls
	// that it does not answer are made alone. An error is that of all: nobody knows
	// whether the statement was carried out.
	Together func(context.Context, []*Member[C, A]) error
	// Keep copies what the caller of a call may change when it has left.
	Keep  func(C) C
	Limit int

	mu             sync.Mutex
	calls, batches int             // under way; the calls include those in batches
	waiting        []*Member[C, A] // something is under way then
}

// Member is a call that waits or is in a batch.
type Member[C, A any] struct {
	ID   [32]byte
	Call C
	size int
	// done is closed when it is known what becomes of the call: it goes by itself; or
	// its batch has returned, which has answered it, or has failed, or neither: then
	// it is made alone.
	done chan struct{}
	goes bool
	// Together sets these two.
	Answered bool
	Answer   A
	err      error

	left  bool // guarded, as batch is, by the group's mu
	batch *batch[C, A]
}

// batch are calls that travel together. ctx ends when the last of them has left.
type batch[C, A any] struct {
	members []*Member[C, A]
	ctx     context.Context
	cancel  context.CancelFunc
	stay    int // how many have not left; guarded by the group's mu
}

// Do makes a call about a record. size is what it takes of a batch's room.
func (g *Group[C, A]) Do(ctx context.Context, id [32]byte, size int, call C) (A, error) {
	if size > MaxBytes {
		return g.Alone(ctx, call)
	}
	m := g.enter(id, size, call)
	if m == nil {
		// Those who were answered together ask again together.
		runtime.Gosched()
		if m = g.accompany(id, size, call); m == nil {
			return g.single(ctx, id, call)
		}
		g.pass()
	}
	select {
	case <-m.done:
	case <-ctx.Done():
		g.leave(m)
		return *new(A), g.Left(ctx.Err())
	}
	switch {
	case m.goes:
		return g.single(ctx, id, call)
	case m.err != nil || m.Answered:
		return m.Answer, m.err
	}
	return g.Alone(ctx, call)
}

// single makes a call that is under way by itself. It is a batch too: those who
// wait for its return must not wait for what only this call does.
func (g *Group[C, A]) single(ctx context.Context, id [32]byte, call C) (A, error) {
	m := &Member[C, A]{ID: id, Call: call}
	err := func() error {
		defer g.pass()
		return g.Together(ctx, []*Member[C, A]{m})
	}()
	if err != nil || m.Answered {
		return m.Answer, err
	}
	return g.Alone(ctx, call)
}

// enter returns nil where the call may go at once. Otherwise it waits as a member.
func (g *Group[C, A]) enter(id [32]byte, size int, call C) *Member[C, A] {
	if g.place(nil) {
		return nil
	}
	if m := (&Member[C, A]{ID: id, size: size, Call: g.Keep(call), done: make(chan struct{})}); !g.place(m) {
		return m
	}
	return nil // by now
}

// accompany makes a call that may go at once one of those who wait, if there are
// any: they would wait for its return.
func (g *Group[C, A]) accompany(id [32]byte, size int, call C) *Member[C, A] {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.waiting) == 0 {
		return nil
	}
	m := &Member[C, A]{ID: id, size: size, Call: g.Keep(call), done: make(chan struct{})}
	g.waiting = append(g.waiting, m)
	return m
}

// place makes a call the one under way. Where there is one, m waits.
func (g *Group[C, A]) place(m *Member[C, A]) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.calls == 0 {
		g.calls++
		return true
	}
	if m != nil {
		g.waiting = append(g.waiting, m)
	}
	return false
}

// leave takes a caller out who waits no longer. The others in its batch stay.
func (g *Group[C, A]) leave(m *Member[C, A]) {
	g.mu.Lock()
	m.left = true
	if m.batch != nil {
		if m.batch.stay--; m.batch.stay == 0 {
			m.batch.cancel()
		}
	}
	g.mu.Unlock()
	if m.goes { // which nothing changes once it has left
		g.pass()
	}
}

// pass lets those who wait go where a call that went by itself has returned.
func (g *Group[C, A]) pass() {
	if b := g.next(1, 0); b != nil {
		go g.travel(b)
	}
}

// travel carries a batch, and then the ones that wait at its return. So the
// goroutine ends when nobody is left.
func (g *Group[C, A]) travel(b *batch[C, A]) {
	for b != nil {
		err := g.Together(b.ctx, b.members)
		b.cancel()
		next := g.next(len(b.members), 1)
		for _, m := range b.members {
			m.err = err
			close(m.done)
		}
		b = next
	}
}

// next lets those who wait go where calls, and the batch that they were, have
// returned. One goes by itself; several are a batch that is to travel.
func (g *Group[C, A]) next(calls, batches int) *batch[C, A] {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.calls -= calls
	g.batches -= batches
	if len(g.waiting) == 0 || g.batches == g.Limit {
		return nil
	}
	b := &batch[C, A]{members: g.pick()}
	b.stay = len(b.members)
	g.calls += b.stay
	if b.stay == 1 {
		b.members[0].goes = true
		close(b.members[0].done)
	}
	if b.stay < 2 {
		return nil
	}
	g.batches++
	b.ctx, b.cancel = context.WithCancel(context.Background())
	slices.SortFunc(b.members, func(a, b *Member[C, A]) int { return bytes.Compare(a.ID[:], b.ID[:]) })
	for _, m := range b.members {
		m.batch = b
	}
	return b
}

// pick takes out of the queue who may travel together, first come, first served.
func (g *Group[C, A]) pick() (members []*Member[C, A]) {
	size, stay, picked := 0, g.waiting[:0], map[[32]byte]bool{}
	for _, m := range g.waiting {
		switch {
		case m.left:
		case picked[m.ID] || len(members) == MaxCalls || size+m.size > MaxBytes:
			stay = append(stay, m)
		default:
			picked[m.ID] = true
			size += m.size
			members = append(members, m)
		}
	}
	clear(g.waiting[len(stay):])
	g.waiting = stay
	return members
}

// Occupy makes calls wait as if one were under way, until it is released. It
// reports false where one is.
func (g *Group[C, A]) Occupy() (release func(), ok bool) { return g.pass, g.place(nil) }

// Pending is how many calls are under way or wait.
func (g *Group[C, A]) Pending() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.calls + len(g.waiting)
}
