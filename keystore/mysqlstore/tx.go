package mysqlstore

import (
	"context"
	"database/sql"

	"github.com/idem-go/idem/keystore"
)

type txKey struct{}

// TxFrom returns the transaction of the InTx that the context comes from, for
// the effect that is to be committed with its record.
func TxFrom(ctx context.Context) (*sql.Tx, bool) {
	tx, ok := ctx.Value(txKey{}).(*sql.Tx)
	return tx, ok
}

// InTx implements keystore.Transactor. fn runs once, in a transaction of
// isolation level READ COMMITTED; its context carries the transaction (see
// TxFrom). The record needs no renewal before the commit, and one from outside
// waits for it.
//
// Where another transaction holds the record, a Claim inside is InFlight at
// once. There is one exception, on MySQL only: when two transactions claim a
// new record at the same moment, the second waits for the first one's end, or
// for innodb_lock_wait_timeout.
//
// Errors of fn are returned as they are. Where the server has failed in the
// transaction, which a deadlock ends, InTx fails even if fn does not: nothing
// was committed. After an error of the commit itself nothing is known: claim
// again.
func (s *Store) InTx(ctx context.Context, fn func(context.Context, keystore.Store) error) error {
	tx, err := s.db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return dialect.Failed(ctx, "begin", err)
	}
	return s.table.Run(ctx, tx, true, func(store keystore.Store) error {
		return fn(context.WithValue(ctx, txKey{}, tx), store)
	})
}
