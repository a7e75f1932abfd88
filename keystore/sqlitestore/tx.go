package sqlitestore

import (
	"context"
	"database/sql"
	"time"

	"github.com/idem-go/idem/internal/sqltable"
	"github.com/idem-go/idem/keystore"
)

// lockPatience is how long InTx waits for the database's one write lock.
const lockPatience = time.Second

type txKey struct{}

// TxFrom returns the transaction of the InTx that the context comes from, for
// the effect that is to be committed with its record.
func TxFrom(ctx context.Context) (*sql.Tx, bool) {
	tx, ok := ctx.Value(txKey{}).(*sql.Tx)
	return tx, ok
}

// InTx implements keystore.Transactor. The transaction holds the database's
// write lock from its start, so what it reads stays true until it commits, and
// everybody else's writes wait for its end. Where another transaction keeps
// the lock for longer than a second, fn runs in a transaction that can only
// read: a Claim answers InFlight where it would have acquired.
//
// fn runs once. Its context carries the transaction (see TxFrom), and it must
// not write through the *sql.DB or the outer store: that would wait for this
// very transaction. The record needs no renewal before the commit. Errors of fn
// are returned as they are. Where the database has failed in the transaction,
// InTx fails even if fn does not: nothing was committed. After an error of the
// commit itself nothing is known: claim again.
func (s *Store) InTx(ctx context.Context, fn func(context.Context, keystore.Store) error) error {
	tx, held, err := s.begin(ctx)
	if err != nil {
		return dialect.Failed(ctx, "begin", err)
	}
	if held {
		defer s.table.Leave()
	}
	return s.table.Run(ctx, tx, held, func(store keystore.Store) error {
		return fn(context.WithValue(ctx, txKey{}, tx), store)
	})
}

// begin begins a transaction, which holds the write lock if it can be had in
// time.
func (s *Store) begin(ctx context.Context) (tx *sql.Tx, held bool, err error) {
	patient, cancel := context.WithTimeout(ctx, lockPatience)
	defer cancel()
	if s.table.Enter(patient) == nil {
		for n := 0; ; n++ {
			if tx, err = s.beginLocked(ctx); err == nil {
				return tx, true, nil
			}
			if fault(err) != sqltable.Again || sqltable.Pause(patient, n) != nil {
				break
			}
		}
		s.table.Leave()
	}
	switch {
	case ctx.Err() != nil:
		return nil, false, ctx.Err()
	case err != nil && fault(err) != sqltable.Again:
		return nil, false, err
	}
	// Read-only, so that no driver begins it with the lock.
	tx, err = s.db.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	return tx, false, err
}

// beginLocked begins a transaction with the write lock. database/sql has no
// BEGIN IMMEDIATE, but a transaction whose first statement writes is as good,
// and what it writes may be nothing: a lock that it can't have is reported
// before it has read anything that could become stale.
func (s *Store) beginLocked(ctx context.Context) (*sql.Tx, error) {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return nil, err
	}
	if _, err = tx.ExecContext(ctx, "DELETE FROM `"+s.name+"` WHERE id IS NULL"); err != nil {
		_ = tx.Rollback()
		return nil, err
	}
	return tx, nil
}
