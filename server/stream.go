package server

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"time"
)

// writer returns the recorder with those optional methods that base has, by
// itself or through Unwrap. It has no Unwrap of its own: that would lead
// around the recorder.
func (rec *recorder) writer() http.ResponseWriter {
	if rec.hold {
		return rec // as http.TimeoutHandler's: what can't pass is not offered
	}
	canFlush := can[http.Flusher](rec.base) || can[flushErrorer](rec.base)
	canHijack := can[http.Hijacker](rec.base)
	_, canRead := rec.base.(io.ReaderFrom)
	f, h, r := flusher{rec}, hijacker{rec}, reader{rec}
	switch {
	case canFlush && canHijack && canRead:
		return struct {
			*recorder
			flusher
			hijacker
			reader
		}{rec, f, h, r}
	case canFlush && canHijack:
		return struct {
			*recorder
			flusher
			hijacker
		}{rec, f, h}
	case canFlush && canRead:
		return struct {
			*recorder
			flusher
			reader
		}{rec, f, r}
	case canHijack && canRead:
		return struct {
			*recorder
			hijacker
			reader
		}{rec, h, r}
	case canFlush:
		return struct {
			*recorder
			flusher
		}{rec, f}
	case canHijack:
		return struct {
			*recorder
			hijacker
		}{rec, h}
	case canRead:
		return struct {
			*recorder
			reader
		}{rec, r}
	}
	return rec
}

// can tells whether http.ResponseController would find T in w.
func can[T any](w http.ResponseWriter) bool {
	for {
		if _, ok := w.(T); ok {
			return true
		}
		inner, ok := w.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			return false
		}
		w = inner.Unwrap()
	}
}

type flushErrorer interface{ FlushError() error }

// flusher adds http.Flusher, and what http.ResponseController prefers to it.
type flusher struct{ rec *recorder }

func (f flusher) Flush() { _ = f.FlushError() }

func (f flusher) FlushError() error {
	f.rec.pass("it was flushed while it was written")
	return http.NewResponseController(f.rec.base).Flush()
}

// hijacker adds http.Hijacker.
type hijacker struct{ rec *recorder }

func (h hijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	rec := h.rec
	if rec.status != 0 {
		rec.pass("its connection was hijacked")
	}
	conn, rw, err := http.NewResponseController(rec.base).Hijack()
	if err == nil {
		rec.hijacked, rec.passing = true, "its connection was hijacked"
	}
	return conn, rw, err
}

// reader adds io.ReaderFrom.
type reader struct{ rec *recorder }

// ReadFrom holds back what fits, and leaves the rest to base, which may know a
// fast way.
func (r reader) ReadFrom(src io.Reader) (n int64, err error) {
	rec := r.rec
	// The recorder itself has no ReadFrom, so this does not come back here.
	for rec.passing == "" {
		m, err := io.CopyN(rec, src, 32<<10)
		n += m
		if err == io.EOF {
			return n, nil
		}
		if err != nil {
			return n, err
		}
	}
	m, err := io.Copy(rec.base, src)
	return n + m, err
}

// SetReadDeadline is for http.ResponseController, as are the two below.
func (rec *recorder) SetReadDeadline(t time.Time) error {
	return http.NewResponseController(rec.base).SetReadDeadline(t)
}

func (rec *recorder) SetWriteDeadline(t time.Time) error {
	return http.NewResponseController(rec.base).SetWriteDeadline(t)
}

func (rec *recorder) EnableFullDuplex() error {
	return http.NewResponseController(rec.base).EnableFullDuplex()
}
