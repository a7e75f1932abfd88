package pgstore

import "sync"

// changes tells of records that have changed: those who watch in this process
// at once, and the other processes by way of Listen. The zero value is ready.
type changes struct {
	mu      sync.Mutex
	watches map[[32]byte]*watch
	// outgoing are the records whose change the other processes are to be told
	// of; nil while Listen does not run.
	outgoing map[[32]byte]struct{}
	// pending has an element when there is something outgoing.
	pending chan struct{}
}

// maxOutgoing bounds what waits to be told to others. What is beyond costs them
// one poll.
const maxOutgoing = 10_000

// watch is what the watchers of one record share.
type watch struct {
	changed  chan struct{}
	watchers int
}

// Watch implements keystore.Waiter. Changes that are made through this Store
// close the channel, and those of other processes where both run Listen. A
// change inside a transaction counts when it is committed.
func (s *Store) Watch(id [32]byte) (changed <-chan struct{}, stop func()) {
	return s.changes.watch(id)
}

// changed tells of a change: at once, or when the transaction is committed.
// Nobody elsewhere waits for a record that is new.
func (s *Store) changed(id [32]byte, existed bool) {
	if s.tx != nil {
		s.tx.mu.Lock()
		defer s.tx.mu.Unlock()
		s.tx.changed = append(s.tx.changed, id)
		return
	}
	s.changes.wake(id)
	if existed {
		s.changes.tell(id)
	}
}

func (c *changes) watch(id [32]byte) (changed <-chan struct{}, stop func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	w := c.watches[id]
	if w == nil {
		w = &watch{changed: make(chan struct{})}
		if c.watches == nil {
			c.watches = map[[32]byte]*watch{}
		}
		c.watches[id] = w
	}
	w.watchers++

	stopped := false // guarded by mu
	return w.changed, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if stopped {
			return
		}
		stopped = true
		// After a wake there is another watch of the ID, or none.
		if w.watchers--; w.watchers == 0 && c.watches[id] == w {
			delete(c.watches, id)
		}
	}
}

// wake tells those who watch the record.
func (c *changes) wake(id [32]byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if w := c.watches[id]; w != nil {
		close(w.changed)
		delete(c.watches, id)
	}
}

// wakeAll tells everyone: what happened in the meantime is not known.
func (c *changes) wakeAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, w := range c.watches {
		close(w.changed)
	}
	clear(c.watches)
}

// tell queues the record for the other processes.
func (c *changes) tell(id [32]byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.outgoing == nil || len(c.outgoing) >= maxOutgoing {
		return
	}
	c.outgoing[id] = struct{}{}
	select {
	case c.pending <- struct{}{}:
	default:
	}
}

// open makes tell queue what it is told; false means that it does so already.
func (c *changes) open() (pending <-chan struct{}, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.outgoing != nil {
		return nil, false
	}
	c.outgoing, c.pending = map[[32]byte]struct{}{}, make(chan struct{}, 1)
	return c.pending, true
}

// take empties the queue.
func (c *changes) take() map[[32]byte]struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := c.outgoing
	c.outgoing = map[[32]byte]struct{}{}
	return out
}

// shut ends what open began.
func (c *changes) shut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.outgoing = nil
}
