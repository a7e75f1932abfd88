package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
)

// fakeStripe keeps Stripe's promise about keys, as its documentation tells it: a
// key is looked up before the execution; an answer that came after the execution
// had begun is replayed with Idempotent-Replayed; other parameters under a key
// are an idempotency_error.
type fakeStripe struct {
	*httptest.Server

	mu      sync.Mutex // guards the rest
	stored  map[string]storedAnswer
	charges int
	keys    []string     // of the requests, in their order
	next    []disruption // of the next requests
}

type storedAnswer struct {
	params string
	status int
	body   string
}

// disruption is what happens to a request.
type disruption struct {
	status int    // answered before anything is looked up; 0: it is carried out
	code   string // of the error
	retry  string // Stripe-Should-Retry
	lose   bool   // the connection dies after the execution
	fail   bool   // the execution fails with a 500, which is stored
}

func newFakeStripe(next ...disruption) *fakeStripe {
	s := &fakeStripe{stored: map[string]storedAnswer{}, next: next}
	s.Server = httptest.NewServer(s)
	return s
}

func (s *fakeStripe) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	params, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	if r.Method == http.MethodGet { // a look at the balance, say: it needs no key
		fmt.Fprint(w, `{"object":"balance"}`)
		return
	}
	key := r.Header.Get("Idempotency-Key")
	s.keys = append(s.keys, key)
	var d disruption
	if len(s.next) > 0 {
		d, s.next = s.next[0], s.next[1:]
	}
	if d.retry != "" {
		w.Header().Set("Stripe-Should-Retry", d.retry)
	}
	if d.status != 0 {
		fail(w, d.status, d.code)
		return
	}
	a, replayed := s.stored[key]
	switch {
	case replayed && a.params != r.URL.Path+"?"+string(params):
		fail(w, http.StatusBadRequest, "")
		return
	case replayed:
		w.Header().Set("Idempotent-Replayed", "true")
	default:
		a = s.execute(r.URL.Path+"?"+string(params), d)
		s.stored[key] = a
	}
	if d.lose {
		panic(http.ErrAbortHandler)
	}
	w.WriteHeader(a.status)
	fmt.Fprint(w, a.body)
}

func (s *fakeStripe) execute(params string, d disruption) storedAnswer {
	if d.fail {
		return storedAnswer{params, http.StatusInternalServerError, `{"error":{"type":"api_error","message":"something went wrong"}}`}
	}
	s.charges++
	return storedAnswer{params, http.StatusOK, fmt.Sprintf(`{"id":"pi_%d","object":"payment_intent","status":"succeeded"}`, s.charges)}
}

// fail answers with an error that is not stored. Without a code it is a
// mismatch.
func fail(w http.ResponseWriter, status int, code string) {
	kind := "invalid_request_error"
	if code == "" || code == "idempotency_key_in_use" {
		kind = "idempotency_error"
	}
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{"error": map[string]string{"type": kind, "code": code, "message": "see type and code"}})
}
