package main

import (
	"context"
	"crypto/rand"
	"errors"
	"strconv"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/keystore/pgstore"
	"github.com/idem-go/idem/server"
)

const bareTransaction = "the business transaction alone"

// pgTransactions is an effect in the store's own database, by itself and
// committed together with its record.
func pgTransactions() []group {
	return []group{{name: "pgstore, transaction mode", servers: true, slow: true, contenders: []contender{
		floorFsync, floorRoundTrip,
		{name: bareTransaction, open: func(s *stage) (func(int) error, error) {
			pool, pay, err := orders(s)
			return func(n int) error {
				return pgx.BeginFunc(s, pool, func(tx pgx.Tx) error { return pay(s, tx, n) })
			}, err
		}},
		{name: "idem, server.Run", open: inTransaction, checks: []check{ratio(bareTransaction).within(1.5)}},
	}}}
}

var errNoTx = errors.New("the function has no transaction")

// inTransaction is the same effect under an intent.
func inTransaction(s *stage) (func(int) error, error) {
	pool, pay, err := orders(s)
	if err != nil {
		return nil, err
	}
	store, _, err := newPgStore(s, pool, pgstore.Config{})
	if err != nil {
		return nil, err
	}
	srv, err := server.New(server.Config{Store: store, Effects: server.Transaction, Scope: server.SingleTenant})
	if err != nil {
		return nil, err
	}
	s.onEnd(func() { _ = srv.Shutdown(context.Background()) })
	return func(n int) error {
		_, err := server.Run(s, srv, idem.Intent{Scope: "bench", ID: strconv.Itoa(n)}, func(ctx context.Context) (string, error) {
			tx, ok := pgstore.TxFrom(ctx)
			if !ok {
				return "", errNoTx
			}
			return receipt, pay(ctx, tx, n)
		})
		return err
	}, nil
}

// orders is a table of a business, and what happens in it.
func orders(s *stage) (*pgxpool.Pool, func(context.Context, pgx.Tx, int) error, error) {
	pool, err := newPool(s, 4, false)
	if err != nil {
		return nil, nil, err
	}
	name := "orders_" + rand.Text()
	table := pgx.Identifier{name}.Sanitize()
	if _, err := pool.Exec(s, "CREATE TABLE "+table+" (id bigint PRIMARY KEY, cents bigint NOT NULL)"); err != nil {
		return nil, nil, err
	}
	dropAtEnd(s, pool, name)
	insert := "INSERT INTO " + table + " (id, cents) VALUES ($1, 4200)"
	return pool, func(ctx context.Context, tx pgx.Tx, n int) error {
		_, err := tx.Exec(ctx, insert, n)
		return err
	}, nil
}
