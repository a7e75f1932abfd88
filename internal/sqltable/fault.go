package sqltable

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	"github.com/idem-go/idem/keystore"
)

// Fault is what an error of a database means to a store.
type Fault uint8

const (
	// Other: nothing that a store knows.
	Other Fault = iota
	// Again: the statement was not applied, for others were faster.
	Again
	// Locked: the statement was not applied, for another transaction holds
	// the row.
	Locked
	// Duplicate: the row exists.
	Duplicate
	// Full: no space is left.
	Full
	// TooLarge: the statement is larger than the server takes.
	TooLarge
	// ReadOnly: the database can't be written.
	ReadOnly
	// Corrupt: the database can't be read.
	Corrupt
	// NoTable: the table does not exist.
	NoTable
)

// The sentinels that the stores export.
var (
	ErrReadOnly = errors.New("the database is read-only")
	ErrSchema   = errors.New("unfit schema")
)

// failed makes an error of the database one of the store: it says which store
// and which call, wraps the sentinel that fits, and the context's error where
// that was the cause.
func (t *Table) failed(ctx context.Context, op string, err error) error {
	return t.dialect.Failed(ctx, op, err)
}

// Failed is for the calls that a Table does not make.
func (d Dialect) Failed(ctx context.Context, op string, err error) error {
	switch d.Fault(err) {
	case Full:
		err = fmt.Errorf("%w: %w", keystore.ErrFull, err)
	case TooLarge:
		err = fmt.Errorf("%w: %w", keystore.ErrTooLarge, err)
	case ReadOnly:
		err = fmt.Errorf("%w: %w", ErrReadOnly, err)
	case Corrupt:
		err = fmt.Errorf("%w: %w", keystore.ErrCorrupt, err)
	case NoTable:
		err = fmt.Errorf("%w: call Migrate first: %w", ErrSchema, err)
	}
	if ended := ctx.Err(); ended != nil && !errors.Is(err, ended) {
		err = fmt.Errorf("%w: %w", ended, err)
	}
	return fmt.Errorf("%s: %s: %w", d.Store, op, err)
}

// DriverCode returns the number that a driver's error carries, in a method
// Code or in a field of the given name, so that a store knows the errors of
// the usual drivers and imports none of them.
func DriverCode(err error, field string) (int, bool) {
	for err != nil {
		if coded, ok := err.(interface{ Code() int }); ok {
			return coded.Code(), true
		}
		if v := reflect.Indirect(reflect.ValueOf(err)); v.Kind() == reflect.Struct {
			switch f := v.FieldByName(field); {
			case f.CanInt():
				return int(f.Int()), true
			case f.CanUint():
				return int(f.Uint()), true
			}
		}
		if joined, ok := err.(interface{ Unwrap() []error }); ok {
			for _, e := range joined.Unwrap() {
				if code, ok := DriverCode(e, field); ok {
					return code, true
				}
			}
			return 0, false
		}
		err = errors.Unwrap(err)
	}
	return 0, false
}
