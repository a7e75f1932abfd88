package server_test

import (
	"context"
	"io"
	"net/http"
	"strconv"
	"testing"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/server"
)

// BenchmarkHandler is what the server half adds to a handler: compare with the
// first line.
func BenchmarkHandler(b *testing.B) {
	const body = `{"amount":4200,"currency":"eur"}`
	bare := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, body)
	})
	run := func(b *testing.B, h http.Handler, key func(n int) string) {
		b.ReportAllocs()
		n := 0
		for b.Loop() {
			n++
			if w := post(h, key(n), body); w.Code != http.StatusCreated {
				b.Fatal(w.Code)
			}
		}
	}
	one := func(int) string { return "k" }
	b.Run("bare", func(b *testing.B) { run(b, bare, one) })
	for _, effects := range []server.Effects{server.Opaque, server.Marked} {
		b.Run("first request, "+effects.String(), func(b *testing.B) {
			run(b, newServer(b, server.Config{Effects: effects}).Handler(bare), strconv.Itoa)
		})
	}
	b.Run("replay", func(b *testing.B) { run(b, newServer(b, server.Config{}).Handler(bare), one) })
	b.Run("mismatch", func(b *testing.B) {
		h := newServer(b, server.Config{}).Handler(bare)
		post(h, "k", body)
		b.ReportAllocs()
		for b.Loop() {
			if w := post(h, "k", "{}"); w.Code != http.StatusUnprocessableEntity {
				b.Fatal(w.Code)
			}
		}
	})
}

// BenchmarkRun is what Run adds to a function.
func BenchmarkRun(b *testing.B) {
	call := func(context.Context) (int, error) { return 7, nil }
	for name, id := range map[string]func(int) string{"first call": strconv.Itoa, "replay": func(int) string { return "1" }} {
		b.Run(name, func(b *testing.B) {
			s := newServer(b, server.Config{})
			b.ReportAllocs()
			n := 0
			for b.Loop() {
				n++
				if _, err := server.Run(b.Context(), s, idem.Intent{Scope: "q", ID: id(n)}, call); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
