// Package sqltable is a keystore on one table of an SQL database, for the
// stores that differ in little more than their dialect.
//
// Every decision is made here, in Go, from one plain read of the row; every
// write is one statement that applies only where the row is still as it was
// read, or still belongs to the owner who writes. So a call is atomic without a
// transaction of its own, duplicates are answered by a read alone, and what
// affected rows mean to a driver does not matter: every write raises the row's
// revision, so a row that was found was also changed.
package sqltable

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
	"time"

	"github.com/idem-go/idem/keystore"
)

// format is the version of what a row's columns mean.
const format = 1

// Dialect is what a database does in its own way.
type Dialect struct {
	// Store is the name of the store's package; every error begins with it.
	Store string
	// Clock is the SQL expression of the store's clock: microseconds since
	// 1970, the same wherever it stands in one statement.
	Clock string
	// OneWriter tells that the database has one writer at a time. Those of one
	// store then queue, for a database that only says that it is busy would
	// have them poll.
	OneWriter bool
	// Unless ends an INSERT that does nothing where the row exists. Empty where
	// that is a Duplicate.
	Unless string
	// Try begins a write that reports Locked rather than waits for another
	// transaction, where the database has that.
	Try string
	// Lock ends a SELECT that locks the row in a transaction, or reports
	// Locked. Empty where a transaction locks more than rows.
	Lock string
	// Patience is how long a Claim outside a transaction tries what is Locked
	// before it takes the record for InFlight. A slow disk alone must not
	// exhaust it.
	Patience time.Duration
	// SkipLocked ends a SELECT that locks the rows that are not locked yet.
	// Empty where a transaction locks more than rows.
	SkipLocked string
	// Fault tells what an error of the driver means.
	Fault func(error) Fault
}

// Querier is a *sql.DB, or a *sql.Tx.
type Querier interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// Table is a keystore.Store on one table.
type Table struct {
	dialect   Dialect
	db        *sql.DB
	filling   *strings.Replacer
	maxResult int
	// writer holds a value while there is a writer. nil: no limit.
	writer chan struct{}
	// commits are those that writers share; nil: each has its own.
	commits *commits
	// tx is the transaction that the table is used in, if any.
	tx *transaction
}

var _ keystore.Store = (*Table)(nil)

// New returns the table of that name, which need not exist yet.
func New(db *sql.DB, name string, maxResult int, d Dialect) (*Table, error) {
	switch {
	case db == nil:
		return nil, fmt.Errorf("%s: the *sql.DB is nil; open the database with sql.Open", d.Store)
	case !validName.MatchString(name):
		return nil, fmt.Errorf("%s: Config.Table is %q; use 1 to 48 letters, digits and underscores", d.Store, name)
	case maxResult < 0:
		return nil, fmt.Errorf("%s: Config.MaxResult is %d; use 0 for the default or a positive number", d.Store, maxResult)
	case maxResult == 0:
		maxResult = keystore.MaxResult
	}
	t := &Table{
		dialect: d, db: db, maxResult: maxResult,
		filling: strings.NewReplacer("{table}", "`"+name+"`", "{clock}", d.Clock, "{row}", rowColumns),
	}
	if d.OneWriter {
		t.writer = make(chan struct{}, 1)
		t.commits = t.newCommits()
	}
	return t, nil
}

// DefaultName is the table's name where the configuration has none.
const DefaultName = "idem_records"

var validName = regexp.MustCompile(`^[A-Za-z0-9_]{1,48}$`)

// sql fills in a statement: {table}, {clock}, and {row} for the columns of
// scan but for the result.
func (t *Table) sql(statement string) string { return t.filling.Replace(statement) }

func (t *Table) querier() Querier {
	if t.tx != nil {
		return t.tx.tx
	}
	return t.db
}

// exec runs one write and returns how many rows it applied to.
func (t *Table) exec(ctx context.Context, statement string, args ...any) (int, error) {
	switch {
	case t.tx != nil:
	case t.commits != nil:
		return t.commits.do(ctx, write{statement, args})
	default:
		return t.alone(ctx, write{statement, args})
	}
	return affected(t.tx.tx.ExecContext(ctx, t.sql(statement), args...))
}

// Enter waits until the caller may write, where there is one writer at a time.
func (t *Table) Enter(ctx context.Context) error {
	if t.writer == nil {
		return nil
	}
	select {
	case t.writer <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Leave ends what Enter began.
func (t *Table) Leave() {
	if t.writer != nil {
		<-t.writer
	}
}

func affected(res sql.Result, err error) (int, error) {
	if err != nil {
		return 0, err
	}
	n, err := res.RowsAffected()
	return int(n), err
}

// errRaced: the row was changed between our read and our write.
var errRaced = errors.New("the record kept changing")

// retry runs try until it succeeds or fails for good. What only says that
// others were faster is never a failure, as long as the context lives; but in
// a transaction, which the database may have ended with it, anything is.
func (t *Table) retry(ctx context.Context, op string, try func() error) error {
	if err := t.tx.failure(); err != nil {
		return t.failed(ctx, op, err)
	}
	for n := 0; ; n++ {
		err := try()
		if err == nil {
			return nil
		}
		again := errors.Is(err, errRaced)
		if fault := t.dialect.Fault(err); fault == Again || fault == Locked {
			again = t.tx == nil
		}
		if !again || Pause(ctx, n) != nil {
			t.tx.failed(err)
			return t.failed(ctx, op, err)
		}
	}
}

// Pause waits before the n-th repetition, for less than 10 ms, or returns the
// context's error.
func Pause(ctx context.Context, n int) error {
	most := min(time.Millisecond<<min(n, 10), 10*time.Millisecond)
	timer := time.NewTimer(rand.N(most))
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}
