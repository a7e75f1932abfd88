package server_test

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/server"
)

func TestWhichStatusesAreStored(t *testing.T) {
	failures := map[int]bool{401: true, 403: true, 407: true, 408: true, 425: true, 429: true}
	for code := 200; code < 700; code++ {
		c := &counter{do: status(code, "")}
		h := newServer(t, server.Config{Effects: server.Idempotent}).Handler(c)
		post(h, "k", "{}")
		w := post(h, "k", "{}")
		final := code < 500 && !failures[code]
		if w.Code != code || (w.Header().Get("Idempotent-Replayed") == "true") != final || (c.runs() == 1) != final {
			t.Errorf("%d: then %d, marker %q, %d runs", code, w.Code, w.Header().Get("Idempotent-Replayed"), c.runs())
		}
	}
}

// B115: a client can tell a replayed refusal from a fresh one.
func TestB115ReplayedRefusal(t *testing.T) {
	seen := &events{}
	c := &counter{do: status(422, "no stock")}
	h := newServer(t, server.Config{Observer: seen}).Handler(c)
	wantFirst(t, post(h, "k", "{}"), 422, "no stock")
	wantReplay(t, post(h, "k", "{}"), 422, "no stock")
	all := seen.take()
	if all[0].Name != idem.EventRefused || all[0].Outcome != idem.OutcomeRejected || all[0].Source != idem.SourceExecuted || all[0].Attempts[0].Status != 422 {
		t.Errorf("first event %+v", all[0])
	}
	if all[1].Name != idem.EventReplayed || all[1].Outcome != idem.OutcomeRejected || all[1].Source != idem.SourceReplayed || all[1].Attempts != nil {
		t.Errorf("second event %+v", all[1])
	}
}

// B116: a wrong code, then the right one under the same key.
func TestB116CorrectedRequest(t *testing.T) {
	handler := func(release bool) *counter {
		return &counter{do: func(w http.ResponseWriter, r *http.Request, _ int) {
			body, _ := io.ReadAll(r.Body)
			if string(body) == `{"code":2}` {
				w.WriteHeader(201)
				return
			}
			if release {
				server.MarkNotExecuted(r.Context())
			}
			w.WriteHeader(400)
		}}
	}
	t.Run("stored", func(t *testing.T) {
		h := newServer(t, server.Config{}).Handler(handler(false))
		want(t, post(h, "k", `{"code":1}`), 400, "")
		want(t, post(h, "k", `{"code":2}`), 422, "key-reused")
	})
	t.Run("released", func(t *testing.T) {
		h := newServer(t, server.Config{}).Handler(handler(true))
		want(t, post(h, "k", `{"code":1}`), 400, "")
		wantFirst(t, post(h, "k", `{"code":2}`), 201, "")
	})
}

// Only the key layer says where an answer comes from.
func TestMarkerOfTheHandler(t *testing.T) {
	c := &counter{do: func(w http.ResponseWriter, _ *http.Request, _ int) {
		w.Header().Set("Idempotent-Replayed", "true") // from a server behind it
		w.WriteHeader(502)
	}}
	wantAnswer(t, post(newServer(t, server.Config{}).Handler(c), "k", "{}"), 502, "", "")
}

func TestB117DeclaredNoEffect(t *testing.T) {
	c := &counter{do: func(w http.ResponseWriter, r *http.Request, run int) {
		if run == 1 {
			server.MarkNotExecuted(r.Context())
			w.WriteHeader(503)
		}
	}}
	h := newServer(t, server.Config{}).Handler(c)
	wantAnswer(t, post(h, "k", "{}"), 503, "", "")
	wantFirst(t, post(h, "k", "{}"), 200, "")
	c.want(t, 2)
}

// B119: what stands in front never takes a key.
func TestB119InFront(t *testing.T) {
	c := &counter{}
	inner := newServer(t, server.Config{}).Handler(c)
	refuse := 0
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if refuse != 0 {
			w.WriteHeader(refuse)
			return
		}
		inner.ServeHTTP(w, r)
	})
	for _, refuse = range []int{401, 403, 429} {
		wantAnswer(t, post(h, "k", "{}"), refuse, "", "")
	}
	refuse = 0
	wantFirst(t, post(h, "k", "{}"), 201, "made")
}

// B097: "in progress" never looks like success, and does not last.
func TestB097InProgressIsNoSuccess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &counter{do: func(w http.ResponseWriter, r *http.Request, _ int) {
			<-r.Context().Done()
			panic("gave up")
		}}
		h := newServer(t, server.Config{}).Handler(c)
		go attempt(h, request("k", "{}"))
		synctest.Wait()
		for since := time.Duration(0); since < 6*time.Minute; since += 10 * time.Second {
			w := post(h, "k", "{}")
			if w.Code != 409 {
				t.Fatalf("after %v: %d", since, w.Code)
			}
			time.Sleep(8 * time.Second)
		}
		want(t, post(h, "k", "{}"), 409, "recovery-required")
		c.want(t, 1)
	})
}

func TestProblemFormat(t *testing.T) {
	s := newServer(t, server.Config{Describe: "https://example.com/keys"})
	h := s.Handler(&counter{})
	w := post(h, "", "{}")
	var p map[string]any
	if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil {
		t.Fatal(err)
	}
	for member, want := range map[string]any{
		"type": "https://example.com/keys#key-missing", "code": "key-missing", "status": 400.0,
		"title": "Idempotency key missing", "retryable": false,
	} {
		if p[member] != want {
			t.Errorf("%s: %v, want %v", member, p[member], want)
		}
	}
	if detail, _ := p["detail"].(string); detail == "" {
		t.Error("no detail")
	}
	for name, want := range map[string]string{
		"Content-Type": "application/problem+json", "Cache-Control": "no-store",
		"Link": `<https://example.com/keys>; rel="describedby"`,
	} {
		if got := w.Header().Get(name); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
	r := request("", "")
	r.Method = "HEAD"
	r.Header.Set("Idempotency-Key", "a, b")
	if w := serve(h, r); w.Code != 400 || w.Body.Len() != 0 {
		t.Errorf("HEAD: %d %s", w.Code, w.Body)
	}
	if def := post(newServer(t, server.Config{}).Handler(&counter{}), "", "{}"); !strings.Contains(def.Body.String(), `"type":"https://`) {
		t.Errorf("by default: %s", def.Body)
	}
}
