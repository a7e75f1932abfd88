package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/server"
)

func TestKeyHeader(t *testing.T) {
	long := strings.Repeat("k", 256)
	tests := []struct {
		name    string
		lines   []string
		problem string
		key     idem.Key // that the handler sees
	}{
		{"absent", nil, "key-missing", ""},
		{"empty", []string{""}, "key-invalid", ""},
		{"empty string", []string{`""`}, "key-invalid", ""},
		{"B054 two lines", []string{"a", "b"}, "key-invalid", ""},
		{"B054 the same line twice", []string{"a", "a"}, "key-invalid", ""},
		{"B054 two keys in a line", []string{"a, b"}, "key-invalid", ""},
		{"B062 bare", []string{"abc"}, "", "abc"},
		{"B062 RFC 9651 string", []string{`"abc"`}, "", "abc"},
		{"B062 half a string", []string{`"abc`}, "key-invalid", ""},
		{"B062 not ASCII", []string{"0xb7ef…375a"}, "key-invalid", ""},
		{"B063 3 kB", []string{strings.Repeat("0123456789abcdef", 200)}, "key-invalid", ""},
		{"B064 255", []string{long[:255]}, "", idem.Key(long[:255])},
		{"B064 256", []string{long}, "key-invalid", ""},
		{"control character", []string{"a\x00b"}, "key-invalid", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			seen := &events{}
			var key idem.Key
			c := &counter{do: func(_ http.ResponseWriter, r *http.Request, _ int) { key, _ = idem.KeyFrom(r.Context()) }}
			h := newServer(t, server.Config{Observer: seen}).Handler(c)
			r := request("", "{}")
			if tt.lines != nil {
				r.Header["Idempotency-Key"] = tt.lines
			}
			w := serve(h, r)
			ev := seen.take()[0]
			if tt.problem != "" {
				want(t, w, 400, tt.problem)
				c.want(t, 0)
				if ev.Name != idem.EventRefused || ev.Err == nil || ev.KeyDigest != "" {
					t.Errorf("event %+v", ev)
				}
				return
			}
			want(t, w, 200, "")
			// B067: what is observed is what was looked up.
			if key != tt.key || ev.KeyDigest != tt.key.Digest() {
				t.Errorf("the handler saw key %q, the observer digest %s; want %q", key, ev.KeyDigest, tt.key)
			}
		})
	}
}

func TestKeysAreOneOrApart(t *testing.T) {
	c := &counter{}
	h := newServer(t, server.Config{}).Handler(c)
	wantFirst(t, post(h, "abc", "{}"), 201, "made")
	t.Run("B062 one key", func(t *testing.T) {
		wantReplay(t, post(h, `"abc"`, "{}"), 201, "made")
		c.want(t, 1)
	})
	for i, key := range []string{"Abc", `"abc d"`, "abcd", "ab"} {
		wantFirst(t, post(h, key, "{}"), 201, "made")
		c.want(t, i+2)
	}
}

func TestB056WithoutKey(t *testing.T) {
	t.Run("optional", func(t *testing.T) {
		c := &counter{}
		seen := &events{}
		h := newServer(t, server.Config{Optional: true, Observer: seen}).Handler(c)
		for range 2 {
			w := post(h, "", "{}")
			want(t, w, 201, "")
			if _, ok := w.Header()["Idempotent-Replayed"]; ok {
				t.Error("an unprotected answer has the marker")
			}
		}
		c.want(t, 2)
		if all := seen.take(); all != nil {
			t.Errorf("events %+v", all)
		}
	})
	t.Run("required by the route", func(t *testing.T) {
		c := &counter{}
		h := newServer(t, server.Config{Optional: true}).Handler(c, server.WithRequired())
		want(t, post(h, "", "{}"), 400, "key-missing")
		c.want(t, 0)
	})
	t.Run("safe methods", func(t *testing.T) {
		c := &counter{}
		h := newServer(t, server.Config{}).Handler(c)
		for i, method := range []string{"GET", "HEAD", "OPTIONS", "TRACE"} {
			r := request("", "")
			r.Method = method
			want(t, serve(h, r), 201, "")
			c.want(t, i+1)
		}
	})
}

func TestKeyExtractor(t *testing.T) {
	eventID := func(r *http.Request) (idem.Key, error) {
		var event struct{ ID string }
		err := json.NewDecoder(r.Body).Decode(&event)
		return idem.Key(event.ID), err
	}
	c := &counter{do: func(w http.ResponseWriter, r *http.Request, _ int) { _, _ = io.Copy(w, r.Body) }}
	h := newServer(t, server.Config{Key: eventID}).Handler(c)
	wantFirst(t, post(h, "ignored", `{"id":"evt_1"}`), 200, `{"id":"evt_1"}`)
	wantReplay(t, post(h, "ignored too", `{"id":"evt_1"}`), 200, `{"id":"evt_1"}`)
	wantFirst(t, post(h, "ignored", `{"id":"evt_2"}`), 200, `{"id":"evt_2"}`)
	want(t, post(h, "ignored", `{"id":""}`), 400, "key-missing")
	want(t, post(h, "ignored", `{`), 400, "key-invalid")
	want(t, post(h, "ignored", `{"id":" x"}`), 400, "key-invalid")
	c.want(t, 2)

	optional := newServer(t, server.Config{Key: eventID}).Handler(c, server.WithOptional())
	w := post(optional, "ignored", `{"n":1}`)
	want(t, w, 200, "")
	if w.Body.String() != `{"n":1}` {
		t.Errorf("the handler read %q", w.Body)
	}
}

// B101: what we send in responses means nothing in a request.
func TestB101MarkersOfTheClient(t *testing.T) {
	c := &counter{}
	h := newServer(t, server.Config{}).Handler(c)
	for i, name := range []string{"Idempotent-Replayed", "Idempotency-Replayed", "X-Request-Id", "Retry-After", "Link"} {
		r := request(name, "{}")
		r.Header.Set(name, "true")
		wantFirst(t, serve(h, r), 201, "made")
		c.want(t, i+1)
		r = request(name, "{}")
		r.Header.Set(name, "false")
		wantReplay(t, serve(h, r), 201, "made")
	}
}

func TestScopes(t *testing.T) {
	user := func(r *http.Request) (string, error) {
		switch name := r.Header.Get("X-User"); name {
		case "broken":
			return "", errors.New("no session: secret-token")
		case "huge":
			return strings.Repeat("x", 5000), nil
		default:
			return name, nil
		}
	}
	as := func(name, method, path string) *http.Request {
		r := request("k", "{}")
		r.Header.Set("X-User", name)
		r.Method, r.URL.Path, r.RequestURI = method, path, path
		return r
	}
	c := &counter{do: func(w http.ResponseWriter, r *http.Request, _ int) { _, _ = io.WriteString(w, r.Header.Get("X-User")) }}
	h := newServer(t, server.Config{Scope: user}).Handler(c)
	t.Run("B132 two principals", func(t *testing.T) {
		wantFirst(t, serve(h, as("ann", "POST", "/orders")), 200, "ann")
		wantFirst(t, serve(h, as("bob", "POST", "/orders")), 200, "bob")
		wantReplay(t, serve(h, as("ann", "POST", "/orders")), 200, "ann")
		c.want(t, 2)
	})
	t.Run("B134 another operation", func(t *testing.T) {
		want(t, serve(h, as("ann", "POST", "/orders/7/cancel")), 422, "key-reused")
		want(t, serve(h, as("ann", "DELETE", "/orders")), 422, "key-reused")
		r := as("ann", "POST", "/orders")
		r.URL.RawQuery = "dry=1"
		want(t, serve(h, r), 422, "key-reused")
		c.want(t, 2)
	})
	t.Run("B134 two mounts that strip their prefix", func(t *testing.T) {
		mux := http.NewServeMux()
		mux.Handle("/a/", http.StripPrefix("/a", h))
		mux.Handle("/b/", http.StripPrefix("/b", h))
		wantFirst(t, serve(mux, as("cid", "POST", "/a/x")), 200, "cid")
		want(t, serve(mux, as("cid", "POST", "/b/x")), 422, "key-reused")
		c.want(t, 3)
	})
	for _, name := range []string{"", "broken", "huge"} {
		t.Run("B133 no scope/"+name, func(t *testing.T) {
			w := serve(h, as(name, "POST", "/orders"))
			want(t, w, 403, "scope-refused")
			if strings.Contains(w.Body.String(), "secret") {
				t.Error("the scope's error leaks")
			}
			c.want(t, 3)
		})
	}
	t.Run("B136 resolved in front", func(t *testing.T) {
		type tenantKey struct{}
		resolve := func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), tenantKey{}, r.Header.Get("X-Tenant"))))
			})
		}
		s := newServer(t, server.Config{Scope: func(r *http.Request) (string, error) {
			tenant, _ := r.Context().Value(tenantKey{}).(string)
			return tenant, nil
		}})
		c := &counter{}
		h := resolve(s.Handler(c))
		for i, tenant := range []string{"one", "two"} {
			r := as("operator", "POST", "/orders")
			r.Header.Set("X-Tenant", tenant)
			wantFirst(t, serve(h, r), 201, "made")
			c.want(t, i+1)
		}
	})
	t.Run("B137 shared on purpose", func(t *testing.T) {
		c := &counter{}
		h := newServer(t, server.Config{Scope: server.SingleTenant}).Handler(c)
		wantFirst(t, serve(h, as("ann", "POST", "/orders")), 201, "made")
		wantReplay(t, serve(h, as("bob", "POST", "/orders")), 201, "made")
	})
}
