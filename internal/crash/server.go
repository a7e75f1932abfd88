package crash

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/keystore/mysqlstore"
	"github.com/idem-go/idem/keystore/pgstore"
	"github.com/idem-go/idem/keystore/sqlitestore"
	"github.com/idem-go/idem/server"
)

// lease is how long a dead owner keeps its records. A server that stalls for
// longer between its last look at its claim and its effect may have the effect
// after the world was asked whether it had: so it must be long beside that.
const lease = 1500 * time.Millisecond

// answer is what an order is answered: its ID, and the number of its effect.
type answer struct {
	ID     string
	Effect int
}

// declined tells whether an order is refused.
func declined(id string) bool { return strings.HasSuffix(id, "9") }

// orders is the service behind the server half.
type orders struct {
	mode   server.Effects
	world  world
	paused *pausing // nil: nowhere
}

// serveOrders is the main function of a server's process.
func serveOrders(ctx context.Context, addr, storeURL, ledgerURL, name, mode string, paused *pausing) error {
	store, err := openStore(ctx, storeURL)
	if err != nil {
		return err
	}
	o := &orders{modes[mode], world{ledgerURL, name}, paused}
	cfg := server.Config{
		Store: store.Store, Effects: o.mode, Scope: server.SingleTenant,
		Lease: lease, MaxRun: 5 * time.Second, Wait: time.Second, Recover: o.recover,
	}
	if paused != nil {
		paused.configure(&cfg)
	}
	srv, err := server.New(cfg)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("POST /orders/{id}", srv.Handler(o))
	mux.HandleFunc("POST /reconcile", func(w http.ResponseWriter, r *http.Request) {
		n, err := srv.Reconcile(r.Context())
		fmt.Fprintln(w, n, err)
	})
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	return http.Serve(listener, mux)
}

// ServeHTTP places an order, with time to be killed between any two steps.
func (o *orders) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	id := r.PathValue("id")
	if declined(id) {
		http.Error(w, "declined", http.StatusPaymentRequired)
		return
	}
	ctx := r.Context()
	dawdle()
	o.paused.at(ctx, "claimed")
	if err := server.BeginEffect(ctx); err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	o.paused.at(ctx, "begun")
	effect, err := o.effect(ctx, id)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	o.paused.at(ctx, "effect")
	dawdle()
	_ = json.NewEncoder(w).Encode(answer{id, effect})
}

// dawdle takes a moment.
func dawdle() { <-time.After(rand.N(10 * time.Millisecond)) }

// effect has the order's effect: in the ledger, or with Transaction in the
// store's own database.
func (o *orders) effect(ctx context.Context, id string) (int, error) {
	method := http.MethodPost
	switch o.mode {
	case server.Transaction:
		return o.insert(ctx, id)
	case server.Idempotent:
		method = http.MethodPut // it may be had again
	}
	effects, err := o.world.ask(ctx, method, id)
	if err != nil || len(effects) == 0 {
		return 0, fmt.Errorf("no effect: %w", err)
	}
	return effects[len(effects)-1], nil
}

// insert inserts a row in the transaction of the record.
func (o *orders) insert(ctx context.Context, id string) (n int, err error) {
	if tx, ok := pgstore.TxFrom(ctx); ok {
		err = tx.QueryRow(ctx, `INSERT INTO effects (intent) VALUES ($1) RETURNING id`, id).Scan(&n)
		return n, err
	}
	tx, ok := sqlitestore.TxFrom(ctx)
	if !ok {
		tx, ok = mysqlstore.TxFrom(ctx)
	}
	if !ok {
		return 0, fmt.Errorf("no transaction in the context")
	}
	res, err := tx.ExecContext(ctx, `INSERT INTO effects (intent) VALUES (?)`, id)
	if err != nil {
		return 0, err
	}
	last, err := res.LastInsertId()
	return int(last), err
}

// recover asks the world what became of an order.
func (o *orders) recover(ctx context.Context, p idem.Pending) (idem.Resolution, error) {
	id := strings.TrimPrefix(p.Path, "/orders/")
	effects, err := o.world.ask(ctx, http.MethodGet, id)
	switch {
	case err != nil:
		return idem.Resolution{}, err
	case len(effects) == 0:
		return idem.Resolution{Outcome: idem.OutcomeNotExecuted}, nil
	}
	body, err := json.Marshal(answer{id, effects[0]})
	return idem.Resolution{Outcome: idem.OutcomeExecuted, Status: http.StatusOK, Body: body}, err
}
