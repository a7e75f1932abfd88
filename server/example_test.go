package server_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/keystore/memstore"
	"github.com/idem-go/idem/server"
)

// send posts an order under a key, as a client would.
func send(h http.Handler, key, body string) {
	r := httptest.NewRequest("POST", "/charges", strings.NewReader(body))
	r.Header.Set("Idempotency-Key", key)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	fmt.Printf("%d replayed: %q\n", w.Code, w.Header().Get("Idempotent-Replayed"))
}

func ExampleServer_Handler() {
	store, _ := memstore.New(memstore.Config{})
	srv, err := server.New(server.Config{
		Store:   store,
		Effects: server.Opaque,
		Scope:   func(r *http.Request) (string, error) { return "user 7", nil }, // from the session
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	charge := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Println("charged")
		w.WriteHeader(http.StatusCreated)
	})
	mux := http.NewServeMux()
	mux.Handle("POST /charges", srv.Handler(charge))

	send(mux, "order-1", `{"cents":500}`)
	send(mux, "order-1", `{"cents":500}`)
	send(mux, "order-1", `{"cents":900}`)
	_ = srv.Shutdown(context.Background())
	// Output:
	// charged
	// 201 replayed: "false"
	// 201 replayed: "true"
	// 422 replayed: ""
}

func ExampleNew() {
	store, _ := memstore.New(memstore.Config{})
	_, err := server.New(server.Config{Store: store, Scope: server.SingleTenant})
	fmt.Println(err)
	// Output:
	// idem: invalid config: Effects is not set; declare what may be run again after a failure:
	// 	server.Opaque       nothing, unless the code says that nothing happened
	// 	server.Marked       what failed before it called server.BeginEffect
	// 	server.Idempotent   everything; the code hands a derived key downstream
	// 	server.Transaction  everything; effect and record share a transaction
}

func ExampleRun() {
	store, _ := memstore.New(memstore.Config{})
	srv, _ := server.New(server.Config{Store: store, Effects: server.Opaque, Scope: server.SingleTenant})
	defer srv.Shutdown(context.Background())

	// The queue delivers the message twice.
	message := idem.Intent{Scope: "orders queue", ID: "message 81", Payload: "ship order 7"}
	for range 2 {
		tracking, err := server.Run(context.Background(), srv, message, func(context.Context) (string, error) {
			fmt.Println("shipped")
			return "TRK-1", nil
		})
		fmt.Println(tracking, err)
	}
	// Output:
	// shipped
	// TRK-1 <nil>
	// TRK-1 <nil>
}

func ExampleRunResult() {
	store, _ := memstore.New(memstore.Config{})
	srv, _ := server.New(server.Config{Store: store, Effects: server.Opaque, Scope: server.SingleTenant})
	defer srv.Shutdown(context.Background())

	message := idem.Intent{Scope: "orders queue", ID: "message 81"}
	for range 2 {
		res, _ := server.RunResult(context.Background(), srv, message, func(context.Context) (int, error) { return 42, nil })
		fmt.Println(res.Value, res.Source, res.Outcome)
	}
	// Output:
	// 42 executed executed
	// 42 replayed executed
}

func ExampleBeginEffect() {
	store, _ := memstore.New(memstore.Config{})
	srv, _ := server.New(server.Config{Store: store, Effects: server.Marked, Scope: server.SingleTenant})
	defer srv.Shutdown(context.Background())

	limits := errors.New("the limits service is down")
	charge := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if limits != nil { // a failure before the effect: the key is free again
			http.Error(w, limits.Error(), http.StatusServiceUnavailable)
			return
		}
		if err := server.BeginEffect(r.Context()); err != nil {
			http.Error(w, "not done", http.StatusServiceUnavailable)
			return
		}
		fmt.Println("charged, then crashed")
		panic(http.ErrAbortHandler) // a failure after it: nobody knows
	})
	h := survive(srv.Handler(charge))
	send(h, "order-1", "{}")
	limits = nil
	send(h, "order-1", "{}")
	send(h, "order-1", "{}")
	// Output:
	// 503 replayed: ""
	// charged, then crashed
	// 500 replayed: ""
	// 409 replayed: ""
}

// survive is the usual middleware that recovers panics.
func survive(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			if recover() != nil {
				w.WriteHeader(http.StatusInternalServerError)
			}
		}()
		next.ServeHTTP(w, r)
	})
}

func ExampleMarkNotExecuted() {
	store, _ := memstore.New(memstore.Config{})
	srv, _ := server.New(server.Config{Store: store, Effects: server.Opaque, Scope: server.SingleTenant})
	defer srv.Shutdown(context.Background())

	full := true
	h := srv.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if full {
			server.MarkNotExecuted(r.Context())
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		w.WriteHeader(http.StatusCreated)
	}))
	send(h, "order-1", "{}")
	full = false
	send(h, "order-1", "{}")
	// Output:
	// 503 replayed: ""
	// 201 replayed: "false"
}

func ExampleServer_Shutdown() {
	store, _ := memstore.New(memstore.Config{})
	srv, _ := server.New(server.Config{Store: store, Effects: server.Opaque, Scope: server.SingleTenant})
	h := srv.Handler(http.NotFoundHandler())

	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	fmt.Println(srv.Shutdown(ctx)) // after http.Server.Shutdown
	send(h, "order-1", "{}")
	// Output:
	// <nil>
	// 503 replayed: ""
}
