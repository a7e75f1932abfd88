package idem_test

import (
	"context"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/idem-go/idem"
)

// BenchmarkTransport is what the client half adds to a request, on a base that
// answers at once: compare with the first line.
func BenchmarkTransport(b *testing.B) {
	const body = `{"amount":4200,"currency":"eur"}`
	base := roundTripper(func(req *http.Request) (*http.Response, error) {
		_, _ = io.Copy(io.Discard, req.Body)
		return &http.Response{StatusCode: 201, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body)), Request: req}, nil
	})
	send := func(b *testing.B, rt http.RoundTripper, ctx func(n int) context.Context) {
		b.ReportAllocs()
		n := 0
		for b.Loop() {
			n++
			req, err := http.NewRequestWithContext(ctx(n), "POST", "http://example.com/", strings.NewReader(body))
			if err != nil {
				b.Fatal(err)
			}
			req.Header.Set("Content-Type", "application/json")
			resp, err := rt.RoundTrip(req)
			if err != nil {
				b.Fatal(err)
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
		}
	}
	plain := func(int) context.Context { return b.Context() }
	named := func(n int) context.Context {
		return idem.WithIntent(b.Context(), idem.Intent{Scope: "s", ID: strconv.Itoa(n)})
	}
	b.Run("bare", func(b *testing.B) { send(b, base, plain) })
	b.Run("random key", func(b *testing.B) { send(b, newClient(b, idem.Config{}).Transport(base), plain) })
	b.Run("intent", func(b *testing.B) { send(b, newClient(b, idem.Config{}).Transport(base), named) })
	b.Run("intent, memory store", func(b *testing.B) {
		send(b, newClient(b, idem.Config{Store: newStore(b)}).Transport(base), named)
	})
	b.Run("replay, memory store", func(b *testing.B) {
		send(b, newClient(b, idem.Config{Store: newStore(b)}).Transport(base), func(int) context.Context { return named(1) })
	})
}

// BenchmarkDo is what Do adds to a function.
func BenchmarkDo(b *testing.B) {
	call := func(context.Context, idem.Key) (receipt, error) { return receipt{"ch_1"}, nil }
	do := func(b *testing.B, c *idem.Client, id func(n int) string) {
		b.ReportAllocs()
		n := 0
		for b.Loop() {
			n++
			if _, err := idem.Do(b.Context(), c, idem.Intent{Scope: "s", ID: id(n), Payload: order{"o1", 42}}, call); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.Run("no store", func(b *testing.B) { do(b, newClient(b, idem.Config{}), strconv.Itoa) })
	b.Run("memory store", func(b *testing.B) { do(b, newClient(b, idem.Config{Store: newStore(b)}), strconv.Itoa) })
	b.Run("replay, memory store", func(b *testing.B) {
		do(b, newClient(b, idem.Config{Store: newStore(b)}), func(int) string { return "1" })
	})
}
