package redisstore

import "sync"

// watches are who waits for changes of records in this process.
type watches struct {
	mu   sync.Mutex
	byID map[[32]byte]*watch // nil while nobody waits
}

// watch is what the watchers of one record share.
type watch struct {
	changed  chan struct{}
	watchers int
}

// Watch implements keystore.Waiter. It sends nothing: changes that are made
// through this Store close the channel, and while Listen runs all others.
func (s *Store) Watch(id [32]byte) (changed <-chan struct{}, stop func()) {
	w := s.watches.join(id)
	return w.changed, sync.OnceFunc(func() { s.watches.leave(id, w) })
}

func (ws *watches) join(id [32]byte) *watch {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	w := ws.byID[id]
	if w == nil {
		w = &watch{changed: make(chan struct{})}
		if ws.byID == nil {
			ws.byID = make(map[[32]byte]*watch)
		}
		ws.byID[id] = w
	}
	w.watchers++
	return w
}

func (ws *watches) leave(id [32]byte, w *watch) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	// After a wake there is another watch of the ID, or none.
	if w.watchers--; w.watchers == 0 && ws.byID[id] == w {
		ws.drop(id)
	}
}

// wake tells the watchers of the ID that its record has changed.
func (ws *watches) wake(id [32]byte) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if w := ws.byID[id]; w != nil {
		close(w.changed)
		ws.drop(id)
	}
}

// wakeAll tells all watchers that something may have changed.
func (ws *watches) wakeAll() {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for _, w := range ws.byID {
		close(w.changed)
	}
	ws.byID = nil
}

// drop forgets the watch of the ID, and the map with the last of them: a Go
// map does not give memory back by itself.
func (ws *watches) drop(id [32]byte) {
	delete(ws.byID, id)
	if len(ws.byID) == 0 {
		ws.byID = nil
	}
}
