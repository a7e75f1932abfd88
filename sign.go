package idem

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"time"
)

// sign has an attempt's request signed, if Config.Sign is set. It takes over
// the headers only. If it reports false, the verdict is that of an attempt
// which has sent nothing.
func (t *transport) sign(req *http.Request, body []byte, timeout time.Duration) (verdict, bool) {
	sign := t.client.cfg.Sign
	if sign == nil {
		return verdict{}, true
	}
	ctx, cancel := context.WithTimeout(req.Context(), timeout)
	defer cancel()
	signed := req.Clone(ctx)
	setBody(signed, bytes.NewReader(body))
	signed.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	err := recovered(func() error { return sign(signed) })
	if err == nil {
		err = t.checkSigned(req.Header, signed.Header)
	}
	switch {
	case err == nil:
		req.Header = signed.Header
		return verdict{}, true
	case ctx.Err() != nil: // its own time, or the caller's, is up
		return verdict{outcome: OutcomeNotExecuted, retry: true, err: signFailed(err)}, false
	}
	return verdict{outcome: OutcomeRejected, err: signFailed(err)}, false
}

func signFailed(err error) error { return fmt.Errorf("idem: Config.Sign: %w", err) }

// checkSigned refuses what net/http would, and another key than the attempt's:
// it would be repeated under a key that the server does not know.
func (t *transport) checkSigned(before, after http.Header) error {
	name := t.client.cfg.Contract.Header
	if key := before.Get(name); key != "" && (len(after.Values(name)) != 1 || after.Get(name) != key) {
		return fmt.Errorf("%w: it has changed the header %s; leave the key there", ErrInvalidIntent, name)
	}
	return checkHeader(after)
}

// strays tells whether redirects have led the request to another origin than
// the first one's.
func strays(req *http.Request) bool {
	first := req
	for first.Response != nil && first.Response.Request != nil {
		first = first.Response.Request
	}
	return first != req && originOf(first.URL) != originOf(req.URL)
}
