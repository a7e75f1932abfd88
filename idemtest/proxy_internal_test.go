package idemtest

import (
	"context"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// These tests run in bubbles, over pipes instead of sockets: a pipe's reader
// sees the pieces as they were written, and the time of a bubble is exact.

// pipeListener is a listener for pipes.
type pipeListener struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error {
	l.once.Do(func() { close(l.done) })
	return nil
}

func (l *pipeListener) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "unix"} }

// pipeProxy returns a proxy, with one connection through it, and both its ends.
func pipeProxy(t *testing.T) (p *Proxy, client, server net.Conn) {
	t.Helper()
	l := &pipeListener{conns: make(chan net.Conn), done: make(chan struct{})}
	server, far := net.Pipe()
	p = newProxy(l, func(context.Context) (net.Conn, error) { return far, nil })
	client, near := net.Pipe()
	l.conns <- near
	t.Cleanup(func() {
		_ = client.Close() // none of these can fail
		_ = server.Close()
		_ = p.Close()
	})
	return p, client, server
}

// arrival is a piece that was read, and when.
type arrival struct {
	piece string
	after time.Duration
}

// collect reads pieces to the end, on a goroutine of its own.
func collect(c net.Conn) func() []arrival {
	var mu sync.Mutex
	var all []arrival
	began := time.Now()
	go func() {
		buf := make([]byte, 1<<16)
		for {
			n, err := c.Read(buf)
			if n > 0 {
				mu.Lock()
				all = append(all, arrival{string(buf[:n]), time.Since(began)})
				mu.Unlock()
			}
			if err != nil {
				return
			}
		}
	}()
	return func() []arrival {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(all)
	}
}

func send(t *testing.T, c net.Conn, text string) {
	t.Helper()
	if _, err := io.WriteString(c, text); err != nil {
		t.Error(err)
	}
}

func wantArrivals(t *testing.T, got []arrival, want ...arrival) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestProxyLatency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, client, server := pipeProxy(t)
		atServer, atClient := collect(server), collect(client)
		p.SetToServer(Link{Latency: 2 * time.Second})
		p.SetToClient(Link{Latency: 3 * time.Second})
		send(t, client, "ping")
		send(t, server, "pong")
		time.Sleep(10 * time.Second)
		wantArrivals(t, atServer(), arrival{"ping", 2 * time.Second})
		wantArrivals(t, atClient(), arrival{"pong", 3 * time.Second})
	})
}

// TestProxyLatencyChanges: what waits is let through when the link allows it.
func TestProxyLatencyChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, client, server := pipeProxy(t)
		atServer := collect(server)
		p.Set(Link{Latency: time.Hour})
		send(t, client, "a")
		time.Sleep(time.Second)
		p.Set(Link{Latency: 3 * time.Second})
		time.Sleep(time.Minute)
		wantArrivals(t, atServer(), arrival{"a", 3 * time.Second})
		p.Set(Link{Latency: time.Hour})
		send(t, client, "b")
		time.Sleep(time.Second)
		p.Set(Link{})
		synctest.Wait()
		wantArrivals(t, atServer(), arrival{"a", 3 * time.Second}, arrival{"b", 62 * time.Second})
	})
}

func TestProxyBandwidth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, client, server := pipeProxy(t)
		atServer := collect(server)
		p.Set(Link{Bandwidth: 200})
		send(t, client, strings.Repeat("x", 1000))
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if n := len(joined(atServer())); n != 400 {
			t.Errorf("%d bytes in the first two of five seconds, want 400", n)
		}
		time.Sleep(time.Minute)
		got := atServer()
		if n := len(joined(got)); n != 1000 || got[len(got)-1].after != 5*time.Second {
			t.Errorf("%d bytes, the last one after %v; want 1000, after 5s", n, got[len(got)-1].after)
		}
	})
}

// TestProxyBandwidthChanges: a slow piece goes on as the link allows.
func TestProxyBandwidthChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, client, server := pipeProxy(t)
		atServer := collect(server)
		p.Set(Link{Bandwidth: 1})
		send(t, client, "abc")
		time.Sleep(1500 * time.Millisecond)
		p.Set(Link{})
		synctest.Wait()
		wantArrivals(t, atServer(), arrival{"a", time.Second}, arrival{"bc", 1500 * time.Millisecond})
	})
}

func joined(all []arrival) string {
	var b strings.Builder
	for _, a := range all {
		b.WriteString(a.piece)
	}
	return b.String()
}

func TestProxySlice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, client, server := pipeProxy(t)
		atServer, atClient := collect(server), collect(client)
		p.SetToServer(Link{Slice: 3})
		send(t, client, "abcdefgh")
		send(t, server, "whole")
		synctest.Wait()
		wantArrivals(t, atServer(), arrival{"abc", 0}, arrival{"def", 0}, arrival{"gh", 0})
		wantArrivals(t, atClient(), arrival{"whole", 0})
	})
}

// TestProxyPartition: nothing passes, either way, until it is healed; then all
// of it does, in order.
func TestProxyPartition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, client, server := pipeProxy(t)
		atServer, atClient := collect(server), collect(client)
		send(t, client, "a")
		synctest.Wait()
		p.Set(Link{Partition: true})
		send(t, client, "b")
		send(t, server, "c")
		go func() { _, _ = io.WriteString(client, "d") }() // held by the sender's kernel, so to speak
		time.Sleep(time.Hour)
		wantArrivals(t, atServer(), arrival{"a", 0})
		wantArrivals(t, atClient())
		p.SetToServer(Link{})
		synctest.Wait()
		wantArrivals(t, atServer(), arrival{"a", 0}, arrival{"b", time.Hour}, arrival{"d", time.Hour})
		wantArrivals(t, atClient())
		p.Set(Link{})
		synctest.Wait()
		wantArrivals(t, atClient(), arrival{"c", time.Hour})
	})
}

// TestProxyPartitionHoldsTheEnd: the other end does not learn that a
// connection was closed, until it is healed.
func TestProxyPartitionHoldsTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, client, server := pipeProxy(t)
		synctest.Wait()
		p.Set(Link{Partition: true})
		_ = client.Close()
		ended := make(chan error, 1)
		go func() {
			_, err := server.Read(make([]byte, 1))
			ended <- err
		}()
		time.Sleep(time.Hour)
		select {
		case err := <-ended:
			t.Errorf("the end got through the partition: %v", err)
		default:
		}
		p.Set(Link{})
		if err := <-ended; err != io.EOF {
			t.Errorf("the server read %v, want EOF", err)
		}
	})
}

// TestProxyPartitionOfNewConnections: a connection that comes in a partition
// reaches its server when it is healed.
func TestProxyPartitionOfNewConnections(t *testing.T) {
	for name, set := range map[string]func(*Proxy, Link){"to the server": (*Proxy).SetToServer, "to the client": (*Proxy).SetToClient} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := &pipeListener{conns: make(chan net.Conn), done: make(chan struct{})}
				server, far := net.Pipe()
				dialled := 0
				p := newProxy(l, func(context.Context) (net.Conn, error) { dialled++; return far, nil })
				set(p, Link{Partition: true})
				client, near := net.Pipe()
				l.conns <- near
				time.Sleep(time.Hour)
				if dialled != 0 {
					t.Error("the server was reached through the partition")
				}
				set(p, Link{})
				atServer := collect(server)
				send(t, client, "a")
				synctest.Wait()
				wantArrivals(t, atServer(), arrival{"a", 0})
				_ = client.Close()
				_ = server.Close()
				_ = p.Close()
			})
		})
	}
}

// TestProxySwallow: a connection that has lost something stays dead that way,
// and that way only.
func TestProxySwallow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, client, server := pipeProxy(t)
		atServer, atClient := collect(server), collect(client)
		p.SetToServer(Link{Swallow: true})
		send(t, client, "lost")
		send(t, server, "kept")
		synctest.Wait()
		p.Set(Link{})
		send(t, client, "lost too")
		send(t, server, ", and more")
		time.Sleep(time.Hour)
		wantArrivals(t, atServer())
		wantArrivals(t, atClient(), arrival{"kept", 0}, arrival{", and more", 0})
	})
}

// TestProxyCutCounts: a cut counts from Set on, in its direction.
func TestProxyCutCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, client, server := pipeProxy(t)
		atServer, atClient := collect(server), collect(client)
		send(t, client, "abcdef")
		synctest.Wait()
		p.SetToServer(Link{CutAfter: 4, Slice: 3})
		send(t, server, "not counted")
		synctest.Wait()
		send(t, client, "ghijkl")
		synctest.Wait()
		wantArrivals(t, atServer(), arrival{"abcdef", 0}, arrival{"ghi", 0}, arrival{"j", 0})
		wantArrivals(t, atClient(), arrival{"not counted", 0})
	})
}

// TestProxyCloseWaits: nothing runs any more when Close returns.
func TestProxyCloseWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &pipeListener{conns: make(chan net.Conn), done: make(chan struct{})}
		p := newProxy(l, func(ctx context.Context) (net.Conn, error) {
			<-ctx.Done()
			time.Sleep(time.Second) // it has its reasons
			return nil, ctx.Err()
		})
		_, near := net.Pipe()
		l.conns <- near
		synctest.Wait()
		began := time.Now()
		if err := p.Close(); err != nil || time.Since(began) != time.Second {
			t.Errorf("Close: %v, after %v; want it to wait for 1s", err, time.Since(began))
		}
	})
}

// TestProxyCloseInPartition: a connection that has not come about is closed too.
func TestProxyCloseInPartition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &pipeListener{conns: make(chan net.Conn), done: make(chan struct{})}
		p := newProxy(l, func(context.Context) (net.Conn, error) {
			t.Error("the server was reached through the partition")
			return nil, net.ErrClosed
		})
		p.Set(Link{Partition: true})
		client, near := net.Pipe()
		l.conns <- near
		synctest.Wait()
		if err := p.Close(); err != nil {
			t.Error(err)
		}
		if _, err := client.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("read %v, want EOF", err)
		}
	})
}
