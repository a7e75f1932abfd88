package pgstore

import (
	"context"
	"encoding/base64"
	"errors"
	"sync"
	"time"

	"github.com/jackc/puddle/v2"
)

const (
	// listenCheck is how long nothing is heard before the connection is tried.
	listenCheck = 30 * time.Second
	// listenTimeout bounds what is asked of the server otherwise.
	listenTimeout = 10 * time.Second
	// The pause before another connection is opened doubles from the first to
	// the last while that fails.
	firstReconnect = 100 * time.Millisecond
	lastReconnect  = 5 * time.Second
)

// A notification carries the IDs of several records, in base64, within the
// 8,000 bytes that the server allows.
const (
	idsPerNotification = 180
	idLength           = 43
)

var errListening = errors.New("pgstore: listen: it runs already for this Store")

// Listen joins this process to the others that run it on the same table: each
// of them learns of the changes that the others make through their Stores, and
// wakes who watches, where otherwise a poll would find out. It blocks until ctx
// ends, and returns nil then; run it in a goroutine of your own, once per Store.
//
// It takes one connection out of the pool, for LISTEN, and opens another one
// for as long as it takes when that is lost. What it has to tell it sends
// through the pool, many records at a time and after they were committed:
// a NOTIFY inside the transactions would make the server commit them one by
// one. So changes are told late or, in bad times, not at all.
//
// Errors: Listen runs already; the pool is closed.
func (s *Store) Listen(ctx context.Context) error {
	pending, ok := s.changes.open()
	if !ok {
		return errListening
	}
	defer s.changes.shut()
	ctx, cancel := context.WithCancel(ctx)
	var telling sync.WaitGroup
	telling.Go(func() { s.tellOthers(ctx, pending) })
	defer telling.Wait()
	defer cancel()

	for wait := firstReconnect; ; wait = min(2*wait, lastReconnect) {
		heard, err := s.listen(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, puddle.ErrClosedPool):
			return failed("listen", err)
		case heard:
			wait = firstReconnect
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil
		}
	}
}

// listen wakes watchers until the connection is lost. heard tells whether there
// was one.
func (s *Store) listen(ctx context.Context) (heard bool, err error) {
	pooled, err := s.pool.Acquire(ctx)
	if err != nil {
		return false, err
	}
	conn := pooled.Hijack() // or the pool would be one smaller
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), listenTimeout)
		defer cancel()
		_ = conn.Close(ctx)
	}()
	if _, err := conn.Exec(ctx, "LISTEN "+quoted(s.cfg.Table)); err != nil {
		return false, err
	}
	s.changes.wakeAll() // of what was missed until now
	for {
		wait, cancel := context.WithTimeout(ctx, listenCheck)
		n, err := conn.WaitForNotification(wait)
		quiet := wait.Err() != nil
		cancel()
		switch {
		case err == nil:
			for payload := n.Payload; len(payload) >= idLength; payload = payload[idLength:] {
				if b, err := base64.RawStdEncoding.DecodeString(payload[:idLength]); err == nil {
					s.changes.wake([32]byte(b))
				}
			}
		case ctx.Err() != nil || !quiet:
			return true, err
		default:
			ping, cancel := context.WithTimeout(ctx, listenTimeout)
			err := conn.Ping(ping)
			cancel()
			if err != nil {
				return true, err
			}
		}
	}
}

// tellOthers sends what is pending until ctx ends.
func (s *Store) tellOthers(ctx context.Context, pending <-chan struct{}) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-pending:
		}
		payloads := payloads(s.changes.take())
		send, cancel := context.WithTimeout(ctx, listenTimeout)
		// An error costs the others one poll.
		_, _ = s.exec(send, "notify", "SELECT pg_notify($1::text, p) FROM unnest($2::text[]) AS p", s.cfg.Table, payloads)
		cancel()
	}
}

// payloads packs IDs into notifications.
func payloads(ids map[[32]byte]struct{}) (packed []string) {
	var b []byte
	for id := range ids {
		b = base64.RawStdEncoding.AppendEncode(b, id[:])
		if len(b) == idsPerNotification*idLength {
			packed = append(packed, string(b))
			b = b[:0]
		}
	}
	if len(b) > 0 {
		packed = append(packed, string(b))
	}
	return packed
}
