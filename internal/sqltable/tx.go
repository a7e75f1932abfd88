package sqltable

import (
	"context"
	"database/sql"
	"errors"
	"sync/atomic"

	"github.com/idem-go/idem/keystore"
)

// transaction is what a table in a transaction knows of it. nil is none.
type transaction struct {
	tx *sql.Tx
	// held tells that the transaction may write. Without it a Claim acquires
	// nothing.
	held bool
	// broken is the first error of the database. It may have ended the
	// transaction with it, and what is written afterwards is no part of it.
	broken atomic.Pointer[error]
}

// failed notes an error, unless it is about a record alone.
func (tx *transaction) failed(err error) {
	if tx == nil || errors.Is(err, keystore.ErrFenced) || errors.Is(err, keystore.ErrCorrupt) || errors.Is(err, keystore.ErrFormat) {
		return
	}
	tx.broken.CompareAndSwap(nil, &err)
}

// failure returns what broke the transaction.
func (tx *transaction) failure() error {
	if tx == nil {
		return nil
	}
	if err := tx.broken.Load(); err != nil {
		return *err
	}
	return nil
}

// Run runs fn with the table in a transaction, and commits where fn returns
// nil. Where fn does not, or does not return, or where the database has failed
// meanwhile, it rolls back.
func (t *Table) Run(ctx context.Context, tx *sql.Tx, held bool, fn func(keystore.Store) error) error {
	defer tx.Rollback() // does nothing after a Commit
	in := *t
	in.tx = &transaction{tx: tx, held: held}
	if err := fn(&in); err != nil {
		return err
	}
	err := in.tx.failure()
	if err == nil {
		err = tx.Commit()
	}
	if err != nil {
		return t.failed(ctx, "commit", err)
	}
	return nil
}
