package server_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/keystore"
	"github.com/idem-go/idem/server"
)

// An unprotected handler inside a protected call hides the claim from BeginEffect.
func TestUnprotectedShadowsOuter(t *testing.T) {
	s := newServer(t, server.Config{Effects: server.Marked})
	charges := 0
	inner := s.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := server.BeginEffect(r.Context()); err != nil {
			t.Error(err)
			return
		}
		charges++
		w.WriteHeader(500)
	}), server.WithOptional())
	consume := func() error {
		_, err := server.Run(t.Context(), s, idem.Intent{Scope: "queue", ID: "msg-1"}, func(ctx context.Context) (int, error) {
			w := httptest.NewRecorder()
			inner.ServeHTTP(w, httptest.NewRequest("POST", "/charges", strings.NewReader("{}")).WithContext(ctx))
			if w.Code >= 500 {
				return 0, errors.New("failed")
			}
			return 1, nil
		})
		return err
	}
	_, _ = consume(), consume()
	if charges != 1 {
		t.Errorf("charged %d times", charges)
	}
}

// the same for a webhook: outer key from the webhook id, inner route with an optional Idempotency-Key
func TestUnprotectedShadowsOuterHandlers(t *testing.T) {
	charges := 0
	store := newStore(t)
	in := newServer(t, server.Config{Store: store, Effects: server.Marked, Optional: true})
	out := newServer(t, server.Config{Store: store, Effects: server.Marked, Key: func(r *http.Request) (idem.Key, error) { return idem.Key(r.Header.Get("Webhook-Id")), nil }})
	h := out.Handler(in.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := server.BeginEffect(r.Context()); err != nil {
			t.Error(err)
			return
		}
		charges++
		w.WriteHeader(500)
	})))
	for range 2 {
		r := httptest.NewRequest("POST", "/hooks", strings.NewReader("{}"))
		r.Header.Set("Webhook-Id", "w1")
		serve(h, r)
	}
	if charges != 1 {
		t.Errorf("charged %d times", charges)
	}
}

// After a protected call has ended, its context must not open the door.
func TestContextOutlivesExecution(t *testing.T) {
	var leaked context.Context
	c := &counter{do: func(w http.ResponseWriter, r *http.Request, _ int) {
		leaked = context.WithoutCancel(r.Context())
		w.WriteHeader(201)
	}}
	s := newServer(t, server.Config{})
	h := s.Handler(c)
	post(h, "k", "{}")
	serve(h, request("k", "{}").WithContext(leaked))
	c.want(t, 1)
}

func TestNestedRunDuringShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, server.Config{})
		running, release := make(chan struct{}), make(chan struct{})
		h := s.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			close(running)
			<-release
			if _, err := server.Run(r.Context(), s, idem.Intent{Scope: "step", ID: "2"}, func(context.Context) (int, error) { return 1, nil }); err != nil {
				t.Errorf("the second step of running work: %v", err)
				w.WriteHeader(500)
				return
			}
			w.WriteHeader(201)
		}))
		got := make(chan int)
		go func() { got <- post(h, "k", "{}").Code }()
		<-running
		down := make(chan error)
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			down <- s.Shutdown(ctx)
		}()
		synctest.Wait() // Shutdown waits for the running work
		close(release)
		if c := <-got; c != 201 {
			t.Errorf("running work answered %d", c)
		}
		<-down
	})
}

// A layer with one store (say, memory) around a layer with another (durable):
// the inner one must still protect.
func TestTwoStoresNested(t *testing.T) {
	durable := newStore(t)
	c := &counter{}
	inner := newServer(t, server.Config{Store: durable}).Handler(c)
	post(newServer(t, server.Config{}).Handler(inner), "k", "{}")
	recs, _ := durable.Records(t.Context(), keystore.Query{})
	if len(recs) != 1 {
		t.Errorf("the durable store has %d records after the first request, want 1", len(recs))
	}
	// the process restarts: the memory store is new, the durable one is not
	post(newServer(t, server.Config{}).Handler(inner), "k", "{}")
	c.want(t, 1)
}

// The handler removed a header of the middleware around; the replay has it.
func TestRemovedOuterHeader(t *testing.T) {
	c := &counter{do: func(w http.ResponseWriter, _ *http.Request, _ int) {
		w.Header().Del("Cache-Control")
		w.WriteHeader(201)
	}}
	inner := newServer(t, server.Config{}).Handler(c)
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "max-age=60")
		inner.ServeHTTP(w, r)
	})
	first, again := post(h, "k", "{}"), post(h, "k", "{}")
	if a, b := first.Header().Get("Cache-Control"), again.Header().Get("Cache-Control"); a != b {
		t.Errorf("Cache-Control: first %q, replay %q", a, b)
	}
}

func TestHeaderBytes(t *testing.T) {
	c := &counter{do: func(w http.ResponseWriter, _ *http.Request, _ int) {
		w.Header().Set("Content-Disposition", "attachment; filename=\"caf\xe9.pdf\"")
		w.WriteHeader(201)
	}}
	ts := httptest.NewServer(newServer(t, server.Config{}).Handler(c))
	defer ts.Close()
	get := func() string {
		r, _ := http.NewRequest("POST", ts.URL+"/x", strings.NewReader("{}"))
		r.Header.Set("Idempotency-Key", "k")
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		io.Copy(io.Discard, resp.Body)
		return resp.Header.Get("Content-Disposition")
	}
	if a, b := get(), get(); a != b {
		t.Errorf("first %q, replay %q", a, b)
	}
	http.DefaultClient.CloseIdleConnections()
}

func TestMultipartTempFiles(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	var body bytes.Buffer
	mw := multipart.NewWriter(&body)
	f, _ := mw.CreateFormFile("f", "f.bin")
	f.Write(make([]byte, 2<<20))
	mw.Close()
	for name, wrap := range map[string]func(http.Handler) http.Handler{
		"plain": func(h http.Handler) http.Handler { return h },
		"idem":  func(h http.Handler) http.Handler { return newServer(t, server.Config{}).Handler(h) },
	} {
		done := make(chan struct{}, 1)
		ts := httptest.NewServer(wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if err := r.ParseMultipartForm(1 << 10); err != nil {
				t.Error(err)
			}
			w.WriteHeader(201)
			done <- struct{}{}
		})))
		r, _ := http.NewRequest("POST", ts.URL+"/x", bytes.NewReader(body.Bytes()))
		r.Header.Set("Idempotency-Key", "k")
		r.Header.Set("Content-Type", mw.FormDataContentType())
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		http.DefaultClient.CloseIdleConnections()
		ts.Close()
		left, _ := filepath.Glob(filepath.Join(dir, "multipart-*"))
		if len(left) > 0 {
			t.Errorf("%s: %d temporary files of the form are left after the request", name, len(left))
		}
		for _, l := range left {
			os.Remove(l)
		}
	}
}
