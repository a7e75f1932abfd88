package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// TestProbeUsage: what is wrong with a call is told with exit code 2, and
// nothing is sent.
func TestProbeUsage(t *testing.T) {
	var asked atomic.Int32
	srv := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	defer srv.Close()
	big := filepath.Join(t.TempDir(), "big")
	if err := os.WriteFile(big, make([]byte, maxProbeBody+1), 0o600); err != nil {
		t.Fatal(err)
	}
	body := []string{"-body", chargeBody}
	for _, tt := range []struct {
		args []string
		says string
	}{
		{append(body, consent), "no URL is named"},
		{append(body, consent, srv.URL, srv.URL), "2 URLs are named"},
		{append(body, consent, "ftp://h/"), "not one of http or https"},
		{append(body, consent, "charges"), "not one of http or https"},
		{append(body, consent, "http://"), "not one of http or https"},
		{append(body, consent, "http://u:s3cret@h:port/"), "not one of http or https"},
		{append(body, srv.URL), "nothing was sent: this would send up to 15 requests, POST " + srv.URL + ": the same one again"},
		{append(body, srv.URL), "set -" + consentFlag},
		{append(body, consent, srv.URL, "-timeout", "0s"), "-timeout"},
		{append(body, consent, srv.URL, "-method", "A B"), "-method"},
		{append(body, consent, srv.URL, "-method", ""), "-method"},
		{append(body, consent, srv.URL, "-key-header", "a b"), "-key-header"},
		{append(body, consent, srv.URL, "-key-header", "K", "-key-field", "k"), "both set"},
		{append(body, consent, srv.URL, "-key-field", "amount"), "has a member amount"},
		{append(body, consent, srv.URL, "-key-field", "input.key"), "input is no JSON object"},
		{append(body, consent, srv.URL, "-header", "s3cret"), "-header: number 1 is not NAME: VALUE"},
		{append(body, consent, srv.URL, "-header", "A: b", "-header", "X: s3cret\r\nY: z"), "-header: number 2"},
		{append(body, consent, srv.URL, "-header", "idempotency-key: s3cret"), "Idempotency-Key is for the keys"},
		{append(body, consent, srv.URL, "-body-file", big), "both set"},
		{[]string{consent, srv.URL, "-body-file", big}, "it has 1048577 bytes"},
		{[]string{consent, srv.URL, "-body-file", filepath.Dir(big)}, "no regular file"},
		{[]string{consent, srv.URL, "-body-file", big + "s"}, "-body-file"},
		{[]string{consent, srv.URL}, "give another one by -other-body"},
		{[]string{consent, srv.URL, "-body", "{}"}, "give another one by -other-body"},
		{[]string{consent, srv.URL, "-body", "a=1"}, "give another one by -other-body"},
		{[]string{consent, srv.URL, "-body", "a=1", "-other-body", "a=1"}, "-other-body is the body"},
		{[]string{consent, srv.URL, "-body", "a=1", "-other-body", "a=2", "-key-field", "k"}, "no JSON object"},
		{append(body, consent, srv.URL, "-store", "sqlite:x"), "not defined: -store"},
	} {
		got := idemWith(t, nil, append([]string{"probe"}, tt.args...)...)
		if got.code != exitUsage || !strings.Contains(got.errOut, tt.says) || got.out != "" || strings.Contains(got.errOut, "s3cret") {
			t.Errorf("idem probe %q: %+v, want exit 2 and %q", tt.args, got, tt.says)
		}
	}
	if n := asked.Load(); n != 0 {
		t.Errorf("%d requests were sent", n)
	}
}

func TestProbeHelp(t *testing.T) {
	for _, args := range []string{"help probe", "probe -h"} {
		got := idemWith(t, nil, strings.Fields(args)...)
		if got.code != exitOK || !strings.Contains(got.out, "15 requests at most") || !strings.Contains(got.out, consentFlag) || strings.Contains(got.out, "-store") {
			t.Errorf("idem %s: %+v", args, got)
		}
	}
}

// TestProbeFails: where an answer is missing the probe ends there, says so with
// exit code 1, and tells of nothing that it has not seen.
func TestProbeFails(t *testing.T) {
	f := &fakeEndpoint{header: "Idempotency-Key", answer: numbered(201, `{"id":%d}`), records: map[string]*fakeRecord{}}
	until := make(chan struct{})
	var elsewhere atomic.Int32
	target := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { elsewhere.Add(1) }))
	defer target.Close()
	drop := func(w http.ResponseWriter) {
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		_ = conn.Close()
	}
	for name, tt := range map[string]struct {
		handle func(w http.ResponseWriter, r *http.Request, n int32)
		args   []string
		sent   int
		says   string
	}{
		"hangs": {func(http.ResponseWriter, *http.Request, int32) { <-until }, []string{"-timeout", "50ms"}, 1,
			"a first request: no whole answer within 50ms; whether that request was carried out is not known"},
		"hangs in its body": {func(w http.ResponseWriter, _ *http.Request, _ int32) {
			w.WriteHeader(201)
			_ = http.NewResponseController(w).Flush()
			<-until
		}, []string{"-timeout", "50ms"}, 1, "no whole answer within 50ms"},
		"drops the first": {func(w http.ResponseWriter, _ *http.Request, _ int32) { drop(w) }, nil, 1, "EOF"},
		"drops the third": {func(w http.ResponseWriter, r *http.Request, n int32) {
			if n == 3 {
				drop(w)
				return
			}
			f.ServeHTTP(w, r)
		}, nil, 3, "the first request again: EOF; whether that request was carried out is not known"},
		"drops one of five": {func(w http.ResponseWriter, r *http.Request, n int32) {
			if n == 14 {
				drop(w)
				return
			}
			f.ServeHTTP(w, r)
		}, nil, 14, "5 requests at once: EOF"},
		"10 MiB": {func(w http.ResponseWriter, _ *http.Request, _ int32) {
			w.WriteHeader(201)
			_, _ = w.Write(make([]byte, 10<<20))
		}, nil, 1, "longer than 1048576 bytes"},
		"redirects": {func(w http.ResponseWriter, r *http.Request, _ int32) {
			http.Redirect(w, r, strings.Replace(target.URL, "http://", "http://u:s3cret@", 1)+"/s3cret?k=s3cret", http.StatusTemporaryRedirect)
		}, nil, 1, "a first request was answered with 307, which is not followed; ask the URL that it leads to, on " + target.URL},
		"refuses": {func(w http.ResponseWriter, _ *http.Request, _ int32) { write(w, fakeReply{401, `{"code":"no_token"}`}) }, nil, 1,
			"a first request was answered with 401 no_token, so that nothing else was asked"},
		"refuses both spellings": {func(w http.ResponseWriter, _ *http.Request, _ int32) { write(w, fakeReply{400, `{}`}) }, nil, 2,
			"a first request was answered with 400, so that nothing else was asked"},
	} {
		t.Run(name, func(t *testing.T) {
			var n atomic.Int32
			h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				tt.handle(w, r, n.Add(1))
			})
			if name == "hangs" || name == "hangs in its body" {
				until = make(chan struct{})
				h = releasing(h, until)
			}
			got := probeAt(t, h, nil, append(tt.args, "-body", chargeBody, "-json")...)
			if got.code != exitFailed || !strings.Contains(got.errOut, tt.says) || strings.Contains(got.out+got.errOut, "s3cret") {
				t.Errorf("exit %d, %s, want %q", got.code, got.errOut, tt.says)
			}
			if got.report.Complete || got.report.Requests != tt.sent || int(n.Load()) != tt.sent || len(got.report.Resembles) != 0 {
				t.Errorf("%d requests came: %+v", n.Load(), got.report)
			}
			for _, pt := range got.report.Points {
				if tt.sent < 14 && (pt.Verdict != cannotTell || pt.Seen != "not asked") || slices.Contains([]string{"at-once", "in-flight"}, pt.Name) && pt.Seen != "not asked" {
					t.Errorf("%+v", pt)
				}
			}
		})
	}
	if elsewhere.Load() != 0 {
		t.Error("a redirect was followed")
	}
}

// releasing ends what hangs when the client is gone.
func releasing(h http.Handler, until chan struct{}) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		stop := context.AfterFunc(r.Context(), func() { close(until) })
		defer stop()
		h.ServeHTTP(w, r)
	}
}

// TestProbeDown: nobody listens there.
func TestProbeDown(t *testing.T) {
	srv := httptest.NewServer(http.NotFoundHandler())
	srv.Close()
	got := idemWith(t, nil, "probe", strings.Replace(srv.URL, "http://", "http://u:s3cret@", 1), consent, "-body", chargeBody)
	if got.code != exitFailed || !strings.Contains(got.errOut, "connection refused") || strings.Contains(got.out+got.errOut, "s3cret") ||
		!strings.Contains(got.out, "cannot tell whether it honours the key in its header Idempotency-Key; not everything was asked") {
		t.Errorf("%+v", got)
	}
}

// TestProbeInterrupted: it ends with its context.
func TestProbeInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	h := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		cancel()
		<-r.Context().Done()
	})
	srv := httptest.NewServer(h)
	defer srv.Close()
	var errOut strings.Builder
	code := runUntil(ctx, []string{"probe", srv.URL, consent, "-body", chargeBody}, nil, io.Discard, &errOut)
	if code != exitFailed || !strings.Contains(errOut.String(), "it was interrupted") {
		t.Errorf("exit %d, %s", code, errOut.String())
	}
}

// TestProbeSecrets: what headers and the URL hold is sent, and never printed,
// even where the endpoint says it again.
func TestProbeSecrets(t *testing.T) {
	f := &fakeEndpoint{header: "Idempotency-Key", answer: numbered(201, `{"s3cret-t0ken":%d,"id":1}`), records: map[string]*fakeRecord{},
		missing: fakeReply{400, `{"code":"Bearer s3cret-t0ken","type":"s3cret-user","error":"s3cret-password","name":"s3cret-query"}`}}
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, password, _ := r.BasicAuth()
		if r.Header.Get("X-Token") != "Bearer s3cret-t0ken" || user != "s3cret-user" || password != "s3cret-password" || r.URL.Query().Get("k") != "s3cret-query" ||
			r.Host != "s3cret.test" {
			write(w, fakeReply{401, `{}`})
			return
		}
		w.Header().Set("Location", "/s3cret-t0ken")
		f.ServeHTTP(w, r)
	})
	srv := httptest.NewServer(h)
	defer srv.Close()
	for _, format := range []string{"-json=false", "-json"} {
		got := idemWith(t, nil, "probe", strings.Replace(srv.URL, "http://", "http://s3cret-user:s3cret-password@", 1)+"/charges?k=s3cret-query#s3cret",
			consent, "-body", chargeBody, "-header", "X-Token: Bearer s3cret-t0ken", "-header", "Host: s3cret.test", format)
		if got.code != exitOK || !strings.Contains(got.out, "400 ***") || strings.Contains(got.out+got.errOut, "s3cret") {
			t.Errorf("%+v", got)
		}
	}
}

// TestProbeRequest: what is sent is what the flags say.
func TestProbeRequest(t *testing.T) {
	path := filepath.Join(t.TempDir(), "body")
	if err := os.WriteFile(path, []byte("amount=1"), 0o600); err != nil {
		t.Fatal(err)
	}
	var bodies, keys, lines []string
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if len(bodies) < 5 {
			bodies, keys = append(bodies, string(body)), append(keys, strings.Join(r.Header.Values("X-Key"), "|"))
			lines = append(lines, r.Method+" "+r.Proto+" "+r.Header.Get("Content-Type")+" "+strings.Join(r.Header.Values("A"), "|"))
			write(w, fakeReply{201, `{"id":1}`})
			return
		}
		write(w, fakeReply{500, ``}) // of the last ones the order is not certain
	})
	probeAt(t, h, nil, "-method", "PATCH", "-body-file", path, "-other-body", "amount=2", "-key-header", "X-Key",
		"-header", "A: 1", "-header", "A: 2", "-header", "Content-Type: application/x-www-form-urlencoded")
	if want := []string{"amount=1", "amount=1", "amount=1", "amount=1", "amount=2"}; !slices.Equal(bodies, want) {
		t.Errorf("bodies %q, want %q", bodies, want)
	}
	if len(keys) != 5 || len(keys[0]) != 36 || keys[1] == keys[0] || keys[2] != keys[0] || keys[3] != `"`+keys[0]+`"` || keys[4] != keys[0] {
		t.Errorf("keys %q", keys)
	}
	for _, line := range lines {
		if line != "PATCH HTTP/1.1 application/x-www-form-urlencoded 1|2" {
			t.Errorf("%q", line)
		}
	}
}

func TestOtherBody(t *testing.T) {
	for body, want := range map[string]string{
		`{"a":"x","b":{"n":[ 9 ]}}`: `{"a":"x","b":{"n":[ 10 ]}}`,
		`{"n":9007199254740993}`:    `{"n":9007199254740994}`,
		`{"n":1.50}`:                `{"n":2.50}`,
		`{"n":-1}`:                  `{"n":0}`,
		`{"n":-1.5}`:                `{"n":1}`,
		`{"n":1e2}`:                 `{"n":1}`,
		`{"a":"","b":"q\"","c":1.}`: ``, // no JSON
		`{"a":"","b":"q\""}`:        `{"a":"","b":"q\"x"}`,
		`{"a":null,"b":[true,{}]}`:  ``,
		`7`:                         `8`,
		``:                          ``,
	} {
		if got, _ := otherBody([]byte(body)); string(got) != want {
			t.Errorf("otherBody(%s) = %s, want %s", body, got, want)
		}
	}
}

// TestProbeSender: every request has a connection of its own, as net/http sends
// again by itself on used ones, and there is an end to them.
func TestProbeSender(t *testing.T) {
	var conns atomic.Int32
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	srv.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			conns.Add(1)
		}
	}
	srv.Start()
	defer srv.Close()
	target, err := (&probeOptions{method: "POST", body: "1", timeout: time.Minute}).target([]string{srv.URL})
	if err != nil {
		t.Fatal(err)
	}
	s := newProbeSender(t.Context(), target)
	defer s.close()
	for range maxProbes {
		if _, err := s.send(target.body, probeKey{text: "k"}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.send(target.body, probeKey{text: "k"}); err == nil || conns.Load() != maxProbes || s.sent() != maxProbes {
		t.Errorf("%v after %d requests on %d connections", err, s.sent(), conns.Load())
	}
}
