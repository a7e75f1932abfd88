package server

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/keystore"
)

const (
	// storeTimeout bounds what one operation waits for the store at a time.
	storeTimeout = 5 * time.Second
	// firstDelay and maxDelay bound the pause between two tries to settle a
	// record in the background.
	firstDelay = 100 * time.Millisecond
	maxDelay   = 5 * time.Second
	// maxUndos bounds how many claims of unknown fate are taken back at a
	// time: during an outage each request may leave one.
	maxUndos = 64
)

// Shutdown refuses new work, and waits until running work has ended and every
// record is settled, or until ctx is done, whose error it then returns. What
// still runs then is left: its context is cancelled with idem.ErrShutdown, and
// its lease runs out, so that its record becomes unresolved, or free if its
// effect had not begun. Afterwards no goroutine of the server is left. It may
// be called more than once.
func (s *Server) Shutdown(ctx context.Context) error {
	s.mu.Lock()
	if !s.closed {
		s.closed = true
		if s.active == 0 {
			close(s.idle)
		}
	}
	s.mu.Unlock()

	err := wait(ctx, s.idle)

	s.mu.Lock()
	s.stopped = true
	left := make([]*execution, 0, len(s.running))
	for ex := range s.running {
		left = append(left, ex)
	}
	s.mu.Unlock()
	s.stop()
	for _, ex := range left {
		ex.end(idem.ErrShutdown)
		if ex.keeper != nil {
			ex.keeper.Stop()
		}
	}
	s.waiters.Stop()
	s.background.Wait()
	return err
}

// wait waits for done. If both are over, done counts.
func wait(ctx context.Context, done <-chan struct{}) error {
	select {
	case <-done:
		return nil
	case <-ctx.Done():
	}
	select {
	case <-done:
		return nil
	default:
		return ctx.Err()
	}
}

// enter admits an operation, which must leave. During Shutdown that is only a
// step of an operation that runs: it could not end otherwise.
func (s *Server) enter(ctx context.Context) bool {
	outer := running(ctx)
	step := outer != nil && outer.op.server == s
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped || s.closed && (!step || s.active == 0) {
		return false
	}
	s.active++
	return true
}

func (s *Server) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.active--; s.active == 0 && s.closed {
		close(s.idle)
	}
}

// track registers an execution, so that Shutdown can end its lease.
func (s *Server) track(ex *execution) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.stopped {
		s.running[ex] = struct{}{}
	}
	return !s.stopped
}

func (s *Server) untrack(ex *execution) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.running, ex)
}

// later repeats write in the background until it succeeds, no repeat can help,
// or Shutdown's patience ends; then it calls done. It reports false, and does
// nothing, if that has happened. The caller is an operation that has entered.
func (s *Server) later(write func(context.Context) error, done func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return false
	}
	s.active++
	s.background.Go(func() {
		defer s.leave()
		defer done()
		s.repeat(write)
	})
	return true
}

func (s *Server) repeat(write func(context.Context) error) {
	for delay := firstDelay; ; delay = min(2*delay, maxDelay) {
		timer := time.NewTimer(delay/2 + rand.N(delay/2))
		select {
		case <-s.stopping.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
		ctx, cancel := context.WithTimeout(s.stopping, storeTimeout)
		err := write(ctx)
		cancel()
		if err == nil || keystore.Final(err) {
			return
		}
	}
}
