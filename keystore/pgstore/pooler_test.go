package pgstore

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
)

// pooler stands between clients and a server as transaction poolers do: a
// client has a connection to the server for one transaction, and another one
// for the next. What a session keeps is lost, or worse, somebody else's.
type pooler struct {
	serverURL string
	listener  net.Listener
	// idle holds the connections to the server that nobody uses, in turns.
	idle    chan net.Conn
	serving sync.WaitGroup

	mu      sync.Mutex
	closed  bool
	clients map[net.Conn]struct{}
}

// pooled is how many connections a pooler has to the server: fewer than
// clients, and no divisor of their number.
const pooled = 5

// newPooler returns the URL of a pooler.
func newPooler(t *testing.T, serverURL string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &pooler{serverURL: serverURL, listener: l, idle: make(chan net.Conn, pooled), clients: map[net.Conn]struct{}{}}
	for range pooled {
		conn, err := p.connect()
		if err != nil {
			t.Fatal(err)
		}
		p.idle <- conn
	}
	p.serving.Go(p.accept)
	t.Cleanup(p.close)
	cfg, err := pgconn.ParseConfig(serverURL)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("postgres://%s@%s/%s?sslmode=disable", cfg.User, l.Addr(), cfg.Database)
}

func (p *pooler) connect() (net.Conn, error) {
	conn, err := pgconn.Connect(context.Background(), p.serverURL)
	if err != nil {
		return nil, err
	}
	hijacked, err := conn.Hijack()
	if err != nil {
		return nil, err
	}
	return hijacked.Conn, nil
}

func (p *pooler) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.mu.Lock()
		if p.closed {
			client.Close()
		} else {
			p.clients[client] = struct{}{}
			p.serving.Go(func() {
				defer client.Close()
				_ = p.serve(client)
				p.mu.Lock()
				defer p.mu.Unlock()
				delete(p.clients, client)
			})
		}
		p.mu.Unlock()
	}
}

func (p *pooler) close() {
	p.listener.Close()
	p.mu.Lock()
	p.closed = true
	for client := range p.clients {
		client.Close()
	}
	p.mu.Unlock()
	p.serving.Wait()
	for range pooled {
		(<-p.idle).Close()
	}
}

// serve hands the client's transactions to one connection after another.
func (p *pooler) serve(client net.Conn) error {
	from := bufio.NewReader(client)
	if err := greet(client, from); err != nil {
		return err
	}
	for {
		first, err := from.Peek(1)
		if err != nil || first[0] == 'X' { // Terminate
			return err
		}
		server := <-p.idle
		if err := transact(client, from, server); err != nil {
			// It may be in the middle of something: open another one.
			server.Close()
			if server, err = p.connect(); err != nil {
				panic(err)
			}
			p.idle <- server
			return err
		}
		p.idle <- server
	}
}

// greet takes the client in without asking the server.
func greet(client net.Conn, from *bufio.Reader) error {
	var head [8]byte
	if _, err := io.ReadFull(from, head[:]); err != nil {
		return err
	}
	if version := binary.BigEndian.Uint32(head[4:]); version != pgproto3.ProtocolVersionNumber {
		return fmt.Errorf("a request of version %d", version) // to cancel, which needs no answer
	}
	if _, err := from.Discard(int(binary.BigEndian.Uint32(head[:4])) - len(head)); err != nil {
		return err
	}
	backend := pgproto3.NewBackend(from, client)
	backend.Send(&pgproto3.AuthenticationOk{})
	for name, value := range map[string]string{
		"client_encoding": "UTF8", "standard_conforming_strings": "on", "server_version": "15",
	} {
		backend.Send(&pgproto3.ParameterStatus{Name: name, Value: value})
	}
	backend.Send(&pgproto3.BackendKeyData{})
	backend.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
	return backend.Flush()
}

// transact passes messages to and fro until the server is out of a transaction.
func transact(client net.Conn, from *bufio.Reader, server net.Conn) error {
	answers := bufio.NewReader(server)
	for {
		kind, _, err := pass(server, from)
		if err != nil {
			return err
		}
		if kind != 'S' && kind != 'Q' { // Sync, Query
			continue
		}
		out := bufio.NewWriter(client)
		for {
			kind, last, err := pass(out, answers)
			if err != nil {
				return err
			}
			if kind != 'Z' { // ReadyForQuery
				continue
			}
			if err := out.Flush(); err != nil {
				return err
			}
			if last == 'I' {
				return nil
			}
			break
		}
	}
}

// pass copies one message and returns its kind and its last byte.
func pass(to io.Writer, from *bufio.Reader) (kind, last byte, err error) {
	head, err := from.Peek(5)
	if err != nil {
		return 0, 0, err
	}
	message := make([]byte, 1+binary.BigEndian.Uint32(head[1:]))
	if _, err := io.ReadFull(from, message); err != nil {
		return 0, 0, err
	}
	_, err = to.Write(message)
	return message[0], message[len(message)-1], err
}
