package idemtest

import (
	"context"
	"net"
	"sync"
	"time"
)

// Proxy stands between a client and a server of any protocol over TCP, and does
// to their connections what networks do. Where Transport injects faults into
// requests, Proxy injects them below, into the bytes: between a program and its
// store, for example.
//
//	p, _ := idemtest.NewProxy(redisAddr)
//	defer p.Close()
//	client := redis.NewClient(&redis.Options{Addr: p.Addr()})
//	p.Set(idemtest.Link{Partition: true}) // and, later, heal it:
//	p.Set(idemtest.Link{})
//
// It is safe for concurrent use.
type Proxy struct {
	listener net.Listener
	dial     func(context.Context) (net.Conn, error)
	// toServer and toClient are the links of all connections.
	toServer, toClient direction
	stop               context.CancelFunc
	running            sync.WaitGroup

	mu     sync.Mutex // guards the rest
	conns  map[*proxied]struct{}
	closed bool
}

// NewProxy listens on a free port of 127.0.0.1, and leads each connection to
// target, a host and port. Close ends it.
func NewProxy(target string) (*Proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	var d net.Dialer
	return newProxy(l, func(ctx context.Context) (net.Conn, error) { return d.DialContext(ctx, "tcp", target) }), nil
}

func newProxy(l net.Listener, dial func(context.Context) (net.Conn, error)) *Proxy {
	ctx, stop := context.WithCancel(context.Background())
	p := &Proxy{listener: l, dial: dial, stop: stop, conns: make(map[*proxied]struct{})}
	p.Set(Link{})
	p.running.Go(func() { p.accept(ctx) })
	return p
}

// Addr is the host and port to connect to instead of the target.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Set makes the connections, those that are open and those to come, like l from
// now on, both ways. The zero Link heals them.
func (p *Proxy) Set(l Link) {
	p.toServer.set(l)
	p.toClient.set(l)
}

// SetToServer is Set for what clients send, and for nothing else.
func (p *Proxy) SetToServer(l Link) { p.toServer.set(l) }

// SetToClient is Set for what the server sends, and for nothing else.
func (p *Proxy) SetToClient(l Link) { p.toClient.set(l) }

// Reset breaks off the connections that the proxy has accepted: both ends are
// sent a RST. What was on its way is lost. New connections are welcome.
func (p *Proxy) Reset() {
	for _, c := range p.open() {
		c.reset()
	}
}

// Close ends the proxy and its connections, and returns when nothing of it
// runs any more. New connections are refused. It may be called more than once.
func (p *Proxy) Close() error {
	p.mu.Lock()
	first := !p.closed
	p.closed = true
	p.mu.Unlock()
	p.stop()
	var err error
	if first {
		err = p.listener.Close()
	}
	for _, c := range p.open() {
		c.close()
	}
	p.running.Wait()
	return err
}

func (p *Proxy) open() (open []*proxied) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		open = append(open, c)
	}
	return open
}

// accept serves until the listener is closed.
func (p *Proxy) accept(ctx context.Context) {
	for {
		client, err := p.listener.Accept()
		switch {
		case err == nil:
		case sleepFor(ctx, acceptAgain): // too many open files, say
			continue
		default:
			return
		}
		c := &proxied{client: client, done: make(chan struct{})}
		if !p.add(c) {
			c.close()
			return
		}
		p.running.Go(func() {
			defer p.remove(c)
			p.serve(ctx, c)
		})
	}
}

// acceptAgain is the wait after a connection that could not be accepted.
const acceptAgain = 5 * time.Millisecond

// sleepFor waits; false if ctx ends before that.
func sleepFor(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func (p *Proxy) add(c *proxied) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	p.conns[c] = struct{}{}
	return true
}

func (p *Proxy) remove(c *proxied) {
	c.close()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
}

// serve carries one connection until both its directions have ended.
func (p *Proxy) serve(ctx context.Context, c *proxied) {
	// A partition, whichever way, keeps connections from coming about.
	if !p.toServer.healed(c.done) || !p.toClient.healed(c.done) {
		return
	}
	server, err := p.dial(ctx)
	if err != nil {
		c.reset()
		return
	}
	if !c.reached(server) {
		return
	}
	var both sync.WaitGroup
	both.Go(func() { (&pipe{conn: c, link: &p.toServer, from: c.client, to: server}).run() })
	both.Go(func() { (&pipe{conn: c, link: &p.toClient, from: server, to: c.client}).run() })
	both.Wait()
}
