package idemtest

import (
	"bytes"
	"io"
	"maps"
	"net/http"
	"slices"
	"sync"
)

// Transport is a RoundTripper that lets a fault happen to each attempt, and
// keeps what it saw. The zero Transport passes everything on. It is safe for
// concurrent use; its fields must not be changed once it is in use.
type Transport struct {
	// Base carries the requests out; nil means http.DefaultTransport.
	Base http.RoundTripper
	// Plan picks the fault for each attempt; nil picks Pass.
	Plan Plan
	// KeyHeader is the header that carries the key; empty means
	// Idempotency-Key.
	KeyHeader string

	mu        sync.Mutex // guards the rest
	seen      map[string]int
	exchanges []Exchange
}

// NewTransport returns a Transport over base (nil means http.DefaultTransport)
// that plays the script for each key; see Script.
func NewTransport(base http.RoundTripper, script ...Fault) *Transport {
	return &Transport{Base: base, Plan: Script(script...)}
}

// Exchange is one attempt, as a Transport saw it.
type Exchange struct {
	// Key is the value of the key header as it was sent; empty without one.
	Key string
	// Attempt counts the requests under this key, from 1.
	Attempt int
	// Method, URL and Body are the request's.
	Method, URL string
	Body        []byte
	// Fault is the name of the fault that was picked.
	Fault string
	// Answers are the statuses that the server gave, whether or not they
	// reached the caller: none if the request was not delivered or its reply
	// was not waited for, two if it was delivered twice.
	Answers []int
	// Status is what the caller saw; 0 if it got Err.
	Status int
	Err    error
}

// RoundTrip implements http.RoundTripper.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	body, err := readBody(req)
	if err != nil {
		return nil, err
	}
	header := t.KeyHeader
	if header == "" {
		header = "Idempotency-Key"
	}
	x := Exchange{Key: req.Header.Get(header), Method: req.Method, URL: req.URL.String(), Body: body}
	t.mu.Lock()
	if t.seen == nil {
		t.seen = make(map[string]int)
	}
	t.seen[x.Key]++
	x.Attempt = t.seen[x.Key]
	t.mu.Unlock()

	fault := Pass
	if t.Plan != nil {
		fault = t.Plan(x.Key, x.Attempt)
	}
	x.Fault = fault.String()
	below := &witness{base: t.base()}
	resp, err := fault.apply(below, withBody(req, body))
	if x.Err = err; err == nil {
		x.Status = resp.StatusCode
	}
	x.Answers = below.answers()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.exchanges = append(t.exchanges, x)
	return resp, err
}

func (t *Transport) base() http.RoundTripper {
	if t.Base != nil {
		return t.Base
	}
	return http.DefaultTransport
}

// CloseIdleConnections closes those of Base, for http.Client's method of the
// same name.
func (t *Transport) CloseIdleConnections() {
	if c, ok := t.base().(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// Exchanges returns the attempts that have ended, in the order of their ends.
func (t *Transport) Exchanges() []Exchange {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.exchanges)
}

// Counts tells how many attempts each fault happened to, by its name.
func (t *Transport) Counts() map[string]int {
	counts := make(map[string]int)
	for _, x := range t.Exchanges() {
		counts[x.Fault]++
	}
	return counts
}

// Keys returns the keys that were sent, sorted. Two keys for one intent are a
// second charge in the making.
func (t *Transport) Keys() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Sorted(maps.Keys(t.seen))
}

// witness notes what the server answers.
type witness struct {
	base http.RoundTripper

	mu       sync.Mutex // guards statuses: a fault may send twice at once
	statuses []int
}

func (w *witness) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := w.base.RoundTrip(req)
	if err == nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.statuses = append(w.statuses, resp.StatusCode)
	}
	return resp, err
}

func (w *witness) answers() []int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.statuses)
}

// readBody reads the body of a request and closes it.
func readBody(req *http.Request) ([]byte, error) {
	if req.Body == nil || req.Body == http.NoBody {
		return nil, nil
	}
	defer req.Body.Close()
	return io.ReadAll(req.Body)
}

// withBody returns a copy of req with this body. GetBody stays what it was:
// whether net/http may send a request again is not ours to change.
func withBody(req *http.Request, body []byte) *http.Request {
	c := req.Clone(req.Context())
	if body != nil {
		c.Body = io.NopCloser(bytes.NewReader(body))
	}
	return c
}
