package idem_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/idem-go/idem"
)

// B075, B076: those who share in one call get responses of their own.
func TestWireJoinersIndependent(t *testing.T) {
	const callers = 50
	pattern := make([]byte, 64_000)
	for i := range pattern {
		pattern[i] = byte(i * 7 >> 3)
	}
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		base, n := wireSteps(func(req *http.Request) (*http.Response, error) {
			<-release
			return wireAnswer(req, 200, string(pattern), "X-Reply: yes"), nil
		})
		w := wireClient(t, idem.Config{Scope: "s"}, base)
		ctxs := make([]context.CancelFunc, callers)
		responses := make([]*http.Response, callers)
		var all sync.WaitGroup
		for i := range callers {
			var ctx context.Context
			ctx, ctxs[i] = context.WithCancel(t.Context())
			ctx = idem.WithIntent(ctx, idem.Intent{ID: "order-1"})
			req := wirePost(t, "http://c.example/").WithContext(ctx)
			all.Go(func() {
				resp, err := w.RoundTrip(req)
				if err != nil && i != 0 {
					t.Error(err)
				}
				responses[i] = resp
			})
			synctest.Wait()
		}
		ctxs[0]() // the one who started it leaves
		synctest.Wait()
		close(release)
		all.Wait()
		var sources [4]int
		for _, i := range rand.Perm(callers) {
			resp := responses[i]
			if i == 0 {
				if resp != nil {
					t.Error("the caller who left got a response")
				}
				continue
			}
			sources[idem.ReportOf(resp).Source]++
			if resp.Header.Get("X-Reply") != "yes" {
				t.Errorf("caller %d: header %v", i, resp.Header)
			}
			resp.Header.Del("X-Reply")
			got, err := io.ReadAll(io.LimitReader(resp.Body, int64(rand.IntN(2*len(pattern)))))
			if err != nil || !bytes.Equal(got, pattern[:len(got)]) {
				t.Errorf("caller %d: another body", i)
			}
			clear(got)
			resp.Body.Close()
		}
		if n.Load() != 1 || sources[idem.SourceJoined] != callers-1 {
			t.Errorf("%d requests, %d callers joined", n.Load(), sources[idem.SourceJoined])
		}
		for _, cancel := range ctxs {
			cancel()
		}
	})
}

func TestWireResponseParts(t *testing.T) {
	do := func(t *testing.T, method string, step wireStep) wireResult {
		srv := wireServe(t, step)
		req := wireRequestTo(t, method, srv.URL, "")
		req.Header.Set("Idempotency-Key", "k")
		return wireClient(t, idem.Config{}, wireBase(t)).do(t, req)
	}
	t.Run("HEAD", func(t *testing.T) {
		res := do(t, http.MethodHead, wireRaw("HTTP/1.1 200 OK\r\nContent-Length: 1234\r\n\r\n"))
		if res.body != "" || res.resp.ContentLength != 1234 {
			t.Errorf("%q, Content-Length %d: %v", res.body, res.resp.ContentLength, res.err)
		}
	})
	t.Run("204", func(t *testing.T) {
		if res := do(t, http.MethodPost, wireReply(204, "")); res.body != "" || res.resp.ContentLength != 0 || res.resp.StatusCode != 204 {
			t.Errorf("%q %+v: %v", res.body, res.resp, res.err)
		}
	})
	t.Run("gzip that net/http undoes", func(t *testing.T) {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		_, _ = io.WriteString(z, strings.Repeat("charged ", 1000))
		z.Close()
		res := do(t, http.MethodPost, wireReply(200, b.String(), "Content-Encoding: gzip"))
		if res.body != strings.Repeat("charged ", 1000) || res.resp.ContentLength != 8000 || !res.resp.Uncompressed || res.resp.Header.Get("Content-Encoding") != "" {
			t.Errorf("%d bytes, Content-Length %d, %v: %v", len(res.body), res.resp.ContentLength, res.resp.Header, res.err)
		}
	})
	t.Run("trailers, announced or not, read ahead or not", func(t *testing.T) {
		for _, method := range []string{http.MethodPost, http.MethodGet} {
			for _, announced := range []string{"", "Trailer: X-Sum\r\n"} {
				srv := wireServe(t, wireRaw("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n"+announced+"\r\n7\r\ncharged\r\n0\r\nX-Sum: 42\r\n\r\n"))
				res := wireClient(t, idem.Config{}, wireBase(t)).do(t, wireRequestTo(t, method, srv.URL, ""))
				if res.body != "charged" || res.resp.Trailer.Get("X-Sum") != "42" {
					t.Errorf("%s, %q: %q, trailer %v: %v", method, announced, res.body, res.resp.Trailer, res.err)
				}
			}
		}
	})
	t.Run("304 and 300, for who asked for them", func(t *testing.T) {
		for _, status := range []int{300, 304} {
			srv := wireServe(t, wireReply(status, ""))
			res := wireClient(t, idem.Config{}, wireBase(t)).do(t, wireRequestTo(t, http.MethodGet, srv.URL, ""))
			if res.resp == nil || res.resp.StatusCode != status || len(srv.requests()) != 1 {
				t.Errorf("%d: %v after %d requests", status, res.err, len(srv.requests()))
			}
		}
	})
	t.Run("early hints", func(t *testing.T) {
		res := do(t, http.MethodPost, wireThen(wireReply(103, "", "Link: </a>"), wireReply(201, "charged")))
		if res.body != "charged" || res.resp.StatusCode != 201 {
			t.Errorf("%d %q: %v", res.resp.StatusCode, res.body, res.err)
		}
	})
	t.Run("switching protocols", func(t *testing.T) {
		srv := wireServe(t, wireThen(func(c net.Conn) bool {
			fmt.Fprint(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
			return true
		}, func(c net.Conn) bool { _, _ = io.Copy(c, c); return false }))
		req := wireRequestTo(t, http.MethodGet, srv.URL, "")
		req.Header.Set("Connection", "Upgrade")
		req.Header.Set("Upgrade", "echo")
		resp, err := wireClient(t, idem.Config{}, wireBase(t)).RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		rw, ok := resp.Body.(io.ReadWriter)
		if !ok {
			t.Fatalf("the body is a %T", resp.Body)
		}
		_, _ = io.WriteString(rw, "ping")
		got := make([]byte, 4)
		if _, err := io.ReadFull(rw, got); err != nil || string(got) != "ping" {
			t.Errorf("%q, %v", got, err)
		}
	})
	t.Run("a base that returns nothing", func(t *testing.T) {
		res := wireClient(t, idem.Config{}, wireFunc(func(*http.Request) (*http.Response, error) { return nil, nil })).do(t, wirePost(t, "http://c.example/"))
		if res.outcome() != idem.OutcomeUnknown || res.err.Last == nil {
			t.Errorf("%v", res.err)
		}
	})
}
