package server

import (
	"fmt"
	"maps"
	"net/http"
	"strconv"
	"strings"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/stored"
)

// sniffLen is how many bytes net/http looks at to guess a Content-Type.
const sniffLen = 512

// recorder is the ResponseWriter of a protected handler. It holds the answer
// back, so that it can be stored before it is written, until the handler does
// something that can't wait, or writes more than is stored: from then on it
// passes everything through.
type recorder struct {
	base http.ResponseWriter
	head bool // a HEAD request: its answer has no body
	max  int
	// hold: nothing may pass, since what the handler does can still be rolled
	// back.
	hold bool

	// outer is what stood in base's header before the handler ran. The
	// handler's own map starts as a copy, so that it sees what it would see
	// without a recorder, and base's stays clean until there is an answer.
	outer, header http.Header

	status int // 0 until the handler has decided
	// fixed is header at that moment. It does not change after end, since it
	// may be stored meanwhile.
	fixed  http.Header
	length int64 // declared Content-Length, or -1
	count  int64 // bytes that the handler wrote
	body   []byte

	kept     stored.Answer // what is stored of it
	replayed [1]string     // the value of replayedHeader

	// passing says why the answer is passed through; empty: it is held.
	passing  string
	hijacked bool
	// overflown: the handler wrote more than a recorder holds that must hold
	// all of it.
	overflown bool
}

// errOverflown tells the handler that its answer is lost.
var errOverflown = fmt.Errorf("%w: the answer exceeds Config.MaxResponse, and its transaction is not committed yet", idem.ErrTooLarge)

func newRecorder(w http.ResponseWriter, r *http.Request, limit int) *recorder {
	rec := &recorder{base: w, head: r.Method == http.MethodHead, max: limit}
	if outer := w.Header(); len(outer) > 0 {
		rec.outer, rec.header = outer.Clone(), outer.Clone()
	}
	return rec
}

// Header implements http.ResponseWriter.
func (rec *recorder) Header() http.Header {
	if rec.header == nil {
		rec.header = http.Header{}
	}
	return rec.header
}

// WriteHeader implements http.ResponseWriter.
func (rec *recorder) WriteHeader(status int) {
	switch {
	case status < 100 || status > 999:
		// As net/http does, but before the answer is stored.
		panic(fmt.Sprintf("invalid WriteHeader code %v", status))
	case rec.status != 0 || rec.hijacked:
		return
	case status < 200 && status != http.StatusSwitchingProtocols:
		rec.inform(status)
		return
	}
	rec.status = status
	rec.fixed = rec.Header().Clone()
	delete(rec.fixed, replayedHeader) // only the key layer says that
	rec.length = declaredLength(rec.fixed)
	switch media, _, _ := strings.Cut(rec.fixed.Get("Content-Type"), ";"); {
	case rec.hold:
	case status == http.StatusSwitchingProtocols:
		rec.pass("it switches protocols")
	case strings.EqualFold(strings.TrimSpace(media), "text/event-stream"):
		rec.pass("it is an event stream")
	}
}

// inform passes a 1xx answer on at once. It decides nothing.
func (rec *recorder) inform(status int) {
	replace(rec.base.Header(), rec.header)
	rec.base.WriteHeader(status)
	replace(rec.base.Header(), rec.outer)
}

// Write implements http.ResponseWriter.
func (rec *recorder) Write(p []byte) (int, error) { return write(rec, p) }

// WriteString implements io.StringWriter, as net/http's own ResponseWriter does.
func (rec *recorder) WriteString(s string) (int, error) { return write(rec, s) }

func write[T []byte | string](rec *recorder, p T) (int, error) {
	if rec.hijacked {
		return 0, http.ErrHijacked
	}
	if rec.status == 0 {
		rec.WriteHeader(http.StatusOK)
	}
	if len(p) == 0 {
		return 0, nil
	}
	if !bodyAllowed(rec.status) {
		return 0, http.ErrBodyNotAllowed
	}
	rec.count += int64(len(p))
	if rec.length >= 0 && rec.count > rec.length {
		return 0, http.ErrContentLength
	}
	switch {
	case rec.head:
		rec.body = append(rec.body, p[:min(len(p), sniffLen-len(rec.body))]...)
		return len(p), nil
	case rec.hold && (rec.overflown || len(rec.body)+len(p) > rec.max):
		rec.overflown = true
		return 0, errOverflown
	case rec.passing == "" && len(rec.body)+len(p) > rec.max:
		rec.pass("it is too large")
	}
	if rec.passing != "" {
		return rec.base.Write([]byte(p))
	}
	rec.body = append(rec.body, p...)
	return len(p), nil
}

// pass writes what was held back, and lets all that follows through.
func (rec *recorder) pass(reason string) {
	if rec.passing != "" {
		return
	}
	if rec.status == 0 {
		rec.WriteHeader(http.StatusOK)
		if rec.passing != "" {
			return
		}
	}
	rec.passing = reason
	replace(rec.base.Header(), rec.fixed)
	rec.base.WriteHeader(rec.status)
	if len(rec.body) > 0 && !rec.head {
		_, _ = rec.base.Write(rec.body) // the next Write tells the handler
	}
	rec.body = nil
}

// end makes the answer whole after the handler has returned.
func (rec *recorder) end() {
	if rec.status == 0 && !rec.hijacked {
		rec.WriteHeader(http.StatusOK)
	}
	if rec.passing != "" {
		return
	}
	if _, set := rec.fixed["Content-Type"]; !set && len(rec.body) > 0 && rec.fixed.Get("Content-Encoding") == "" {
		rec.fixed.Set("Content-Type", http.DetectContentType(rec.body))
	}
	if rec.head {
		rec.body = nil
		if rec.length < 0 && rec.count > 0 && bodyAllowed(rec.status) {
			rec.fixed.Set("Content-Length", strconv.FormatInt(rec.count, 10))
		}
	}
}

// definitive tells whether the answer is final.
func (rec *recorder) definitive() bool {
	if rec.hold {
		return !rec.overflown && definitive(rec.status)
	}
	return rec.hijacked || rec.status == http.StatusSwitchingProtocols || definitive(rec.status)
}

// answer is what is stored of an answer that is definitive.
func (rec *recorder) answer() stored.Answer {
	a := stored.Answer{Kind: stored.Response, Status: rec.status, Header: rec.storedHeader(), Body: rec.body}
	switch {
	case rec.passing != "":
		return tombstone(a, rec.passing)
	case rec.length >= 0 && rec.count != rec.length && !rec.head && bodyAllowed(rec.status):
		return tombstone(a, fmt.Sprintf("its Content-Length is %d, but the handler wrote %d bytes", rec.length, rec.count))
	}
	return a
}

// send writes the answer if it was held back. settled: its record is done.
func (rec *recorder) send(settled bool) {
	if rec.hijacked {
		return
	}
	if rec.passing == "" {
		h := rec.base.Header()
		replace(h, rec.fixed)
		if settled {
			rec.replayed[0] = "false"
			h[replayedHeader] = rec.replayed[:]
		}
		rec.base.WriteHeader(rec.status)
		if len(rec.body) > 0 {
			_, _ = rec.base.Write(rec.body) // the client may be gone; the record has it
		}
	}
	rec.sendTrailers()
}

// sendTrailers hands on what the handler has declared as trailers.
func (rec *recorder) sendTrailers() {
	for name, values := range rec.header {
		if strings.HasPrefix(name, http.TrailerPrefix) || namedIn(rec.fixed["Trailer"], name) {
			rec.base.Header()[name] = values
		}
	}
}

func replace(dst, src http.Header) {
	clear(dst)
	maps.Copy(dst, src)
}

func bodyAllowed(status int) bool {
	return status >= 200 && status != http.StatusNoContent && status != http.StatusNotModified
}

// declaredLength returns the Content-Length that the handler has set, or -1. A
// value that is no length is removed, as net/http would.
func declaredLength(h http.Header) int64 {
	if values := h["Content-Length"]; len(values) > 0 {
		if n, err := strconv.ParseInt(strings.TrimSpace(values[0]), 10, 64); err == nil && n >= 0 {
			return n
		}
	}
	h.Del("Content-Length")
	return -1
}
