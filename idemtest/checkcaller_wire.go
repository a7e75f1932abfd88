package idemtest

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"time"
)

// callerURL leads nowhere (RFC 6761): the wire ends in the process.
const callerURL = "http://server.invalid"

// callerCall is one call of CallerCheck.Call.
type callerCall struct {
	scenario callerScenario
	intent   int
	number   int // of the intent's calls, from 1

	// Guarded by the wire.
	sends     int
	succeeded bool // an answer in full said so
	returned  bool
	err       error // what it returned
}

// callerSend is one request of the operation, as it reached the wire.
type callerSend struct {
	call   *callerCall
	number int // of the call's sends, from 1
	// keys are the values of the key's header, or the one of its field.
	keys                 []string
	method, url, media   string
	body                 []byte
	fault, saw           string
	afterSuccess, behind bool // behind: the call had returned
}

// callerWire is the network under the caller, and the server behind it. It
// notes what is sent, and lets the call's faults happen to it.
type callerWire struct {
	check  CallerCheck
	server http.RoundTripper

	mu      sync.Mutex // guards the rest, and the calls
	current *callerCall
	calls   []*callerCall
	sends   []*callerSend
}

func newCallerWire(c CallerCheck) *callerWire {
	w := &callerWire{check: c}
	if c.Server == nil {
		c.Server = &callerServer{check: c, made: make(map[string]string)}
	}
	w.server = inProcess{c.Server}
	return w
}

type callerCallKey struct{}

// play runs the calls at the same time, and returns when all have returned.
func (w *callerWire) play(ctx context.Context, c CallerCheck, calls ...*callerCall) {
	w.mu.Lock()
	w.current = calls[len(calls)-1]
	w.calls = append(w.calls, calls...)
	w.mu.Unlock()
	run := func(call *callerCall) {
		err := c.Call(context.WithValue(ctx, callerCallKey{}, call), &http.Client{Transport: w}, callerURL, call.intent)
		w.mu.Lock()
		defer w.mu.Unlock()
		call.returned, call.err = true, err
	}
	if len(calls) == 1 { // on the test's goroutine, where it may end the test
		run(calls[0])
		return
	}
	var wg sync.WaitGroup
	for _, call := range calls {
		wg.Go(func() { run(call) })
	}
	wg.Wait()
}

// RoundTrip implements http.RoundTripper.
func (w *callerWire) RoundTrip(req *http.Request) (*http.Response, error) {
	body, err := readBody(req)
	if err != nil {
		return nil, err
	}
	req = withBody(req, body)
	keys := callerKeys(w.check.Contract, req.Header, body)
	if !w.matches(req, keys) {
		return w.server.RoundTrip(req)
	}
	s := w.note(req, keys, body)
	fault := s.call.scenario.fault(s.number, w.check.MaxSends)
	resp, err := fault.apply(w.server, req)
	w.mu.Lock()
	defer w.mu.Unlock()
	switch s.fault = fault.Name; {
	case err != nil:
		s.saw = err.Error()
	case s.fault == cutAnswer.Name:
		s.saw = fmt.Sprint(resp.StatusCode, ", cut off")
	default:
		s.saw = fmt.Sprint(resp.StatusCode)
		if resp.StatusCode >= 200 && resp.StatusCode < 300 {
			s.call.succeeded = true
		}
	}
	return resp, err
}

func (w *callerWire) matches(req *http.Request, keys []string) bool {
	if w.check.Match != nil {
		return w.check.Match(req)
	}
	return req.Method == http.MethodPost || req.Method == http.MethodPatch || len(keys) > 0
}

// note writes a request down, under its call.
func (w *callerWire) note(req *http.Request, keys []string, body []byte) *callerSend {
	w.mu.Lock()
	defer w.mu.Unlock()
	call, _ := req.Context().Value(callerCallKey{}).(*callerCall)
	if call == nil || !slices.Contains(w.calls, call) {
		call = w.current
	}
	call.sends++
	s := &callerSend{call: call, number: call.sends, keys: keys,
		method: req.Method, url: req.URL.String(), media: req.Header.Get("Content-Type"), body: body,
		saw: "no answer yet", afterSuccess: call.succeeded && !call.scenario.twice, behind: call.returned}
	w.sends = append(w.sends, s)
	return s
}

// callerHistory is what has happened so far, in its order.
type callerHistory struct {
	calls []callerCall
	sends []callerSend
}

// history returns copies: a request may still be under way.
func (w *callerWire) history() (h callerHistory) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, call := range w.calls {
		h.calls = append(h.calls, *call)
	}
	for _, s := range w.sends {
		h.sends = append(h.sends, *s)
	}
	return h
}

// slowReply lets the server do its work at once, and its reply come late.
func slowReply(d time.Duration) Fault {
	return Fault{"slow-reply", func(base http.RoundTripper, req *http.Request) (*http.Response, error) {
		resp, err := base.RoundTrip(req)
		if err != nil {
			return nil, err
		}
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
			return resp, nil
		case <-req.Context().Done():
			_ = resp.Body.Close() // it is in memory
			return nil, context.Cause(req.Context())
		}
	}}
}

// inProcess is a server without a network.
type inProcess struct{ http.Handler }

func (p inProcess) RoundTrip(req *http.Request) (*http.Response, error) {
	if err := context.Cause(req.Context()); err != nil {
		return nil, err
	}
	in := req.Clone(req.Context())
	in.RequestURI, in.RemoteAddr = req.URL.RequestURI(), "192.0.2.1:1234"
	if in.Host == "" {
		in.Host = req.URL.Host
	}
	if in.Body == nil {
		in.Body = http.NoBody
	}
	out := httptest.NewRecorder()
	p.ServeHTTP(out, in)
	resp := out.Result()
	resp.ContentLength, resp.Request = int64(out.Body.Len()), req
	return resp, nil
}

// callerServer carries out what comes under a new key, and replays the rest.
type callerServer struct {
	check CallerCheck

	mu   sync.Mutex // guards the rest
	made map[string]string
	done int
}

func (s *callerServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	keys := callerKeys(s.check.Contract, r.Header, body)
	s.mu.Lock()
	defer s.mu.Unlock()
	var id string
	var replayed bool
	if len(keys) > 0 {
		id, replayed = s.made[keys[0]]
	}
	if !replayed {
		s.done++
		id = fmt.Sprintf("op_%d", s.done)
	}
	if len(keys) > 0 {
		s.made[keys[0]] = id
	}
	w.Header().Set("Idempotent-Replayed", fmt.Sprint(replayed))
	answerJSON(w, http.StatusCreated, map[string]string{"id": id})
}
