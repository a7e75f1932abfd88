package server_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"net/http"
	"os"
	"path/filepath"

	_ "modernc.org/sqlite"

	"github.com/idem-go/idem/keystore/sqlitestore"
	"github.com/idem-go/idem/server"
)

// The charge is a row in the application's own table, and is committed together
// with the record of its key.
func ExampleServer_transaction() {
	dir, err := os.MkdirTemp("", "idem")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	db, err := sql.Open("sqlite", filepath.Join(dir, "shop.db"))
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec("CREATE TABLE charges (cents INTEGER)"); err != nil {
		log.Fatal(err)
	}
	ctx, cfg := context.Background(), sqlitestore.Config{}
	if err := sqlitestore.Migrate(ctx, db, cfg); err != nil {
		log.Fatal(err)
	}
	store, err := sqlitestore.New(db, cfg)
	if err != nil {
		log.Fatal(err)
	}
	srv, err := server.New(server.Config{Store: store, Effects: server.Transaction, Scope: server.SingleTenant})
	if err != nil {
		log.Fatal(err)
	}
	defer srv.Shutdown(ctx)

	crash := true
	charge := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		tx, _ := sqlitestore.TxFrom(r.Context())
		if _, err := tx.ExecContext(r.Context(), "INSERT INTO charges VALUES (500)"); err != nil {
			http.Error(w, "try again", http.StatusServiceUnavailable)
			return
		}
		if crash { // after the effect: it is rolled back
			panic(http.ErrAbortHandler)
		}
		w.WriteHeader(http.StatusCreated)
	})
	h := survive(srv.Handler(charge))
	send(h, "order-1", `{"cents":500}`)
	crash = false
	send(h, "order-1", `{"cents":500}`)
	send(h, "order-1", `{"cents":500}`)

	var charges int
	if err := db.QueryRow("SELECT count(*) FROM charges").Scan(&charges); err != nil {
		log.Fatal(err)
	}
	fmt.Println("charges:", charges)
	// Output:
	// 500 replayed: ""
	// 201 replayed: "false"
	// 201 replayed: "true"
	// charges: 1
}
