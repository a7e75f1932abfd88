package sqltable

import (
	"context"
	"fmt"

	"github.com/idem-go/idem/keystore"
)

// owned is the condition under which an owner may change its record.
const owned = " WHERE id = ? AND nonce = ? AND token = ? AND state = ? AND format = ?"

func ownedArgs(o keystore.Owner) []any {
	return []any{o.ID[:], o.Nonce[:], int64(o.Token), keystore.Running, format}
}

// Renew implements keystore.Store.
func (t *Table) Renew(ctx context.Context, o keystore.Owner, p keystore.RenewParams) error {
	if err := p.Validate(); err != nil {
		return err
	}
	set, args := "until_us = {clock} + ?", []any{micros(p.Lease)}
	if p.Begun {
		set += ", begun = 1, expires_us = NULL"
	}
	if p.Meta != nil {
		set, args = set+", meta = ?", append(args, p.Meta)
	}
	return t.settle(ctx, "renew", o, set, args, func(*row) bool { return false })
}

// Complete implements keystore.Store.
func (t *Table) Complete(ctx context.Context, o keystore.Owner, p keystore.CompleteParams) error {
	if err := p.Validate(); err != nil {
		return err
	}
	if len(p.Result) > t.maxResult {
		return fmt.Errorf("%s: complete: %w: Result has %d bytes, Config.MaxResult is %d",
			t.dialect.Store, keystore.ErrTooLarge, len(p.Result), t.maxResult)
	}
	retention := micros(p.Retention)
	set := "state = ?, until_us = {clock} + ?, expires_us = {clock} + ?, result = ?"
	args := []any{keystore.Done, retention, retention, p.Result}
	return t.settle(ctx, "complete", o, set, args, func(r *row) bool { return r.state == keystore.Done })
}

// Release implements keystore.Store.
func (t *Table) Release(ctx context.Context, o keystore.Owner, p keystore.ReleaseParams) error {
	if err := p.Validate(); err != nil {
		return err
	}
	var set string
	var args []any
	if p.How == keystore.Abandon {
		// Not the time, for one that is read is that of a statement's start,
		// and a statement that started earlier must not find the lease alive.
		set = "expires_us = CASE WHEN begun = 1 THEN NULL WHEN until_us = 0 THEN expires_us ELSE {clock} + keep_us END, until_us = 0"
	} else {
		set = "state = ?, released = ?, begun = 0, until_us = {clock}, expires_us = {clock} + keep_us"
		args = []any{keystore.Free, p.How}
	}
	if p.How == keystore.Reject {
		set += ", generation = generation + 1"
	}
	if p.Meta != nil || p.How == keystore.Reject {
		set, args = set+", meta = ?", append(args, p.Meta)
	}
	return t.settle(ctx, "release", o, set, args, func(r *row) bool {
		return r.state == keystore.Free && r.released == p.How
	})
}

// settle changes the running record that o owns. Where there is none, repeats
// tells whether what o's record has become is what an earlier call of o made
// of it; anything else is ErrFenced.
func (t *Table) settle(ctx context.Context, op string, o keystore.Owner, set string, args []any, repeats func(*row) bool) error {
	statement := "UPDATE {table} SET revision = revision + 1, " + set + owned
	args = append(args, ownedArgs(o)...)
	return t.retry(ctx, op, func() error {
		applied, err := t.exec(ctx, statement, args...)
		if err != nil || applied > 0 {
			return err
		}
		r, now, err := t.read(ctx, o.ID, "", "NULL")
		switch {
		case err != nil:
			return err
		case r == nil || r.outlived(now) || !r.ownedBy(o):
			return keystore.ErrFenced
		case repeats(r):
			return nil
		case r.state == keystore.Running:
			return errRaced
		}
		return keystore.ErrFenced
	})
}
