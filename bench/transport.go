package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"time"

	"github.com/failsafe-go/failsafe-go/failsafehttp"
	"github.com/google/uuid"
	"github.com/hashicorp/go-retryablehttp"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/keystore/memstore"
)

const (
	requestBody = `{"amount":4200,"currency":"eur","customer":"cus_9s6XKzkNRiz8i3","description":"order 17"}`
	answerBody  = `{"id":"ch_3MmlLrLkdIwHu7ix0snN0B15","amount":4200,"currency":"eur","status":"succeeded"}`
	keyHeader   = "Idempotency-Key"
	// patience is the timeout of every request that has one.
	patience = 5 * time.Second
	crowd    = 64
)

// The names of baselines.
const (
	bareClient   = "http.Client"
	bareTimeout  = "http.Client, context timeout"
	standard     = "retryablehttp StandardClient"
	failsafe     = "failsafehttp"
	idemNoStore  = "idem, random key"
	idemIntent   = "idem, intent with ID"
	idemMemstore = "idem, intent, memory store"
)

// transports compare ways to POST with a key, over a connection that is kept
// and on a base that answers at once.
func transports() []group {
	return []group{
		{
			name: "transport, loopback",
			contenders: senders(overLoopback, true, map[string][]check{
				idemNoStore: {ratio(bareTimeout).within(1.05), ratio(standard).within(1), ratio(failsafe).within(1)},
			}),
		},
		{
			name: "transport, loopback, 64 goroutines", callers: crowd,
			contenders: senders(overLoopback, true, map[string][]check{
				idemNoStore: {ratio(bareClient).within(1.08)},
			}),
		},
		{
			name: "transport, stub",
			contenders: senders(overStub, false, map[string][]check{
				idemNoStore:  {added(bareClient).within(3000), addedAllocs(bareClient).within(20)},
				idemIntent:   {added(bareClient), addedAllocs(bareClient)},
				idemMemstore: {added(bareClient), addedAllocs(bareClient)},
			}),
		},
	}
}

// base is what requests go over.
type base struct {
	http.RoundTripper
	url string
}

// senders are the contenders over a base, with these checks instead of the
// plain ratio.
func senders(over func(*stage) base, withStripe bool, checks map[string][]check) []contender {
	list := []contender{
		{name: bareClient, open: overClient(over, func(_ *stage, b base) (*http.Client, error) { return &http.Client{Transport: b}, nil })},
		{name: bareTimeout, open: withTimeout(over)},
		{name: idemNoStore, open: overIdem(over, false, context.Background)},
		{name: idemIntent, open: overIdem(over, false, nil)},
		{name: idemMemstore, open: overIdem(over, true, nil)},
		{name: "retryablehttp Do", open: overRetryable(over)},
		{name: standard, open: overClient(over, func(_ *stage, b base) (*http.Client, error) { return retryable(b).StandardClient(), nil })},
		{name: failsafe, open: overClient(over, func(_ *stage, b base) (*http.Client, error) {
			retry := failsafehttp.NewRetryPolicyBuilder().WithMaxRetries(3).Build()
			return &http.Client{Transport: failsafehttp.NewRoundTripper(b, retry)}, nil
		})},
	}
	if withStripe {
		list = append(list, contender{name: "stripe-go (its own path)", open: overStripe})
	}
	for i := range list {
		if c := &list[i]; checks[c.name] != nil {
			c.checks = checks[c.name]
		} else if c.name != bareClient {
			c.checks = []check{ratio(bareClient)}
		}
	}
	return list
}

// overLoopback is a server in this process, and connections of the contender's
// own.
func overLoopback(s *stage) base {
	server := httptest.NewServer(http.HandlerFunc(answer))
	s.onEnd(server.Close)
	return base{connections(s), server.URL + "/charges"}
}

func connections(s *stage) *http.Transport {
	t := &http.Transport{MaxIdleConns: 2 * crowd, MaxIdleConnsPerHost: 2 * crowd}
	s.onEnd(t.CloseIdleConnections)
	return t
}

func answer(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	_, _ = io.WriteString(w, answerBody)
}

// overStub answers at once.
func overStub(*stage) base { return base{stub{}, "http://example.com/charges"} }

type stub struct{}

func (stub) RoundTrip(req *http.Request) (*http.Response, error) {
	_, _ = io.Copy(io.Discard, req.Body)
	_ = req.Body.Close()
	return &http.Response{
		Status: "201 Created", StatusCode: http.StatusCreated, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {"application/json"}}, ContentLength: int64(len(answerBody)),
		Body: io.NopCloser(strings.NewReader(answerBody)), Request: req,
	}, nil
}

// overClient posts through a client, with a key made for each request.
func overClient(over func(*stage) base, client func(*stage, base) (*http.Client, error)) func(*stage) (func(int) error, error) {
	return func(s *stage) (func(int) error, error) {
		b := over(s)
		hc, err := client(s, b)
		return func(int) error { return post(s, hc, b.url, uuid.NewString()) }, err
	}
}

func withTimeout(over func(*stage) base) func(*stage) (func(int) error, error) {
	return func(s *stage) (func(int) error, error) {
		b := over(s)
		hc := &http.Client{Transport: b}
		return func(int) error {
			ctx, cancel := context.WithTimeout(s, patience)
			defer cancel()
			return post(ctx, hc, b.url, uuid.NewString())
		}, nil
	}
}

// overIdem posts through the client half: under ctx, or under an intent of its
// own each time.
func overIdem(over func(*stage) base, store bool, ctx func() context.Context) func(*stage) (func(int) error, error) {
	return func(s *stage) (func(int) error, error) {
		b := over(s)
		cfg := idem.Config{Scope: "bench"}
		if store {
			records, err := memstore.New(memstore.Config{})
			if err != nil {
				return nil, err
			}
			cfg.Store = records
		}
		client, err := idem.New(cfg)
		if err != nil {
			return nil, err
		}
		s.onEnd(func() { _ = client.Shutdown(context.Background()) })
		hc := &http.Client{Transport: client.Transport(b)}
		if ctx != nil {
			return func(int) error { return post(ctx(), hc, b.url, "") }, nil
		}
		return func(n int) error {
			return post(idem.WithIntent(s, idem.Intent{ID: strconv.Itoa(n)}), hc, b.url, "")
		}, nil
	}
}

func retryable(b base) *retryablehttp.Client {
	rc := retryablehttp.NewClient()
	rc.HTTPClient = &http.Client{Transport: b}
	rc.Logger = nil
	return rc
}

func overRetryable(over func(*stage) base) func(*stage) (func(int) error, error) {
	return func(s *stage) (func(int) error, error) {
		b := over(s)
		rc := retryable(b)
		return func(int) error {
			req, err := retryablehttp.NewRequestWithContext(s, http.MethodPost, b.url, strings.NewReader(requestBody))
			if err != nil {
				return err
			}
			req.Header.Set("Content-Type", "application/json")
			req.Header.Set(keyHeader, uuid.NewString())
			return read(rc.Do(req))
		}, nil
	}
}

// post sends a request and reads its answer. Without a key somebody else sets
// one.
func post(ctx context.Context, hc *http.Client, url, key string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader([]byte(requestBody)))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	if key != "" {
		req.Header.Set(keyHeader, key)
	}
	return read(hc.Do(req))
}

func read(resp *http.Response, err error) error {
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
	if err == nil && resp.StatusCode != http.StatusCreated {
		err = errors.New("the answer was " + resp.Status)
	}
	return err
}
