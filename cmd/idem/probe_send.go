package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
)

// maxProbes bounds the requests of one probe.
const maxProbes = 15

// probeKey is a key.
type probeKey struct {
	text   string
	quoted bool // as a string of RFC 9651
	none   bool // no key at all
}

// header is how the key stands in a header.
func (k probeKey) header() string {
	if k.quoted {
		return `"` + k.text + `"`
	}
	return k.text
}

// probeAnswer is an answer that was read to its end.
type probeAnswer struct {
	status int
	header http.Header
	body   []byte
	key    string // that it answers
}

// probeSender sends requests, each once.
type probeSender struct {
	ctx       context.Context
	target    *probeTarget
	transport *http.Transport
	count     atomic.Int32
}

// newProbeSender makes a sender that net/http can't send again for: it does so
// on a connection that was used before, of which there are none, and by HTTP/2,
// which is not spoken.
func newProbeSender(ctx context.Context, t *probeTarget) *probeSender {
	http1 := new(http.Protocols)
	http1.SetHTTP1(true)
	return &probeSender{ctx: ctx, target: t, transport: &http.Transport{
		Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true, DisableCompression: true, Protocols: http1,
		MaxResponseHeaderBytes: maxProbeBody,
	}}
}

func (s *probeSender) close() { s.transport.CloseIdleConnections() }

// sent is how many requests were sent, or tried to be.
func (s *probeSender) sent() int { return int(s.count.Load()) }

var errAnswerTooLong = fmt.Errorf("the answer is longer than %d bytes, too long to be compared", maxProbeBody)

// send sends one request. It follows no redirect.
func (s *probeSender) send(body []byte, key probeKey) (a probeAnswer, err error) {
	body, err = s.target.bodyOf(body, key)
	if err != nil {
		return a, err
	}
	if s.count.Add(1) > maxProbes {
		s.count.Add(-1)
		return a, errors.New("too many requests, which is a bug of idem; nothing more was sent")
	}
	ctx, cancel := context.WithTimeout(s.ctx, s.target.timeout)
	defer cancel()
	// A reader that http.NewRequest does not know leaves GetBody nil.
	req, err := http.NewRequestWithContext(ctx, s.target.method, s.target.url.String(), struct{ io.Reader }{bytes.NewReader(body)})
	if err != nil {
		return a, err
	}
	req.ContentLength = int64(len(body))
	if len(body) == 0 {
		req.Body = http.NoBody
	}
	req.Header, req.Host = s.target.header.Clone(), s.target.host
	if s.target.keyHeader != "" && !key.none {
		req.Header[s.target.keyHeader] = []string{key.header()}
	}
	resp, err := s.transport.RoundTrip(req)
	if err != nil {
		return a, s.failed(ctx, err)
	}
	defer resp.Body.Close()
	a = probeAnswer{status: resp.StatusCode, header: resp.Header, key: key.text}
	a.body, err = io.ReadAll(io.LimitReader(resp.Body, maxProbeBody+1))
	switch {
	case err != nil:
		return a, s.failed(ctx, err)
	case len(a.body) > maxProbeBody:
		return a, errAnswerTooLong
	}
	return a, nil
}

// failed says what became of a request that has no whole answer.
func (s *probeSender) failed(ctx context.Context, err error) error {
	switch {
	case s.ctx.Err() != nil:
		err = errors.New("it was interrupted")
	case ctx.Err() != nil:
		err = fmt.Errorf("no whole answer within %v", s.target.timeout)
	}
	return fmt.Errorf("%w; whether that request was carried out is not known", err)
}

// sendAtOnce sends n equal requests at once.
func (s *probeSender) sendAtOnce(n int, body []byte, key probeKey) ([]probeAnswer, error) {
	type result struct {
		probeAnswer
		err error
	}
	results, start := make(chan result, n), make(chan struct{})
	for range n {
		go func() {
			<-start
			a, err := s.send(body, key)
			results <- result{a, err}
		}()
	}
	close(start)
	var all []probeAnswer
	var first error
	for range n {
		r := <-results
		if r.err == nil {
			all = append(all, r.probeAnswer)
		} else if first == nil {
			first = r.err
		}
	}
	return all, first
}
