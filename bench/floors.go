package main

import (
	"io"
	"net"
	"os"
	"path/filepath"
)

// What no store can go below, each by one goroutine and for a short time: a
// write that waits for the disk, and a round trip.
var (
	floorFsync     = contender{name: "floor: one fsync", floor: true, open: fsync}
	floorRoundTrip = contender{name: "floor: one loopback round trip", floor: true, open: roundTrip}
)

// fsync writes a page to a file, again and again, where the servers have theirs.
func fsync(s *stage) (func(int) error, error) {
	dir, err := tempDir(s)
	if err != nil {
		return nil, err
	}
	f, err := os.Create(filepath.Join(dir, "page"))
	if err != nil {
		return nil, err
	}
	s.onEnd(func() { f.Close() })
	page := make([]byte, 8<<10)
	return func(int) error {
		if _, err := f.WriteAt(page, 0); err != nil {
			return err
		}
		return f.Sync()
	}, nil
}

// roundTrip sends a line and waits for its echo.
func roundTrip(s *stage) (func(int) error, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	defer l.Close()
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		return nil, err
	}
	peer, err := l.Accept()
	if err != nil {
		conn.Close()
		return nil, err
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer peer.Close()
		echo(peer)
	}()
	s.onEnd(func() { conn.Close(); <-ended })
	line := make([]byte, 128)
	return func(int) error {
		if _, err := conn.Write(line); err != nil {
			return err
		}
		_, err := io.ReadFull(conn, line)
		return err
	}, nil
}

// echo returns what it is sent, until the other side is gone.
func echo(conn net.Conn) {
	buf := make([]byte, 128)
	for {
		n, err := conn.Read(buf)
		if err != nil {
			return
		}
		if _, err := conn.Write(buf[:n]); err != nil {
			return
		}
	}
}

func tempDir(s *stage) (string, error) {
	dir, err := os.MkdirTemp("", "idem-bench")
	if err == nil {
		s.onEnd(func() { os.RemoveAll(dir) })
	}
	return dir, err
}
