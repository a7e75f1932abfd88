package server_test

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/server"
)

func TestJSONKey(t *testing.T) {
	for _, tt := range []struct {
		path, body string
		key        idem.Key
		refused    bool
	}{
		{"id", `{"id":"evt_1","object":"event"}`, "evt_1", false},
		{"id", `{"object":{"id":"other"}, "id" : "evt_1"}`, "evt_1", false},
		{"id", `{"id":12345678901234567890}`, "12345678901234567890", false},
		{"data.object.id", `{"data":{"object":{"id":"pi_1"}},"id":"evt_1"}`, "pi_1", false},
		{"id", `{"ID":"evt_1"}`, "", false},
		{"id", `{}`, "", false},
		{"id", `[{"id":"evt_1"}]`, "", false},
		{"data.id", `{"data":"text"}`, "", false},
		{"id", `{"id":""}`, "", true},
		{"id", `{"id":null}`, "", true},
		{"id", `{"id":true}`, "", true},
		{"id", `{"id":{"a":1}}`, "", true},
		{"id", `{"id":"a","id":"a"}`, "", true},
		{"id", `{"id":"a","\u0069d":"b"}`, "", true},
		{"data.id", `{"data":{"id":"a"},"data":{"id":"b"}}`, "", true},
		{"id", `{"id":"a"`, "", true},
		{"id", `{"id":"a"} {"id":"b"}`, "", true},
		{"id", `{"id":"a",}`, "", true},
		{"id", ``, "", true},
		{"id", `id=a`, "", true},
	} {
		key, err := server.JSONKey(tt.path)(httptest.NewRequest("POST", "/", strings.NewReader(tt.body)))
		if key != tt.key || errors.Is(err, idem.ErrInvalidKey) != tt.refused || (err == nil) == tt.refused {
			t.Errorf("%s of %s: %q, %v", tt.path, tt.body, key, err)
		}
	}
}

// What asks for nothing to be done has no key, and is not read.
func TestJSONKeyOfSafeMethods(t *testing.T) {
	key := server.JSONKey("id")
	for _, method := range []string{"GET", "HEAD", "OPTIONS", "TRACE"} {
		if k, err := key(httptest.NewRequest(method, "/?challenge=1", nil)); k != "" || err != nil {
			t.Errorf("%s: %q, %v", method, k, err)
		}
	}
	r := httptest.NewRequest("POST", "/", nil)
	r.Body = nil
	if _, err := key(r); !errors.Is(err, idem.ErrInvalidKey) {
		t.Errorf("without a body: %v", err)
	}
}

func TestHeaderKey(t *testing.T) {
	key := server.HeaderKey("webhook-id")
	r := httptest.NewRequest("POST", "/", nil)
	if k, err := key(r); k != "" || err != nil {
		t.Errorf("without: %q, %v", k, err)
	}
	r.Header.Set("Webhook-Id", `msg_"1"`)
	if k, err := key(r); k != `msg_"1"` || err != nil {
		t.Errorf("got %q, %v", k, err)
	}
	r.Header.Add("Webhook-Id", "msg_2")
	if _, err := key(r); !errors.Is(err, idem.ErrInvalidKey) {
		t.Errorf("two lines: %v", err)
	}
	r.Header.Set("Webhook-Id", "")
	if _, err := key(r); !errors.Is(err, idem.ErrInvalidKey) {
		t.Errorf("empty: %v", err)
	}
}

func TestKeysPanic(t *testing.T) {
	for name, call := range map[string]func(){"header": func() { server.HeaderKey("") }, "path": func() { server.JSONKey("") }} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			call()
		}()
	}
}

// B163, B164: events are delivered 20 times each, out of order and at once, with
// bodies that differ, and are handled once each.
func TestWebhookDeliveries(t *testing.T) {
	const events, deliveries = 25, 20
	handled := map[string]int{}
	var mu sync.Mutex
	receive := newServer(t, server.Config{Effects: server.Marked, Key: server.JSONKey("id"), Fingerprint: server.KeyAlone}).
		Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			handled[strings.Split(string(body), `"`)[3]]++
		}))
	bodies := make([]string, 0, events*deliveries)
	for e := range events {
		for d := range deliveries {
			bodies = append(bodies, fmt.Sprintf(`{"id":"evt_%d","pending_webhooks":%d}`, e, d))
		}
	}
	rand.Shuffle(len(bodies), func(i, j int) { bodies[i], bodies[j] = bodies[j], bodies[i] })
	var all sync.WaitGroup
	for _, body := range bodies {
		all.Go(func() {
			if w := serve(receive, httptest.NewRequest("POST", "/webhooks", strings.NewReader(body))); w.Code != 200 {
				t.Errorf("got %d %s", w.Code, w.Body)
			}
		})
	}
	all.Wait()
	if len(handled) != events {
		t.Errorf("%d events were handled", len(handled))
	}
	for id, n := range handled {
		if n != 1 {
			t.Errorf("%s was handled %d times", id, n)
		}
	}
	// A delivery without an event's name is refused, not handled.
	want(t, serve(receive, httptest.NewRequest("POST", "/webhooks", strings.NewReader(`{"object":"event"}`))), 400, "key-missing")
}
