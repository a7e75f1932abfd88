package memstore

// watch is what the watchers of one record share.
type watch struct {
	changed  chan struct{}
	watchers int
}

// Watch implements keystore.Waiter. Every change of state or owner closes the
// channel, an Abandon and the removal of the record included; none is lost.
func (s *Store) Watch(id [32]byte) (changed <-chan struct{}, stop func()) {
	sh := s.lock(id)
	defer sh.mu.Unlock()
	w := sh.watches[id]
	if w == nil {
		w = &watch{changed: make(chan struct{})}
		if sh.watches == nil {
			sh.watches = make(map[[32]byte]*watch)
		}
		sh.watches[id] = w
	}
	w.watchers++

	stopped := false // guarded by the shard's mutex
	return w.changed, func() {
		sh.mu.Lock()
		defer sh.mu.Unlock()
		if stopped {
			return
		}
		stopped = true
		// After a wake the shard has another watch of the ID, or none.
		if w.watchers--; w.watchers == 0 && sh.watches[id] == w {
			sh.dropWatch(id)
		}
	}
}

// wake tells the watchers of the ID that its record has changed.
func (sh *shard) wake(id [32]byte) {
	if w := sh.watches[id]; w != nil {
		close(w.changed)
		sh.dropWatch(id)
	}
}

// dropWatch forgets the watch of the ID, and the map with the last of them: a
// Go map does not give memory back by itself.
func (sh *shard) dropWatch(id [32]byte) {
	delete(sh.watches, id)
	if len(sh.watches) == 0 {
		sh.watches = nil
	}
}
