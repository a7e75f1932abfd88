package idemtest_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/idem-go/idem/idemtest"
)

// tcpServer hands out the connections that reach it.
type tcpServer struct {
	net.Listener
	t     *testing.T
	conns chan net.Conn
}

// throughProxy returns a server, and a proxy before it. What is left of both
// ends with the test, and no goroutine is.
func throughProxy(t *testing.T) (*tcpServer, *idemtest.Proxy) {
	t.Helper()
	leaks := goleak.IgnoreCurrent()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &tcpServer{l, t, make(chan net.Conn, 16)}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			s.conns <- c
		}
	}()
	p, err := idemtest.NewProxy(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
		l.Close()
		<-ended
		goleak.VerifyNone(t, leaks)
	})
	return s, p
}

// dial returns a new connection to addr, which ends with the test.
func (s *tcpServer) dial(addr string) *net.TCPConn {
	s.t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { c.Close() })
	return c.(*net.TCPConn)
}

// accepted is the server's end of the next connection.
func (s *tcpServer) accepted() *net.TCPConn {
	c := <-s.conns
	s.t.Cleanup(func() { c.Close() })
	return c.(*net.TCPConn)
}

// hello opens a connection through p, and has both ends hear of each other.
func (s *tcpServer) hello(p *idemtest.Proxy) (client, server *net.TCPConn) {
	s.t.Helper()
	client = s.dial(p.Addr())
	s.write(client, "hello")
	server = s.accepted()
	s.read(server, "hello")
	s.write(server, "welcome")
	s.read(client, "welcome")
	return client, server
}

func (s *tcpServer) write(c net.Conn, text string) {
	s.t.Helper()
	if _, err := io.WriteString(c, text); err != nil {
		s.t.Errorf("writing %q: %v", text, err)
	}
}

// read reads exactly this.
func (s *tcpServer) read(c net.Conn, want string) {
	s.t.Helper()
	got := make([]byte, len(want))
	if _, err := io.ReadFull(c, got); err != nil || string(got) != want {
		s.t.Errorf("read %q, %v; want %q", got, err, want)
	}
}

// readEnd reads this, and then the end of the stream: nil is EOF.
func (s *tcpServer) readEnd(c net.Conn, want string, end error) {
	s.t.Helper()
	got, err := io.ReadAll(c)
	if string(got) != want || !errors.Is(err, end) {
		s.t.Errorf("read %q, %v; want %q, %v", got, err, want, end)
	}
}

// TestProxyPasses: bytes pass both ways unchanged, whatever the link does to
// their pieces, and the end of each way on its own.
func TestProxyPasses(t *testing.T) {
	for name, link := range map[string]idemtest.Link{
		"at once":    {},
		"in slices":  {Slice: 1000},
		"late":       {Latency: time.Millisecond},
		"slowly":     {Bandwidth: 20 << 20},
		"everything": {Slice: 3000, Latency: time.Millisecond, Bandwidth: 20 << 20},
		"in time":    {CutAfter: 1<<18 + 1},
	} {
		t.Run(name, func(t *testing.T) {
			s, p := throughProxy(t)
			p.Set(link)
			random := make([]byte, 1<<18)
			rand.NewChaCha8([32]byte{1}).Read(random)
			client := s.dial(p.Addr())
			sent := make(chan error, 1)
			go func() {
				_, err := client.Write(random)
				sent <- errors.Join(err, client.CloseWrite())
			}()
			server := s.accepted()
			got, err := io.ReadAll(server)
			if err != nil || !bytes.Equal(got, random) {
				t.Fatalf("the server read %d bytes, %v; want the %d that were sent", len(got), err, len(random))
			}
			if err := <-sent; err != nil {
				t.Error(err)
			}
			sum := sha256.Sum256(got)
			s.write(server, string(sum[:])) // after the client's end
			server.Close()
			s.readEnd(client, string(sum[:]), nil)
		})
	}
}

func TestProxyReset(t *testing.T) {
	s, p := throughProxy(t)
	client, server := s.hello(p)
	p.Reset()
	s.readEnd(client, "", syscall.ECONNRESET)
	s.readEnd(server, "", syscall.ECONNRESET)
	s.hello(p) // a new connection is welcome
}

// TestProxyPassesReset: a RST arrives as one at the other end.
func TestProxyPassesReset(t *testing.T) {
	s, p := throughProxy(t)
	reset := func(c *net.TCPConn) {
		if err := errors.Join(c.SetLinger(0), c.Close()); err != nil {
			t.Error(err)
		}
	}
	client, server := s.hello(p)
	reset(client)
	s.readEnd(server, "", syscall.ECONNRESET)
	client, server = s.hello(p)
	reset(server)
	s.readEnd(client, "", syscall.ECONNRESET)
}

// TestProxyCut: the other end gets just the bytes that were allowed, and both
// ends an EOF, whichever way is cut.
func TestProxyCut(t *testing.T) {
	s, p := throughProxy(t)
	client, server := s.hello(p)
	p.SetToClient(idemtest.Link{CutAfter: 5})
	s.write(server, "HTTP/1.1 200 OK")
	s.readEnd(client, "HTTP/", nil)
	s.readEnd(server, "", nil)

	p.Set(idemtest.Link{})
	client, server = s.hello(p)
	p.SetToServer(idemtest.Link{CutAfter: 5, Slice: 2})
	s.write(client, "POST /charges")
	s.readEnd(server, "POST ", nil)
	s.readEnd(client, "", nil)
}

// TestProxyCutIsNoReset: what was passed on arrives before the end, although
// the other way is full of what nobody reads.
func TestProxyCutIsNoReset(t *testing.T) {
	s, p := throughProxy(t)
	client, server := s.hello(p)
	p.SetToServer(idemtest.Link{Partition: true})
	s.write(client, strings.Repeat("x", 100_000)) // more than a piece
	p.SetToClient(idemtest.Link{CutAfter: 5})
	s.write(server, "HTTP/1.1 200 OK")
	s.readEnd(client, "HTTP/", nil)
	p.Set(idemtest.Link{})
	s.readEnd(server, "", nil)
}

// TestProxySwallowsSilently: what is swallowed never arrives, and the way back
// is open.
func TestProxySwallowsSilently(t *testing.T) {
	s, p := throughProxy(t)
	client, server := s.hello(p)
	p.SetToServer(idemtest.Link{Swallow: true})
	s.write(client, "lost")
	s.write(server, "are you there?")
	s.read(client, "are you there?")
	p.Reset()
	s.readEnd(server, "", syscall.ECONNRESET)
}

// TestProxyHeals: what was sent in a partition arrives after it, in order, on
// old connections and on new ones.
func TestProxyHeals(t *testing.T) {
	s, p := throughProxy(t)
	client, server := s.hello(p)
	p.Set(idemtest.Link{Partition: true})
	s.write(client, "one")
	s.write(server, "two")
	late := s.dial(p.Addr())
	s.write(late, "three")
	late.CloseWrite()
	select {
	case <-s.conns:
		t.Error("a connection came through the partition")
	default:
	}
	p.Set(idemtest.Link{})
	s.read(server, "one")
	s.read(client, "two")
	s.readEnd(s.accepted(), "three", nil)
}

// TestProxyResetInPartition: connections that wait for the end of a partition
// can be broken off.
func TestProxyResetInPartition(t *testing.T) {
	s, p := throughProxy(t)
	client, server := s.hello(p)
	p.Set(idemtest.Link{Partition: true})
	s.write(client, "one")
	p.Reset()
	s.readEnd(client, "", syscall.ECONNRESET)
	s.readEnd(server, "", syscall.ECONNRESET)
}

// TestProxyWithoutServer: where the target can't be reached, clients are told
// by a RST.
func TestProxyWithoutServer(t *testing.T) {
	s, p := throughProxy(t)
	s.Close()
	c, err := net.Dial("tcp", p.Addr())
	if err == nil { // or the RST was faster than the report
		defer c.Close()
		_, err = c.Read(make([]byte, 1))
	}
	if !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("got %v, want a RST", err)
	}
}

// TestProxyClose: whatever its connections do, none of it is left.
func TestProxyClose(t *testing.T) {
	for name, link := range map[string]idemtest.Link{
		"at rest": {}, "partition": {Partition: true}, "half-open": {Swallow: true}, "cut": {CutAfter: 1},
		"latency": {Latency: time.Hour}, "no bandwidth": {Bandwidth: 1},
	} {
		t.Run(name, func(t *testing.T) {
			s, p := throughProxy(t) // which closes it again, and looks for leaks
			s.hello(p)
			client, server := s.hello(p)
			p.Set(link)
			s.write(client, "one")
			s.write(server, "two")
			late := s.dial(p.Addr())
			s.write(late, "three")
			if err := p.Close(); err != nil {
				t.Errorf("close: %v", err)
			}
			for _, c := range []net.Conn{client, server, late} {
				if _, err := io.Copy(io.Discard, c); err != nil && !errors.Is(err, syscall.ECONNRESET) {
					t.Errorf("after Close: %v", err)
				}
			}
			if c, err := net.Dial("tcp", p.Addr()); err == nil {
				c.Close()
				t.Error("a connection was accepted after Close")
			}
		})
	}
}

// TestProxyCloseWhileBlocked: a receiver that does not read holds nothing up.
func TestProxyCloseWhileBlocked(t *testing.T) {
	s, p := throughProxy(t)
	client, _ := s.hello(p)
	blocked := make(chan struct{})
	go func() {
		defer close(blocked)
		for b := make([]byte, 1<<20); ; {
			if _, err := client.Write(b); err != nil {
				return
			}
		}
	}()
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	<-blocked
}
