package main

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/keystore/pgstore"
	"github.com/idem-go/idem/server"
)

// order is what a customer asks for.
type order struct {
	Article  string
	Quantity int
}

// shop takes orders. What it does to the database happens in the transaction in
// which the record of the request's key is written.
type shop struct {
	pool *pgxpool.Pool
	// beforeCommit lets a scene break something there.
	beforeCommit func(context.Context, pgx.Tx)
}

// newShop returns the handler of a shop with five chairs, and the server half
// in front of it.
func newShop(ctx context.Context, pool *pgxpool.Pool) (*shop, *server.Server, error) {
	_, err := pool.Exec(ctx, `
		CREATE TABLE stock (article text PRIMARY KEY, pieces int NOT NULL CHECK (pieces >= 0));
		CREATE TABLE orders (id bigserial PRIMARY KEY, article text NOT NULL, quantity int NOT NULL);
		INSERT INTO stock VALUES ('chair', 5)`)
	if err != nil {
		return nil, nil, err
	}
	cfg := pgstore.Config{}
	if err := pgstore.Migrate(ctx, pool, cfg); err != nil {
		return nil, nil, err
	}
	store, err := pgstore.New(pool, cfg)
	if err != nil {
		return nil, nil, err
	}
	srv, err := server.New(server.Config{Store: store, Effects: server.Transaction, Scope: server.SingleTenant})
	return &shop{pool: pool}, srv, err
}

// ServeHTTP takes an order: the stock is lowered and the order written, or
// neither.
func (s *shop) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ctx := r.Context()
	tx, ok := pgstore.TxFrom(ctx)
	if !ok {
		http.Error(w, "this route has no transaction", http.StatusInternalServerError)
		return
	}
	var o order
	if err := json.NewDecoder(r.Body).Decode(&o); err != nil || o.Quantity < 1 {
		http.Error(w, "an order has an article and a quantity", http.StatusBadRequest)
		return
	}
	left, err := tx.Exec(ctx, `UPDATE stock SET pieces = pieces - $2 WHERE article = $1 AND pieces >= $2`, o.Article, o.Quantity)
	if err != nil {
		http.Error(w, "try again", http.StatusServiceUnavailable) // rolled back, and not recorded
		return
	}
	if left.RowsAffected() == 0 {
		http.Error(w, "out of stock", http.StatusUnprocessableEntity) // a definite refusal: recorded
		return
	}
	var id int64
	if err := tx.QueryRow(ctx, `INSERT INTO orders (article, quantity) VALUES ($1, $2) RETURNING id`, o.Article, o.Quantity).Scan(&id); err != nil {
		http.Error(w, "try again", http.StatusServiceUnavailable)
		return
	}
	if s.beforeCommit != nil {
		s.beforeCommit(ctx, tx)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	_ = json.NewEncoder(w).Encode(map[string]int64{"order": id})
}
