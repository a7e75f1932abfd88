package idemtest

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"time"

	"github.com/idem-go/idem/keystore"
)

// moment is a place in an attempt where something can go wrong.
type moment string

const (
	midBody   moment = "in the middle of the body"
	afterBody moment = "before the effect"
	atEffect  moment = "right after the effect"
	atRecord  moment = "when the answer was to be recorded"
	atAnswer  moment = "when the answer was written"
)

// faults is where the attempts of a check pass by, and what awaits them there.
type faults struct{ armed atomic.Pointer[snag] }

// snag is what goes wrong, once or every time.
type snag struct {
	at    moment
	do    func() error
	every bool
	taken atomic.Bool
	met   chan struct{} // closed when the first attempt has come by
}

func (f *faults) arm(s *snag) {
	s.met = make(chan struct{})
	f.armed.Store(s)
}

func (f *faults) disarm() { f.armed.Store(nil) }

// reach says that an attempt has come to the moment, and what goes wrong there.
func (f *faults) reach(at moment) error {
	s := f.armed.Load()
	if s == nil || s.at != at {
		return nil
	}
	if first := !s.taken.Swap(true); first {
		close(s.met)
	} else if !s.every {
		return nil
	}
	return s.do()
}

// wasMet tells whether an attempt has come by. Not every handler comes by
// every moment.
func (s *snag) wasMet() bool {
	select {
	case <-s.met:
		return true
	default:
		return false
	}
}

// watchedBody is a request's body that passes midBody and afterBody.
type watchedBody struct {
	faults *faults
	rest   []byte
	half   int // bytes still to be read before the middle
}

func watchBody(f *faults, body []byte) io.ReadCloser {
	return &watchedBody{f, body, (len(body) + 1) / 2}
}

func (b *watchedBody) Read(p []byte) (int, error) {
	if len(b.rest) == 0 {
		return 0, io.EOF
	}
	if len(p) == 0 {
		return 0, nil
	}
	if b.half == 0 {
		b.half = -1
		if err := b.faults.reach(midBody); err != nil {
			b.rest = nil
			return 0, err
		}
	}
	n := len(b.rest)
	if b.half > 0 {
		n = b.half
	}
	n = copy(p, b.rest[:n])
	b.rest = b.rest[n:]
	if b.half > 0 {
		b.half -= n
	}
	if len(b.rest) == 0 {
		// A decoder may stop here, and never ask for the end.
		if err := b.faults.reach(afterBody); err != nil {
			return n, err
		}
	}
	return n, nil
}

func (b *watchedBody) Close() error { return nil }

// watchedWriter is the ResponseWriter of an attempt. It passes atAnswer.
type watchedWriter struct {
	*httptest.ResponseRecorder
	faults *faults
}

func (w *watchedWriter) WriteHeader(status int) {
	if status >= 100 && status < 200 && status != http.StatusSwitchingProtocols {
		return // decides nothing
	}
	_ = w.faults.reach(atAnswer) // a handler is told by Write only
	w.ResponseRecorder.WriteHeader(status)
}

func (w *watchedWriter) Write(p []byte) (int, error) {
	if err := w.faults.reach(atAnswer); err != nil {
		return 0, err
	}
	return w.ResponseRecorder.Write(p)
}

func (w *watchedWriter) WriteString(s string) (int, error) { return w.Write([]byte(s)) }

// What an http.ResponseController asks for.
func (w *watchedWriter) SetReadDeadline(time.Time) error  { return nil }
func (w *watchedWriter) SetWriteDeadline(time.Time) error { return nil }
func (w *watchedWriter) EnableFullDuplex() error          { return nil }

// watchedStore is a store that passes atRecord.
type watchedStore struct {
	keystore.Store
	faults *faults
}

func (s *watchedStore) Complete(ctx context.Context, o keystore.Owner, p keystore.CompleteParams) error {
	if err := s.faults.reach(atRecord); err != nil {
		return err
	}
	return s.Store.Complete(ctx, o, p)
}

// watchedTx is a Transactor whose stores are watched too.
type watchedTx struct {
	keystore.Transactor
	faults *faults
}

func (s *watchedTx) InTx(ctx context.Context, fn func(context.Context, keystore.Store) error) error {
	return s.Transactor.InTx(ctx, func(ctx context.Context, store keystore.Store) error {
		return fn(ctx, &watchedStore{store, s.faults})
	})
}

// watchStore returns a store that has the optional parts of the given one, and
// no others.
func watchStore(f *faults, store keystore.Store) keystore.Store {
	watched := &watchedStore{store, f}
	waiter, waits := store.(keystore.Waiter)
	tx, transacts := store.(keystore.Transactor)
	watchedTx := &watchedTx{tx, f}
	switch {
	case waits && transacts:
		return &struct {
			*watchedStore
			keystore.Waiter
			keystore.Transactor
		}{watched, waiter, watchedTx}
	case waits:
		return &struct {
			*watchedStore
			keystore.Waiter
		}{watched, waiter}
	case transacts:
		return &struct {
			*watchedStore
			keystore.Transactor
		}{watched, watchedTx}
	}
	return watched
}
