package pgstore

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/keystore"
)

// What the server says where a claim inside a transaction can't have the
// record without waiting, or without being told what others have committed
// since the transaction began.
const (
	uniqueViolation  = "23505"
	lockNotAvailable = "55P03"
)

// rollbackTimeout bounds the end of a transaction whose own context may have
// ended.
const rollbackTimeout = 5 * time.Second

// transaction is what the Store of an InTx works in.
type transaction struct {
	pgx.Tx

	mu      sync.Mutex // one statement at a time; guards changed
	changed [][32]byte // told to the watchers after the commit
}

type txKey struct{}

// TxFrom returns the transaction of the InTx whose function was given ctx, for
// the application's own statements. It is committed or rolled back by InTx, and
// must not be used by several goroutines at once.
func TxFrom(ctx context.Context) (pgx.Tx, bool) {
	tx, ok := ctx.Value(txKey{}).(pgx.Tx)
	return tx, ok
}

// InTx implements keystore.Transactor. fn is called once, with a Store and,
// through TxFrom, a pgx.Tx that belong to one transaction of the default
// isolation level. It is committed if fn returns nil, and rolled back if fn
// returns an error, panics or ends its goroutine, or if the process or the
// server dies.
//
// Inside, a Claim takes three round trips and never waits: the record is
// InFlight where another transaction holds it; see Claim. It leaves the
// transaction usable whatever it answers, where a failure of the other calls
// does not. The record needs no renewal until the commit, and can't be renewed
// from outside. Watchers are told after the commit. InTx inside InTx is a
// savepoint.
//
// Errors are those of fn as they are, and the backend's. After an error of the
// commit nothing is known about whether it was committed: claim again.
func (s *Store) InTx(ctx context.Context, fn func(context.Context, keystore.Store) error) error {
	var begin interface {
		Begin(context.Context) (pgx.Tx, error)
	} = s.pool
	if s.tx != nil {
		begin = s.tx
	}
	tx, err := begin.Begin(ctx)
	if err != nil {
		return failed("begin", err)
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTimeout)
		defer cancel()
		_ = tx.Rollback(ctx) // has no effect after a commit
	}()
	inner := &Store{shared: s.shared, tx: &transaction{Tx: tx}}
	if err := fn(context.WithValue(ctx, txKey{}, tx), inner); err != nil {
		return err
	}
	if err := tx.Commit(ctx); err != nil {
		return failed("commit", err)
	}
	for _, id := range inner.tx.changed {
		s.changed(id, true)
	}
	return nil
}

// askInTx asks for a claim so that the transaction survives an error.
func (s *Store) askInTx(ctx context.Context, p keystore.ClaimParams) (answer, error) {
	s.tx.mu.Lock()
	defer s.tx.mu.Unlock()
	for {
		prepared := !s.unprepared.Load()
		savepoint, err := s.tx.Begin(ctx)
		if err != nil {
			return answer{}, failed("claim", err)
		}
		a, err := s.ask(ctx, savepoint, s.sql.claimInTx, p)
		if err == nil {
			err = savepoint.Commit(ctx)
		} else if rollbackErr := savepoint.Rollback(ctx); rollbackErr != nil {
			return answer{}, failed("claim", err)
		}
		if s.misprepared(err) && prepared {
			continue
		}
		switch code(err) {
		case serializationFailure, deadlockDetected, uniqueViolation, lockNotAvailable:
			return answer{free: new(bool)}, nil
		}
		if err != nil {
			return answer{}, failed("claim", err)
		}
		return a, nil
	}
}
