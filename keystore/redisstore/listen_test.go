package redisstore

import (
	"bytes"
	"context"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/idem-go/idem/internal/servertest"
	"github.com/idem-go/idem/keystore"
)

// listener runs Listen. Its methods wait for what OnListen is told.
type listener struct {
	t      *testing.T
	store  *Store
	told   chan error
	ended  chan error
	cancel context.CancelFunc
}

func listen(t *testing.T, addr, prefix string, silence time.Duration) *listener {
	t.Helper()
	l := &listener{t: t, told: make(chan error, 1000), ended: make(chan error, 1)}
	l.store = newStore(t, addr, Config{Prefix: prefix, OnListen: func(err error) { l.told <- err }})
	l.store.pingEvery = silence
	ctx, cancel := context.WithCancel(t.Context())
	l.cancel = cancel
	go func() { l.ended <- l.store.Listen(ctx) }()
	t.Cleanup(l.end)
	return l
}

// end ends Listen and wants it to say why.
func (l *listener) end() {
	l.cancel()
	is(l.t, receive(l.t, l.ended), context.Canceled)
	l.ended <- context.Canceled // for the next end
}

func (l *listener) subscribed() {
	l.t.Helper()
	for receive(l.t, l.told) != nil {
	}
}

func (l *listener) lost() {
	l.t.Helper()
	for receive(l.t, l.told) == nil {
	}
}

func receive[T any](t *testing.T, from <-chan T) (got T) {
	t.Helper()
	deadline := time.NewTimer(20 * time.Second)
	defer deadline.Stop()
	select {
	case got = <-from:
	case <-deadline.C:
		t.Fatal("nothing was told")
	}
	return got
}

func closed(changed <-chan struct{}) bool {
	select {
	case <-changed:
		return true
	default:
		return false
	}
}

// What another process changes wakes the watchers of this one.
func TestListenHearsOfOtherProcesses(t *testing.T) {
	prefix := newPrefix()
	here := listen(t, shared, prefix, time.Minute)
	here.subscribed()
	there := newStore(t, shared, Config{Prefix: prefix})
	for name, change := range map[string]func(keystore.ClaimParams, keystore.Owner){
		"complete": func(_ keystore.ClaimParams, o keystore.Owner) { complete(t, there, o, "result") },
		"forget":   func(_ keystore.ClaimParams, o keystore.Owner) { release(t, there, o, keystore.Forget) },
		"reject":   func(_ keystore.ClaimParams, o keystore.Owner) { release(t, there, o, keystore.Reject) },
		"abandon":  func(_ keystore.ClaimParams, o keystore.Owner) { release(t, there, o, keystore.Abandon) },
		"take-over": func(p keystore.ClaimParams, _ keystore.Owner) {
			p.Takeover = true
			acquire(t, there, rival(p))
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := params()
			if name == "take-over" {
				p.Lease = time.Nanosecond
			}
			o := acquire(t, there, p)
			changed, stop := here.store.Watch(p.ID)
			defer stop()
			change(p, o)
			receive(t, changed)
		})
	}
}

// A renewal, a refused call and another record's change wake nobody.
func TestListenIsQuietWithoutChange(t *testing.T) {
	prefix := newPrefix()
	here := listen(t, shared, prefix, time.Minute)
	here.subscribed()
	there := newStore(t, shared, Config{Prefix: prefix})
	p, last := params(), params()
	o, lastOwner := acquire(t, there, p), acquire(t, there, last)
	changed, stop := here.store.Watch(p.ID)
	defer stop()
	lastChanged, stopLast := here.store.Watch(last.ID)
	defer stopLast()

	acquire(t, there, p) // its own earlier self
	ok(t, there.Renew(t.Context(), o, keystore.RenewParams{Lease: time.Hour}))
	claim(t, there, rival(p), keystore.InFlight)
	is(t, completeErr(t, there, keystore.Owner{ID: p.ID}, ""), keystore.ErrFenced)
	complete(t, there, lastOwner, "result")
	receive(t, lastChanged) // comes after all others, in the server's order
	if closed(changed) {
		t.Error("a watcher was woken though its record did not change")
	}
}

// Without Listen, and while its connection is lost, a waiter learns of a
// foreign change by its poll; a subscription that is back wakes everybody, as
// nobody knows what was missed.
func TestListenSubscribesAgain(t *testing.T) {
	server := servertest.Redis(t, servertest.RedisOptions{AOF: true})
	prefix := newPrefix()
	here := listen(t, server.Addr, prefix, time.Minute)
	here.subscribed()
	there := newStore(t, server.Addr, Config{Prefix: prefix})

	for name, cut := range map[string]func(){
		"connection": func() { ok(t, there.client.ClientKillByFilter(t.Context(), "TYPE", "pubsub").Err()) },
		"server": func() {
			server.Kill()
			here.lost()
			ok(t, server.Restart())
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := acquire(t, there, params())
			missed, stop := here.store.Watch(o.ID)
			defer stop()
			cut()
			here.subscribed()
			receive(t, missed)
			again, stop := here.store.Watch(o.ID)
			defer stop()
			complete(t, there, o, "result")
			receive(t, again)
		})
	}
}

func TestWatchWithoutListen(t *testing.T) {
	prefix := newPrefix()
	here, there := newStore(t, shared, Config{Prefix: prefix}), newStore(t, shared, Config{Prefix: prefix})
	o := acquire(t, here, params())
	changed, stop := here.Watch(o.ID)
	defer stop()
	complete(t, there, o, "result")
	if closed(changed) {
		t.Error("a foreign change was heard of without Listen")
	}
	if got := records(t, here, keystore.Query{ID: &o.ID})[0].State; got != keystore.Done {
		t.Errorf("the poll that makes up for it sees %v, want done", got)
	}
	complete(t, here, o, "result")
	receive(t, changed)
	if here.watches.byID != nil {
		t.Error("a watch is kept after all were woken")
	}
}

// A connection that died without a word is noticed by its silence.
func TestListenNoticesADeadConnection(t *testing.T) {
	proxy := newProxy(t, shared)
	here := listen(t, proxy.addr, newPrefix(), 20*time.Millisecond)
	here.subscribed()
	// An idle connection is no dead one: it answers, time and again. On a slow
	// machine not every one does in time.
	for receive(t, proxy.pongs) < 3 {
	}
	for len(here.told) > 0 {
		<-here.told
	}
	proxy.silence()
	here.lost()
	here.subscribed()
}

func TestListenTwice(t *testing.T) {
	here := listen(t, shared, newPrefix(), time.Minute)
	here.subscribed()
	is(t, here.store.Listen(t.Context()), ErrListening)
	here.end()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	is(t, here.store.Listen(ctx), context.Canceled) // free again
}

// Listen waits for a server that is not there yet, and ends when it is told
// to.
func TestListenWithoutServer(t *testing.T) {
	here := listen(t, "127.0.0.1:1", newPrefix(), time.Minute)
	for range 3 {
		if err := receive(t, here.told); err == nil {
			t.Fatal("subscribed to nothing")
		}
	}
	here.end()
}

// proxy forwards connections to a server, until they are silenced.
type proxy struct {
	t    *testing.T
	addr string

	pongs chan int // how many PINGs were answered on one connection

	mu       sync.Mutex
	silenced []chan struct{} // one per connection
}

func newProxy(t *testing.T, to string) *proxy {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	ok(t, err)
	p := &proxy{t: t, addr: l.Addr().String(), pongs: make(chan int, 1000)}
	var wg sync.WaitGroup
	var conns []net.Conn
	t.Cleanup(func() {
		l.Close()
		p.mu.Lock()
		for _, c := range conns {
			c.Close()
		}
		p.mu.Unlock()
		wg.Wait()
	})
	wg.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", to)
			if err != nil {
				t.Error(err)
				in.Close()
				return
			}
			silent := make(chan struct{})
			p.mu.Lock()
			conns = append(conns, in, out)
			p.silenced = append(p.silenced, silent)
			p.mu.Unlock()
			wg.Go(func() { io.Copy(out, in) })
			wg.Go(func() { p.answer(in, out, silent) })
		}
	})
	return p
}

func (p *proxy) answer(to, from net.Conn, silent <-chan struct{}) {
	buf := make([]byte, 4096)
	for pongs := 0; ; {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		if closed(silent) {
			continue
		}
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
		if bytes.Contains(bytes.ToLower(buf[:n]), []byte("pong")) {
			pongs++
			p.pongs <- pongs
		}
	}
}

// silence swallows all further answers on the connections of now.
func (p *proxy) silence() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, silent := range p.silenced {
		close(silent)
	}
	p.silenced = nil
}
