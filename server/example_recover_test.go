package server_test

import (
	"context"
	"fmt"
	"net/http"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/keystore"
	"github.com/idem-go/idem/keystore/memstore"
	"github.com/idem-go/idem/server"
)

// A charge was made, and then its process died, or failed in a way that leaves
// nobody knowing. The books know.
func ExampleServer_Reconcile() {
	store, _ := memstore.New(memstore.Config{})
	books := map[string]string{"order-1": "charge 71"}
	srv, err := server.New(server.Config{
		Store: store, Effects: server.Marked, Scope: server.SingleTenant,
		Recover: func(ctx context.Context, p server.Pending) (server.Resolution, error) {
			charge, found := books[string(p.Key)]
			if !found {
				return server.Resolution{Outcome: idem.OutcomeNotExecuted}, nil
			}
			return server.Resolution{Outcome: idem.OutcomeExecuted, Status: http.StatusCreated, Body: []byte(charge)}, nil
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	charge := srv.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := server.BeginEffect(r.Context()); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		http.Error(w, "the processor hung up", http.StatusBadGateway)
	}))
	send(charge, "order-1", `{"cents":500}`)

	unresolved, _ := store.Records(context.Background(), keystore.Query{Unresolved: true})
	fmt.Println("unresolved:", len(unresolved))
	settled, err := srv.Reconcile(context.Background())
	fmt.Println("settled:", settled, err)
	send(charge, "order-1", `{"cents":500}`)
	_ = srv.Shutdown(context.Background())
	// Output:
	// 502 replayed: ""
	// unresolved: 1
	// settled: 1 <nil>
	// 201 replayed: "true"
}

func ExampleServer_Check() {
	store, _ := memstore.New(memstore.Config{})
	client, err := idem.New(idem.Config{Store: store, Scope: "shop"}) // sends a key for up to a day
	if err != nil {
		fmt.Println(err)
		return
	}
	srv, err := server.New(server.Config{Store: store, Effects: server.Marked, Scope: server.SingleTenant, Retention: 3600e9})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(srv.Check(client))
	// Output:
	// idem: invalid config: Retention is 1h0m0s, and the client may send a key for 24h0m0s after its first send; make it longer, or the client's Contract.Retention shorter
}
