package idem

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/idem-go/idem/internal/canon"
)

// checkRequest finds what would fail in net/http before anything is sent, so
// that it is told apart from a failure to send.
func checkRequest(req *http.Request) error {
	u := req.URL
	switch {
	case u == nil:
		return fmt.Errorf("%w: the request has no URL", ErrInvalidIntent)
	case u.Scheme != "http" && u.Scheme != "https":
		return fmt.Errorf("%w: the URL's scheme is %q; use http or https", ErrInvalidIntent, u.Scheme)
	case u.Host == "":
		return fmt.Errorf("%w: the URL has no host", ErrInvalidIntent)
	case req.Method != "" && !isToken(req.Method):
		return fmt.Errorf("%w: the method %q is no token", ErrInvalidIntent, req.Method)
	}
	if hasControl(u.Opaque) || hasControl(u.EscapedPath()) || hasControl(u.RawQuery) || hasControl(req.Host) {
		return fmt.Errorf("%w: the URL or the host has a control character", ErrInvalidIntent)
	}
	for name := range req.Trailer {
		switch n := http.CanonicalHeaderKey(name); {
		case !isToken(name), n == "Transfer-Encoding", n == "Trailer", n == "Content-Length":
			return fmt.Errorf("%w: %q can't be a trailer", ErrInvalidIntent, name)
		}
	}
	return checkHeader(req.Header)
}

func checkHeader(h http.Header) error {
	for name, values := range h {
		if !isToken(name) {
			return fmt.Errorf("%w: the header name %q is no token", ErrInvalidIntent, name)
		}
		for _, v := range values {
			if hasControl(v) && hasControl(strings.ReplaceAll(v, "\t", "")) {
				return fmt.Errorf("%w: the header %s has a control character", ErrInvalidIntent, name)
			}
		}
	}
	return nil
}

func hasControl(s string) bool {
	for i := range len(s) {
		if s[i] < 0x20 || s[i] == 0x7f {
			return true
		}
	}
	return false
}

// isToken tells whether s is a token of RFC 9110 5.6.2.
func isToken(s string) bool {
	for i := range len(s) {
		switch c := s[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '-':
		case strings.IndexByte("!#$%&'*+.^_`|~", c) < 0:
			return false
		}
	}
	return s != ""
}

// headerKey reads a key that the caller has put into the contract's header, in
// whatever case it is spelled, and returns it as it stands there too: what the
// caller wrote is what is sent. A header without any value is none.
func headerKey(h http.Header, c Contract) (key Key, spelled string, err error) {
	lines := linesOf(h, c.Header)
	switch {
	case len(lines) == 0:
		return "", "", nil
	case len(lines) > 1:
		return "", "", fmt.Errorf("%w: the request has %d %s header lines; send one", ErrInvalidKey, len(lines), c.Header)
	case strings.HasPrefix(lines[0], `"`):
		key, err = ParseKey(lines[0])
	default:
		key = Key(lines[0])
		err = key.Validate()
	}
	return key, lines[0], err
}

// deleteHeader removes a header in whatever case it is spelled.
func deleteHeader(h http.Header, name string) {
	for n := range h {
		if strings.EqualFold(n, name) {
			delete(h, n)
		}
	}
}

// originOf is the scheme and authority of a URL.
func originOf(u *url.URL) string {
	port := u.Port()
	switch {
	case port != "":
	case u.Scheme == "http":
		port = "80"
	case u.Scheme == "https":
		port = "443"
	}
	return u.Scheme + "://" + strings.ToLower(u.Hostname()) + ":" + port
}

// credentialsOf is a digest of who asks, by the named headers. It never leaves
// the process.
func credentialsOf(h http.Header, names []string) [32]byte {
	text := make([]byte, 0, 512) // which need not be on the heap
	for _, name := range names {
		lines := linesOf(h, name) // it goes out in any spelling
		if len(lines) > 1 {
			lines = slices.Sorted(slices.Values(lines))
		}
		text = binary.AppendUvarint(text, uint64(len(lines)))
		for _, line := range lines {
			text = append(binary.AppendUvarint(text, uint64(len(line))), line...)
		}
	}
	return sha256.Sum256(text)
}

// linesOf are the lines of a header in whatever case it is spelled. They are
// read only.
func linesOf(h http.Header, name string) (lines []string) {
	for n, values := range h {
		switch {
		case !strings.EqualFold(n, name):
		case lines == nil:
			lines = slices.Clip(values)
		default:
			lines = append(lines, values...)
		}
	}
	return lines
}

// fingerprintOf is the fingerprint of a request, with the intent's payload
// hashed in if there is one.
func fingerprintOf(req *http.Request, body []byte, payload any) ([32]byte, error) {
	origin := originOf(req.URL)
	if req.Host != "" && req.Host != req.URL.Host {
		origin += " as " + strings.ToLower(req.Host)
	}
	r := canon.Request{Origin: origin, Method: req.Method, Path: req.URL.EscapedPath(),
		Query: req.URL.RawQuery, ContentType: req.Header.Get("Content-Type"), Body: body}
	if payload != nil {
		sum, err := Fingerprint(payload)
		if err != nil {
			return sum, err
		}
		r.Payload = &sum
	}
	return canon.HTTP(r), nil
}

// closeBody closes the body of a request that is not sent.
func closeBody(req *http.Request) {
	if req.Body != nil {
		_ = req.Body.Close()
	}
}

// freeze reads the body, once, so that every attempt sends the same bytes.
func freeze(req *http.Request, limit int64) ([]byte, error) {
	body, rest, err := freezePart(req, limit)
	if rest != nil {
		_ = rest.Close()
		return nil, fmt.Errorf("%w: it has more than %d bytes; set Config.MaxRequest to keep more", ErrTooLarge, limit)
	}
	return body, err
}

// freezePart is freeze for a body that may be sent once only: what is over the
// limit is not read, and the whole body is returned as a stream.
func freezePart(req *http.Request, limit int64) (body []byte, rest io.ReadCloser, err error) {
	if req.Body == nil || req.Body == http.NoBody {
		if req.ContentLength > 0 {
			err = fmt.Errorf("%w: the request has no body, its ContentLength says %d", ErrInvalidIntent, req.ContentLength)
		}
		return nil, nil, err
	}
	if req.ContentLength > limit {
		return nil, req.Body, nil
	}
	body, err = readAll(req, limit+1)
	if err == nil && int64(len(body)) > limit {
		return nil, struct {
			io.Reader
			io.Closer
		}{io.MultiReader(bytes.NewReader(body), req.Body), req.Body}, nil
	}
	closeBody(req)
	switch {
	case err != nil:
		return nil, nil, fmt.Errorf("%w: the request body can't be read: %w", ErrInvalidIntent, err)
	case req.ContentLength > 0 && req.ContentLength != int64(len(body)):
		return nil, nil, fmt.Errorf("%w: the request body has %d bytes, its ContentLength says %d", ErrInvalidIntent, len(body), req.ContentLength)
	}
	return body, nil, nil
}

// readAll reads the body to its end, or n bytes. A body that comes from
// somewhere may stall; then the end of the context is not waited out.
func readAll(req *http.Request, n int64) ([]byte, error) {
	if req.GetBody != nil { // net/http sets it for what is in memory
		return readUpTo(req.Body, n, req.ContentLength)
	}
	type result struct {
		b   []byte
		err error
	}
	done := make(chan result, 1)
	go func() {
		b, err := readUpTo(req.Body, n, req.ContentLength)
		done <- result{b, err}
	}()
	select {
	case r := <-done:
		return r.b, r.err
	case <-req.Context().Done():
		return nil, stopCause(req.Context())
	}
}

// readUpTo reads all of r, or n bytes. size is how many there should be, or
// anything else where nobody knows.
func readUpTo(r io.Reader, n, size int64) ([]byte, error) {
	const most = 64 << 10 // of what somebody else says
	if size <= 0 || size >= n {
		return io.ReadAll(io.LimitReader(r, n))
	}
	b := make([]byte, 0, min(size, most)+1) // one more, to see the end
	for len(b) < cap(b) {
		k, err := r.Read(b[len(b):cap(b)])
		b = b[:len(b)+k]
		if err != nil {
			if err == io.EOF {
				err = nil
			}
			return b, err
		}
	}
	rest, err := io.ReadAll(io.LimitReader(r, n-int64(len(b))))
	return append(b, rest...), err
}

// localFault is the outcome of a request that could not be sent for its own
// sake, or because its caller has stopped.
func localFault(req *http.Request) Outcome {
	if req.Context().Err() != nil {
		return OutcomeNotExecuted
	}
	return OutcomeRejected
}

// templateOf is what the attempts copy. A flight may go on when its callers have
// left, who can then change their requests, and a tracer adds headers: these
// need a copy.
func (c *Client) templateOf(req *http.Request, named bool) *http.Request {
	if !named && !c.watch.Traces() {
		return req
	}
	t := req.Clone(context.Background())
	if t.Header == nil {
		t.Header = make(http.Header)
	}
	t.Body, t.Response = nil, nil
	return t
}

// setBody gives a request the frozen body. net/http knows a bytes.Reader, and
// sends it together with the header.
func setBody(req *http.Request, body *bytes.Reader) {
	req.Body, req.ContentLength = http.NoBody, 0
	if body.Len() == 0 {
		return
	}
	req.Body, req.ContentLength = io.NopCloser(body), int64(body.Len())
	if len(req.Trailer) > 0 {
		req.ContentLength = -1 // HTTP/1 has trailers only after chunks
	}
	req.GetBody = func() (io.ReadCloser, error) { return nil, errResend }
}
