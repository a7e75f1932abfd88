package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"

	"github.com/idem-go/idem/keystore/memstore"
	"github.com/idem-go/idem/server"
)

const (
	bareHandler = "bare handler"
	handFirst   = "hand-written, first request"
	handReplay  = "hand-written, replay"
	firstOpaque = "idem, first request, Opaque"
	firstMarked = "idem, first request, Marked"
	replayed    = "idem, replay"
	fiberBare   = "fiber, bare handler"
	fiberFirst  = "fiber, first request"
	fiberReplay = "fiber, replay"
)

// middlewares compare what a middleware for keys adds to its own framework's
// handler, without sockets, on a store in memory.
func middlewares() []group {
	return []group{{name: "middleware, memory store", contenders: []contender{
		{name: bareHandler, open: handler(nil, http.StatusCreated, uniqueKey)},
		{name: handFirst, open: handler(handmade, http.StatusCreated, uniqueKey), checks: []check{added(bareHandler), addedAllocs(bareHandler)}},
		{name: handReplay, open: handler(handmade, http.StatusCreated, oneKey), checks: []check{added(bareHandler), addedAllocs(bareHandler)}},
		{
			name: firstOpaque, open: handler(protected(server.Opaque), http.StatusCreated, uniqueKey),
			checks: []check{
				added(bareHandler).within(3000), addedAllocs(bareHandler).within(20),
				addedThan(bareHandler, fiberFirst, fiberBare), addedThan(bareHandler, handFirst, bareHandler),
			},
		},
		{
			name: firstMarked, open: handler(protected(server.Marked), http.StatusCreated, uniqueKey),
			checks: []check{added(bareHandler).within(3000), addedAllocs(bareHandler).within(20)},
		},
		{
			name: replayed, open: handler(protected(server.Opaque), http.StatusCreated, oneKey),
			checks: []check{
				added(bareHandler).within(1500), addedAllocs(bareHandler).within(12),
				addedThan(bareHandler, fiberReplay, fiberBare).within(1), addedThan(bareHandler, handReplay, bareHandler),
			},
		},
		{name: "idem, mismatch", open: mismatch, checks: []check{added(bareHandler), addedAllocs(bareHandler)}},
		{name: fiberBare, open: fiberApp(false, uniqueKey)},
		{name: fiberFirst, open: fiberApp(true, uniqueKey), checks: []check{added(fiberBare), addedAllocs(fiberBare)}},
		{name: fiberReplay, open: fiberApp(true, oneKey), checks: []check{added(fiberBare), addedAllocs(fiberBare)}},
	}}, {name: "middleware, loopback, memory store", contenders: []contender{
		{name: bareHandler, open: served(nil, uniqueKey)},
		{name: firstOpaque, open: served(protected(server.Opaque), uniqueKey), checks: []check{ratio(bareHandler), added(bareHandler), addedAllocs(bareHandler)}},
		{name: firstMarked, open: served(protected(server.Marked), uniqueKey), checks: []check{ratio(bareHandler), added(bareHandler), addedAllocs(bareHandler)}},
		{name: replayed, open: served(protected(server.Opaque), oneKey), checks: []check{ratio(bareHandler), added(bareHandler), addedAllocs(bareHandler)}},
	}}}
}

// uniqueKey is a key in the form of a UUID, which is the only one that fiber
// takes.
func uniqueKey(n int) string {
	const digits = "0123456789abcdef"
	key := []byte("00000000-0000-4000-8000-000000000000")
	for i := len(key) - 1; n > 0; i-- {
		key[i] = digits[n&15]
		n >>= 4
	}
	return string(key)
}

func oneKey(int) string { return uniqueKey(0) }

// charge is the handler that everything is around.
func charge(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	_, _ = io.WriteString(w, answerBody)
}

// chargeMarked is charge for Marked mode.
func chargeMarked(w http.ResponseWriter, r *http.Request) {
	if err := server.BeginEffect(r.Context()); err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	charge(w, r)
}

// protected puts the server half around a handler.
func protected(effects server.Effects) func(*stage, http.Handler) (http.Handler, error) {
	return func(s *stage, h http.Handler) (http.Handler, error) {
		store, err := memstore.New(memstore.Config{})
		if err != nil {
			return nil, err
		}
		srv, err := server.New(server.Config{Store: store, Effects: effects, Scope: server.SingleTenant})
		if err != nil {
			return nil, err
		}
		s.onEnd(func() { _ = srv.Shutdown(context.Background()) })
		if effects == server.Marked {
			h = http.HandlerFunc(chargeMarked)
		}
		return srv.Handler(h), nil
	}
}

// served calls a handler over a connection that is kept.
func served(around func(*stage, http.Handler) (http.Handler, error), key func(int) string) func(*stage) (func(int) error, error) {
	return func(s *stage) (func(int) error, error) {
		h, err := wrapped(s, around)
		if err != nil {
			return nil, err
		}
		ts := httptest.NewServer(h)
		s.onEnd(ts.Close)
		client := &http.Client{Transport: connections(s)}
		return func(n int) error {
			r, err := newRequest(s, ts.URL, key(n), requestBody)
			if err != nil {
				return err
			}
			resp, err := client.Do(r)
			if err != nil {
				return err
			}
			defer resp.Body.Close()
			if size, err := io.Copy(io.Discard, resp.Body); err != nil || size == 0 || resp.StatusCode != http.StatusCreated {
				return fmt.Errorf("the answer was %d, %d bytes, %w", resp.StatusCode, size, err)
			}
			return nil
		}, nil
	}
}

func wrapped(s *stage, around func(*stage, http.Handler) (http.Handler, error)) (http.Handler, error) {
	if around == nil {
		return http.HandlerFunc(charge), nil
	}
	return around(s, http.HandlerFunc(charge))
}

// handler calls a handler with keys, of which it expects a status.
func handler(around func(*stage, http.Handler) (http.Handler, error), status int, key func(int) string) func(*stage) (func(int) error, error) {
	return func(s *stage) (func(int) error, error) {
		h, err := wrapped(s, around)
		if err != nil {
			return nil, err
		}
		return func(n int) error { return serve(s, h, key(n), requestBody, status) }, nil
	}
}

// mismatch is another payload under a key that is in use.
func mismatch(s *stage) (func(int) error, error) {
	h, err := protected(server.Opaque)(s, http.HandlerFunc(charge))
	if err != nil {
		return nil, err
	}
	if err := serve(s, h, oneKey(0), requestBody, http.StatusCreated); err != nil {
		return nil, err
	}
	return func(int) error { return serve(s, h, oneKey(0), `{"amount":9900}`, http.StatusUnprocessableEntity) }, nil
}

// serve is a request without a socket.
func serve(ctx context.Context, h http.Handler, key, body string, status int) error {
	r, err := newRequest(ctx, "", key, body)
	if err != nil {
		return err
	}
	w := &writer{header: make(http.Header, 8)}
	h.ServeHTTP(w, r)
	switch {
	case w.status != status:
		return fmt.Errorf("the answer was %d", w.status)
	case w.size == 0:
		return errors.New("the answer was empty")
	}
	return nil
}

func newRequest(ctx context.Context, server, key, body string) (*http.Request, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, server+"/charges", bytes.NewReader([]byte(body)))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set(keyHeader, key)
	return r, nil
}

// writer is an http.ResponseWriter that counts.
type writer struct {
	header       http.Header
	status, size int
}

func (w *writer) Header() http.Header    { return w.header }
func (w *writer) WriteHeader(status int) { w.status = status }
func (w *writer) Write(b []byte) (int, error) {
	w.size += len(b)
	return len(b), nil
}
