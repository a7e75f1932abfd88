package main

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/keystore"
	"github.com/idem-go/idem/server"
)

// The records of world.unresolved, as they are named at the four doors.
var (
	atDo        = strings.Fields("-yes -half client -scope shop -id o1")
	atTransport = strings.Fields("-yes -half client -scope shop -id o2")
	atRun       = strings.Fields("-yes -half server -scope jobs -id o3")
	atHandler   = strings.Fields("-yes -half server -scope single-tenant -key o4")
)

const rawReply = "HTTP/1.1 201 Created\r\nContent-Type: application/json\r\nLocation: /charges/7\r\nDate: Tue, 01 Dec 2026 10:00:00 GMT\r\n" +
	"Set-Cookie: a=b\r\nContent-Length: 14\r\n\r\n{\"charge\":\"7\"}"

func settled(t *testing.T) *world {
	t.Helper()
	w := newWorld(t)
	w.unresolved()
	return w
}

// TestReplayAtDo: what an operator has given is what Do returns, and the
// function is not called.
func TestReplayAtDo(t *testing.T) {
	w := settled(t)
	out := w.must("resolve", append(atDo, "-done", w.file("{\"Charge\": \"ch_7\"}\n"))...)
	if !strings.Contains(out, "is done: its answer is replayed for 24h") {
		t.Error(out)
	}
	res, sent, err := w.do(idem.Config{}, order, nil)
	if err != nil || res.Value.Charge != "ch_7" || res.Source != idem.SourceReplayed || sent != "" {
		t.Errorf("%+v, sent %q, %v", res, sent, err)
	}
	other := order
	other.Payload = "another"
	if _, sent, err := w.do(idem.Config{}, other, nil); !errors.Is(err, idem.ErrPayloadMismatch) || sent != "" {
		t.Errorf("another payload: sent %q, %v", sent, err)
	}
}

// TestReplayAtTransport: a raw response from a file or from standard input, or
// a status and a body.
func TestReplayAtTransport(t *testing.T) {
	for name, resolve := range map[string]func(*world) answered{
		"raw": func(w *world) answered { return w.idem("resolve", append(atTransport, "-done", w.file(rawReply))...) },
		"HTTP/2": func(w *world) answered {
			return w.idem("resolve", append(atTransport, "-done", w.file(strings.Replace(rawReply, "HTTP/1.1 201 Created", "HTTP/2 201 ", 1)))...)
		},
		"newlines": func(w *world) answered {
			return w.idem("resolve", append(atTransport, "-done", w.file(strings.ReplaceAll(rawReply, "\r\n", "\n")+"\n"))...)
		},
		"shorthand": func(w *world) answered {
			return w.idem("resolve", append(atTransport, "-status", "201", "-done", w.file(`{"charge":"7"}`))...)
		},
		"standard input": func(w *world) answered {
			return idemWith(t, strings.NewReader(rawReply), append([]string{"resolve", "-store", w.url, "-done", "-"}, atTransport...)...)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := settled(t)
			if got := resolve(w); got.code != exitOK {
				t.Fatalf("%+v", got)
			}
			resp, asked, err := w.send(idem.Config{}, idem.Intent{Scope: "shop", ID: "o2"}, 500)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			body, err := io.ReadAll(resp.Body)
			if asked || err != nil || resp.StatusCode != 201 || string(body) != `{"charge":"7"}` || resp.Header.Get("Content-Type") != "application/json" {
				t.Errorf("asked %v, %v, %q, %v", asked, resp, body, err)
			}
			if name == "raw" && (resp.Header.Get("Location") != "/charges/7" || resp.Header.Get("Set-Cookie") != "a=b") {
				t.Errorf("header %v", resp.Header) // the client half keeps what came
			}
			if source := idem.ReportOf(resp).Source; source != idem.SourceReplayed {
				t.Errorf("source %v", source)
			}
		})
	}
}

// TestReplayAtRun is TestReplayAtDo for server.Run.
func TestReplayAtRun(t *testing.T) {
	w := settled(t)
	w.must("resolve", append(atRun, "-done", w.file(`{"Charge":"ch_7"}`))...)
	res, err := w.run(idem.Intent{Scope: "jobs", ID: "o3"}, errLost)
	if err != nil || res.Value.Charge != "ch_7" || res.Source != idem.SourceReplayed {
		t.Errorf("%+v, %v", res, err)
	}
}

// TestReplayAtHandler: clients get the answer, but for what belonged to one
// exchange.
func TestReplayAtHandler(t *testing.T) {
	w := settled(t)
	w.must("resolve", append(atHandler, "-done", w.file(rawReply))...)
	rec, called := w.serve("o4", "POST", 500)
	h := rec.Header()
	if called || rec.Code != 201 || rec.Body.String() != `{"charge":"7"}` || h.Get("Idempotent-Replayed") != "true" {
		t.Errorf("called %v, %d %s", called, rec.Code, rec.Body)
	}
	if h.Get("Location") != "/charges/7" || h.Get("Content-Type") != "application/json" || h["Set-Cookie"] != nil || h["Date"] != nil {
		t.Errorf("header %v", h)
	}
}

// TestReplayRefusalAtHandler: a refusal is an answer at the server half.
func TestReplayRefusalAtHandler(t *testing.T) {
	w := settled(t)
	w.must("resolve", append(atHandler, "-done", w.file("HTTP/1.1 402 Payment Required\r\nContent-Length: 4\r\n\r\nnope"))...)
	if rec, called := w.serve("o4", "POST", 500); called || rec.Code != 402 || rec.Body.String() != "nope" {
		t.Errorf("called %v, %d %s", called, rec.Code, rec.Body)
	}
	w = settled(t)
	w.must("resolve", append(atHandler, "-rejected", "-status", "402")...)
	if rec, called := w.serve("o4", "POST", 500); called || rec.Code != 402 || !strings.Contains(rec.Body.String(), "response-not-retained") {
		t.Errorf("called %v, %d %s", called, rec.Code, rec.Body)
	}
}

// TestDoneWithoutResult: never executed again, and every door says so.
func TestDoneWithoutResult(t *testing.T) {
	w := settled(t)
	for _, record := range [][]string{atDo, atTransport, atRun, atHandler} {
		w.must("resolve", append(record, "-done-without-result")...)
	}
	_, sent, err := w.do(idem.Config{}, order, nil)
	if sent != "" {
		t.Errorf("Do has sent %q", sent)
	}
	wantExecuted(t, err)
	_, asked, err := w.send(idem.Config{}, idem.Intent{Scope: "shop", ID: "o2"}, 200)
	if asked {
		t.Error("Transport has sent")
	}
	wantExecuted(t, err)
	_, err = w.run(idem.Intent{Scope: "jobs", ID: "o3"}, nil)
	wantExecuted(t, err)
	if rec, called := w.serve("o4", "POST", 200); called || rec.Code != 409 || !strings.Contains(rec.Body.String(), "response-not-retained") {
		t.Errorf("called %v, %d %s", called, rec.Code, rec.Body)
	}
}

func wantExecuted(t *testing.T, err error) {
	t.Helper()
	var e *idem.Error
	if !errors.As(err, &e) || e.Outcome != idem.OutcomeExecuted || !errors.Is(err, idem.ErrResultNotRetained) {
		t.Errorf("%v", err)
	}
}

// TestNotExecuted: the next call at each door is executed, at the client half
// under the same key.
func TestNotExecuted(t *testing.T) {
	w := settled(t)
	for _, record := range [][]string{atDo, atTransport, atRun, atHandler} {
		w.must("resolve", append(record, "-not-executed")...)
	}
	if res, sent, err := w.do(idem.Config{}, order, nil); err != nil || res.Source != idem.SourceExecuted || sent != idem.DeriveKey("intent", "shop", "o1") {
		t.Errorf("%+v, sent %q, %v", res, sent, err)
	}
	if resp, asked, err := w.send(idem.Config{}, idem.Intent{Scope: "shop", ID: "o2"}, 200); !asked || err != nil || resp.StatusCode != 200 {
		t.Errorf("%v, %v", resp, err)
	}
	if res, err := w.run(idem.Intent{Scope: "jobs", ID: "o3"}, nil); err != nil || res.Source != idem.SourceExecuted {
		t.Errorf("%+v, %v", res, err)
	}
	if rec, called := w.serve("o4", "POST", 200); !called || rec.Code != 200 {
		t.Errorf("%d %s", rec.Code, rec.Body)
	}
}

// TestRejected: at the client half the next call is a new operation, under a
// new key and with any payload; at the server half a function's refusal is
// replayed.
func TestRejected(t *testing.T) {
	w := settled(t)
	w.must("resolve", append(atDo, "-rejected")...)
	w.must("resolve", append(atRun, "-rejected", "-reason", "the card was declined")...)
	other := order
	other.Payload = "another"
	if _, sent, err := w.do(idem.Config{}, other, nil); err != nil || sent != idem.DeriveKey("intent", "shop", "o1", "1") {
		t.Errorf("sent %q, %v", sent, err)
	}
	_, err := w.run(idem.Intent{Scope: "jobs", ID: "o3"}, nil)
	var e *idem.Error
	if !errors.As(err, &e) || e.Outcome != idem.OutcomeRejected || e.Last == nil || e.Last.Error() != "the card was declined" {
		t.Errorf("%v", err)
	}
}

// TestRetention: a route's own retention holds, unless the operator says
// otherwise.
func TestRetention(t *testing.T) {
	for _, tt := range []struct{ args, want string }{{"", "3h0m0s"}, {"-retention 90m", "1h30m0s"}} {
		w := newWorld(t)
		_, _ = w.serve("k", "POST", 500, server.WithRetention(3*3600e9))
		args := append(strings.Fields("-half server -scope single-tenant -key k -yes -done-without-result "+tt.args), "-json")
		got := decode[map[string]string](t, w.must("resolve", args...))
		if got["now"] != "done: its answer is replayed for "+tt.want {
			t.Errorf("%s: %v", tt.args, got)
		}
		var left float64
		if err := w.SQL.QueryRowContext(t.Context(), `SELECT (until_us - since_us) / 3600e6 FROM idem_records`).Scan(&left); err != nil {
			t.Fatal(err)
		}
		if tt.args == "" && left < 3 || tt.args != "" && left > 2 {
			t.Errorf("%s: kept for %v hours", tt.args, left)
		}
	}
}

// TestDiscardingRoute: the answer of a route that stores none is not stored by
// an operator either; where its result is, and its status, are.
func TestDiscardingRoute(t *testing.T) {
	w := newWorld(t)
	_, _ = w.serve("k", "POST", 500, server.WithoutStoredAnswer())
	_, _ = w.run(idem.Intent{Scope: "jobs", ID: "j"}, errLost, server.WithoutStoredAnswer())
	w.must("resolve", "-half=server", "-scope=single-tenant", "-key=k", "-yes", "-done", w.file(rawReply))
	w.must("resolve", "-half=server", "-scope=jobs", "-id=j", "-yes", "-done", w.file(`{"Charge":"ch_7"}`))
	recs, err := w.store.Records(t.Context(), keystore.Query{})
	if err != nil || len(recs) != 2 {
		t.Fatal(len(recs), err)
	}
	for _, rec := range recs {
		if strings.Contains(string(rec.Result), "charge\"") || strings.Contains(string(rec.Result), "ch_7") {
			t.Errorf("stored: %s", rec.Result)
		}
	}
	if rec, called := w.serve("k", "POST", 500, server.WithoutStoredAnswer()); called || rec.Code != http.StatusConflict {
		t.Errorf("called %v, %d %s", called, rec.Code, rec.Body)
	}
	_, err = w.run(idem.Intent{Scope: "jobs", ID: "j"}, nil)
	wantExecuted(t, err)
}

// TestReplayAtHead: the answer to HEAD has no body, and keeps the length that
// it tells of.
func TestReplayAtHead(t *testing.T) {
	w := newWorld(t)
	_, _ = w.serve("k", "HEAD", 500)
	w.must("resolve", "-half=server", "-scope=single-tenant", "-key=k", "-yes", "-done", w.file("HTTP/1.1 200 OK\r\nContent-Length: 14\r\n\r\n"))
	rec, called := w.serve("k", "HEAD", 500)
	if called || rec.Code != 200 || rec.Body.Len() != 0 || rec.Header().Get("Content-Length") != "14" {
		t.Errorf("called %v, %d %v", called, rec.Code, rec.Header())
	}
}
