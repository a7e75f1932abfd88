package pgstore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// What the server says of a statement that it gave up in favour of another.
const (
	serializationFailure = "40001"
	deadlockDetected     = "40P01"
)

// What it says of a prepared statement where a pooler sent the one call to one
// session and the next one to another.
const (
	noSuchStatement    = "26000"
	duplicateStatement = "42P05"
)

// The pauses between repeats are random, below a bound that rises from the
// first to the last.
const (
	firstPause = time.Millisecond
	lastPause  = 50 * time.Millisecond
)

// querier is what statements are run on: the pool or a transaction.
type querier interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// call runs a statement, and again as long as repeating helps. op names the
// operation in the error. In a transaction it runs once: a statement that has
// failed takes the transaction with it.
func (s *Store) call(ctx context.Context, op string, statement func(querier) error) error {
	if s.tx != nil {
		s.tx.mu.Lock()
		defer s.tx.mu.Unlock()
		if err := statement(s.tx); err != nil {
			s.misprepared(err)
			return failed(op, err)
		}
		return nil
	}
	for try := 0; ; try++ {
		prepared := !s.unprepared.Load()
		err := statement(s.pool)
		switch {
		case err == nil:
			return nil
		case s.misprepared(err) && prepared:
		case code(err) == serializationFailure, code(err) == deadlockDetected:
			if err := pause(ctx, try); err != nil {
				return failed(op, err)
			}
		default:
			return failed(op, err)
		}
	}
}

// code returns what the server calls the error, "" if it is not the server's.
func code(err error) string {
	var e *pgconn.PgError
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}

// misprepared tells whether the statement failed, without any effect, because
// it was prepared in another session. From then on none is prepared.
func (s *Store) misprepared(err error) bool {
	if c := code(err); c != noSuchStatement && c != duplicateStatement {
		return false
	}
	s.unprepared.Store(true)
	return true
}

// args returns the arguments of a call of pgx: the parameters, after the mode if
// it is not the pool's.
func (s *Store) args(params ...any) []any {
	if s.unprepared.Load() {
		return append([]any{pgx.QueryExecModeExec}, params...)
	}
	return params
}

// exec runs an update and returns how many rows it changed.
func (s *Store) exec(ctx context.Context, op, sql string, params ...any) (changed int64, err error) {
	err = s.call(ctx, op, func(q querier) error {
		tag, err := q.Exec(ctx, sql, s.args(params...)...)
		changed = tag.RowsAffected()
		return err
	})
	return changed, err
}

// failed names the store and the operation.
func failed(op string, err error) error { return fmt.Errorf("pgstore: %s: %w", op, err) }

// pause waits before a repeat.
func pause(ctx context.Context, try int) error {
	timer := time.NewTimer(rand.N(min(firstPause<<min(try, 10), lastPause)))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// micros returns a duration in microseconds, which is what the server counts
// in. It rounds up: no time that was asked for becomes none.
func micros(d time.Duration) int64 {
	n := int64(d / time.Microsecond)
	if d%time.Microsecond > 0 {
		n++
	}
	return n
}
