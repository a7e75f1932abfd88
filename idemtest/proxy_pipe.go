package idemtest

import (
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// proxied is one connection through a Proxy: two, to be exact.
type proxied struct {
	client net.Conn
	// done is closed with the connection.
	done chan struct{}
	cut  atomic.Bool // both ends were told the end

	mu     sync.Mutex // guards the rest
	server net.Conn   // nil until it is reached
	closed bool
}

// reached takes the connection to the server; false if it comes too late.
func (c *proxied) reached(server net.Conn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		_ = server.Close()
		return false
	}
	c.server = server
	return true
}

// close ends the connection, as it stands.
func (c *proxied) close() { c.end(func(net.Conn) {}) }

// reset ends it with a RST to both ends.
func (c *proxied) reset() {
	c.end(func(conn net.Conn) {
		if tcp, ok := conn.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0) // fails on a connection that has ended only
		}
	})
}

// end is idempotent: the first way to end it is the one.
func (c *proxied) end(before func(net.Conn)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return
	}
	c.closed = true
	close(c.done)
	for _, conn := range []net.Conn{c.client, c.server} {
		if conn != nil {
			before(conn)
			_ = conn.Close() // what was written is out already, or lost
		}
	}
}

// pipe is one way of a connection.
type pipe struct {
	conn     *proxied
	link     *direction
	from, to net.Conn

	dead   bool            // something was swallowed
	under  <-chan struct{} // the link that passed counts for
	passed int64
}

// pieceSize is the size of the largest piece.
const pieceSize = 32 << 10

// run passes on what arrives, to the end of the stream.
func (p *pipe) run() {
	buf := make([]byte, pieceSize)
	for {
		n, err := p.from.Read(buf)
		if !p.pass(buf[:n], time.Now()) {
			return
		}
		if err != nil {
			p.finish(err, time.Now())
			return
		}
	}
}

// pass passes a piece on, as the link allows; false if the connection is over.
func (p *pipe) pass(piece []byte, arrived time.Time) bool {
	for len(piece) > 0 {
		link, changed, ok := p.clear(arrived)
		switch {
		case !ok:
			return false
		case p.lost(link):
			return true
		}
		n := p.share(link, len(piece))
		if link.Bandwidth > 0 {
			took := time.Duration(n) * time.Second / time.Duration(link.Bandwidth)
			if !p.sleep(took, changed) {
				continue // the link is another, or the connection is over
			}
		}
		if _, err := p.to.Write(piece[:n]); err != nil {
			if p.conn.cut.Load() {
				return true
			}
			p.conn.reset() // the other end has done so
			return false
		}
		piece = piece[n:]
		p.passed += int64(n)
		if link.CutAfter > 0 && p.passed >= link.CutAfter {
			p.cut()
		}
	}
	return true
}

// lost tells whether a piece goes nowhere.
func (p *pipe) lost(l Link) bool {
	p.dead = p.dead || l.Swallow
	return p.dead || p.conn.cut.Load()
}

// share is how much of n bytes is written at once.
func (p *pipe) share(l Link, n int) int {
	if l.Slice > 0 {
		n = min(n, l.Slice)
	}
	if l.Bandwidth > 0 {
		n = min(n, max(1, l.Bandwidth/100)) // evenly
	}
	if l.CutAfter > 0 {
		n = int(min(int64(n), l.CutAfter-p.passed))
	}
	return n
}

// cut ends the stream for both ends. What they still send goes nowhere; the
// connection is closed when they have closed theirs, not before: a RST could
// overtake what was passed on.
func (p *pipe) cut() {
	p.conn.cut.Store(true)
	closeWrite(p.to)
	closeWrite(p.from)
}

// finish passes the end of the stream on, or that it has failed.
func (p *pipe) finish(err error, arrived time.Time) {
	link, _, ok := p.clear(arrived)
	switch {
	case !ok || p.lost(link):
	case errors.Is(err, io.EOF):
		closeWrite(p.to)
	default:
		p.conn.reset()
	}
}

// clear waits until the way is free for what has arrived then, and returns the
// link; false if the connection is over.
func (p *pipe) clear(arrived time.Time) (l Link, changed <-chan struct{}, ok bool) {
	for {
		l, changed = p.link.get()
		if p.under != changed {
			p.under, p.passed = changed, 0
		}
		wait := time.Until(arrived.Add(l.Latency))
		switch {
		case l.Swallow || p.dead:
			return l, changed, true
		case l.Partition:
			select {
			case <-changed:
			case <-p.conn.done:
				return l, changed, false
			}
		case wait <= 0:
			return l, changed, !p.over()
		default:
			p.sleep(wait, changed)
			if p.over() {
				return l, changed, false
			}
		}
	}
}

// sleep waits; false if the link changes, or the connection ends, before that.
func (p *pipe) sleep(d time.Duration, changed <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-changed:
	case <-p.conn.done:
	}
	return false
}

func (p *pipe) over() bool {
	select {
	case <-p.conn.done:
		return true
	default:
		return false
	}
}

// closeWrite tells the end of the stream. What has no such half is closed.
func closeWrite(c net.Conn) {
	if half, ok := c.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite() // fails if the other end has gone already
		return
	}
	_ = c.Close()
}
