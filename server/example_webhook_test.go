package server_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/idem-go/idem/keystore/memstore"
	"github.com/idem-go/idem/server"
)

// Webhooks are delivered again until they are answered, and now and then all
// the same. The event's ID names what is to happen once.
func ExampleJSONKey() {
	store, _ := memstore.New(memstore.Config{})
	srv, err := server.New(server.Config{
		Store:       store,
		Effects:     server.Marked,
		Scope:       func(*http.Request) (string, error) { return "stripe", nil }, // after its signature was checked
		Key:         server.JSONKey("id"),
		Fingerprint: server.KeyAlone,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	receive := srv.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		event, _ := io.ReadAll(r.Body)
		if err := server.BeginEffect(r.Context()); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Println("shipped for", string(event))
	}))
	for delivery := range 3 {
		body := fmt.Sprintf(`{"id":"evt_1","pending_webhooks":%d}`, 2-delivery)
		w := httptest.NewRecorder()
		receive.ServeHTTP(w, httptest.NewRequest("POST", "/webhooks", strings.NewReader(body)))
		fmt.Println(w.Code, "replayed:", w.Header().Get("Idempotent-Replayed"))
	}
	_ = srv.Shutdown(context.Background())
	// Output:
	// shipped for {"id":"evt_1","pending_webhooks":2}
	// 200 replayed: false
	// 200 replayed: true
	// 200 replayed: true
}
