package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/canon"
)

// keyHeader carries the key.
const keyHeader = "Idempotency-Key"

// incoming is a request on its way to its answer.
type incoming struct {
	*http.Request
	op     operation
	body   []byte
	handed []*http.Request // to code that may have parsed a form

	// What the requests that are handed on are made of, and the values of header
	// fields, which would be an allocation each: the request with its whole body,
	// the bodies for those who are asked and for the handler, and the beginning
	// of handed.
	copied             http.Request
	toAsk, toHandle    wholeBody
	identity, replayed [1]string
	length             [1]string
	first              [2]*http.Request
}

// wholeBody is a body that has been read.
type wholeBody struct{ bytes.Reader }

// Close implements io.Closer.
func (*wholeBody) Close() error { return nil }

// whole returns the request with its whole body to read.
func (in *incoming) whole() *http.Request {
	if in.body != nil {
		in.toAsk.Reset(in.body)
		in.Body = &in.toAsk
	}
	in.hand(in.Request)
	return in.Request
}

// hand notes that code of others gets the request.
func (in *incoming) hand(r *http.Request) {
	if in.handed == nil {
		in.handed = in.first[:0]
	}
	if n := len(in.handed); n == 0 || in.handed[n-1] != r {
		in.handed = append(in.handed, r)
	}
}

// removeForms removes the files of multipart forms, as net/http does for the
// request that it knows of, original.
func (in *incoming) removeForms(original *http.Request) {
	for _, r := range in.handed {
		if r.MultipartForm != nil && r.MultipartForm != original.MultipartForm {
			_ = r.MultipartForm.RemoveAll()
		}
	}
}

// admit reads what names the operation: key, body, scope. It fills in op.
func (s *Server) admit(w http.ResponseWriter, in *incoming, op *operation) *refusal {
	var key idem.Key
	var err error
	if s.cfg.Key == nil {
		// Before the body: without a key it is not ours to read.
		if key, err = headerKey(in.Header); err != nil || key == "" {
			return badKey(err)
		}
	}
	if err := in.read(w, s.cfg.MaxRequest); err != nil {
		var tooLarge *http.MaxBytesError
		if errors.As(err, &tooLarge) {
			return refuse(codeBodyTooLarge, fmt.Errorf("%w: over %d bytes", idem.ErrTooLarge, s.cfg.MaxRequest))
		}
		return refuse(codeBodyIncomplete, fmt.Errorf("reading the request's body: %w", err))
	}
	if s.cfg.Key != nil {
		if key, err = s.cfg.Key(in.whole()); err != nil || key == "" {
			return badKey(err)
		}
		if err := key.Validate(); err != nil {
			return badKey(err)
		}
	}
	scope, err := s.cfg.Scope(in.whole())
	switch {
	case err != nil:
		return refuse(codeScopeRefused, fmt.Errorf("scope: %w", err))
	case scope == "":
		return refuse(codeScopeRefused, errors.New("Config.Scope returned an empty scope"))
	case len(scope) > maxName:
		return refuse(codeScopeRefused, fmt.Errorf("Config.Scope returned %d bytes; at most %d are allowed", len(scope), maxName))
	}
	op.byKey(scope, key)
	op.method, op.path = in.Method, target(in.Request)
	return s.fingerprint(in, op)
}

var errNoKey = errors.New("the request has no key")

func badKey(err error) *refusal {
	if err == nil {
		return refuse(codeKeyMissing, errNoKey)
	}
	return refuse(codeKeyInvalid, err)
}

// headerKey returns the request's key, or "" if it has none.
func headerKey(h http.Header) (idem.Key, error) {
	switch lines := h[keyHeader]; len(lines) {
	case 0:
		return "", nil
	case 1:
		return idem.ParseKey(lines[0])
	default:
		return "", fmt.Errorf("%w: the request has %d %s lines; send one", idem.ErrInvalidKey, len(lines), keyHeader)
	}
}

// read reads the whole body, at most limit bytes.
func (in *incoming) read(w http.ResponseWriter, limit int64) error {
	// A copy, since the body is replaced; and after the read, since it may
	// bring trailers.
	defer func() {
		in.copied = *in.Request
		in.Request = &in.copied
	}()
	if in.Body == nil || in.Body == http.NoBody {
		return nil
	}
	if in.ContentLength > limit {
		return &http.MaxBytesError{Limit: limit}
	}
	src := io.Reader(in.Body)
	if in.ContentLength < 0 {
		src = http.MaxBytesReader(w, in.Body, limit)
	}
	body, err := readAll(src, in.ContentLength, limit)
	if err == nil && int64(len(body)) < in.ContentLength {
		// The server reports that itself, but not what stands in between.
		err = io.ErrUnexpectedEOF
	}
	in.body = body
	return err
}

// readAll is io.ReadAll of at most limit bytes into a buffer that fits what is
// announced. Not much is given for a mere announcement.
func readAll(src io.Reader, announced, limit int64) ([]byte, error) {
	const most = 64 << 10
	size := int64(512)
	if announced >= 0 {
		size = min(announced, most) + 1 // a byte in which to find the end
	}
	b := make([]byte, 0, size)
	for {
		n, err := src.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		switch {
		case int64(len(b)) > limit:
			return nil, &http.MaxBytesError{Limit: limit}
		case err == io.EOF:
			return b, nil
		case err != nil:
			return b, err
		case len(b) == cap(b):
			b = append(b, 0)[:len(b)]
		}
	}
}

// fingerprint computes what the request asks for.
func (s *Server) fingerprint(in *incoming, op *operation) *refusal {
	asked := canon.Request{Method: in.Method, Path: op.path, Query: in.URL.RawQuery}
	if s.cfg.Fingerprint == nil {
		asked.ContentType, asked.Body = in.Header.Get("Content-Type"), in.body
	} else {
		payload, err := s.cfg.Fingerprint(in.whole(), bytes.Clone(in.body))
		if err != nil {
			return refuse(codeBodyInvalid, fmt.Errorf("fingerprint: %w", err))
		}
		sum, err := idem.Fingerprint(payload)
		if err != nil {
			return refuse(codeBodyInvalid, err)
		}
		asked.Payload = &sum
	}
	op.fingerprint = canon.HTTP(asked)
	return nil
}

// target is the path that the client asked for: what stands in front may have
// stripped a prefix, and two mounts must not look like one operation.
func target(r *http.Request) string {
	path, _, _ := strings.Cut(r.RequestURI, "?")
	if path == r.URL.Path && r.URL.RawPath == "" && !strings.Contains(path, "%") {
		return r.URL.EscapedPath() // nothing was stripped
	}
	if u, err := url.ParseRequestURI(r.RequestURI); err == nil {
		return u.EscapedPath()
	}
	return r.URL.EscapedPath()
}

// safe tells that the method asks for no effect (RFC 9110, 9.2.1).
func safe(method string) bool {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		return true
	}
	return false
}

// forHandler is the request as the protected handler gets it.
func (in *incoming) forHandler(ctx context.Context) *http.Request {
	r := in.WithContext(ctx)
	if in.body != nil {
		in.toHandle.Reset(in.body)
		r.Body = &in.toHandle
	}
	header := make(http.Header, len(r.Header)+1)
	for name, values := range r.Header {
		header[name] = slices.Clip(values) // the handler adds to its own
	}
	// A replay may go to a client that accepts no encoding, and an encoded
	// answer could not be read there.
	in.identity[0] = "identity"
	header["Accept-Encoding"] = in.identity[:]
	r.Header = header
	in.hand(r)
	return r
}
