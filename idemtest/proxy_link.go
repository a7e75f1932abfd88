package idemtest

import (
	"sync"
	"time"
)

// Link says what one way of a connection through a Proxy is like. The zero Link
// passes everything on at once. Negative values mean the same as zero.
type Link struct {
	// Latency holds every piece that arrives that long. What arrives meanwhile
	// comes after it.
	Latency time.Duration
	// Bandwidth is how many bytes pass in a second; 0 is no limit.
	Bandwidth int
	// Slice is how many bytes are written at once; 0 is no limit. The other
	// end may still read several slices together: add Latency or Bandwidth to
	// keep them apart.
	Slice int
	// CutAfter ends each connection when so many bytes have passed, counted
	// from its beginning or from Set, whichever was later: the other end gets
	// just these, and then both ends are told the end of the stream, an EOF.
	// 0 cuts nothing. Only one way needs it.
	CutAfter int64
	// Swallow takes what arrives, passes nothing on, and tells nobody, as if
	// the other end had lost its power. A connection that has lost something
	// so stays dead this way, whatever the link becomes.
	Swallow bool
	// Partition holds everything back, the end of a connection too, until it is
	// healed; then it arrives, late but in order. A new connection comes about
	// for its client, and leads nowhere until then.
	Partition bool
}

// direction is a Link that may change at any time.
type direction struct {
	mu      sync.Mutex // guards the rest
	link    Link
	changed chan struct{} // closed by the next change, and new for each link
}

func (d *direction) set(l Link) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.changed != nil {
		close(d.changed)
	}
	d.link, d.changed = l, make(chan struct{})
}

// get returns the link, and a channel that is closed when it is another.
func (d *direction) get() (Link, <-chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.link, d.changed
}

// healed waits until there is no partition; false if done comes first.
func (d *direction) healed(done <-chan struct{}) bool {
	for {
		l, changed := d.get()
		if !l.Partition {
			return true
		}
		select {
		case <-changed:
		case <-done:
			return false
		}
	}
}
