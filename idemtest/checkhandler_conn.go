package idemtest

import (
	"bytes"
	"context"
	"io"
	"log"
	"net"
	"net/http"
	"sync"
)

// cut makes an attempt through net/http, on a connection in memory, which the
// client closes at the moment. It reports whether that has happened; a handler
// that is silent afterwards is reported as an error.
func (tr *trial) cut(a *ask, at moment) bool {
	tr.t.Helper()
	client, conn := net.Pipe()
	defer client.Close()
	var gone context.Context
	s := &snag{at: at, do: func() error {
		_ = client.Close() // a pipe's never fails
		inTime(gone.Done(), holdFor)
		return nil
	}}
	inner, served := tr.handler, &call{n: a.n, done: make(chan struct{})}
	ln := &oneConn{conn: conn, closed: make(chan struct{})}
	srv := &http.Server{
		ErrorLog: log.New(io.Discard, "", 0),
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			defer close(served.done)
			// Read whole here, since net/http looks out for the end of the
			// connection only after the body's.
			body, err := io.ReadAll(r.Body)
			if err != nil {
				return
			}
			if r.Body = http.NoBody; len(body) > 0 {
				r.Body = watchBody(tr.faults, body)
			}
			gone = r.Context()
			inner.ServeHTTP(w, r)
		}),
	}
	var running sync.WaitGroup
	running.Go(func() { _ = srv.Serve(ln) }) // always ErrServerClosed
	tr.faults.arm(s)
	running.Go(func() {
		r := tr.request(a.req.Context(), a)
		r.Body, r.Close = io.NopCloser(bytes.NewReader(a.body)), true
		_ = r.Write(client)                // what does not arrive, is not met
		_, _ = io.Copy(io.Discard, client) // until either side closes it
	})
	tr.wait(served)
	tr.faults.disarm()
	_ = srv.Close()
	_ = client.Close()
	running.Wait()
	return s.wasMet()
}

// oneConn is a listener with one connection.
type oneConn struct {
	mu     sync.Mutex // guards conn
	conn   net.Conn
	once   sync.Once
	closed chan struct{}
}

func (l *oneConn) Accept() (net.Conn, error) {
	l.mu.Lock()
	conn := l.conn
	l.conn = nil
	l.mu.Unlock()
	if conn != nil {
		return conn, nil
	}
	<-l.closed
	return nil, net.ErrClosed
}

func (l *oneConn) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *oneConn) Addr() net.Addr { return &net.UnixAddr{Name: "memory", Net: "unix"} }
