package sqltable

import (
	"bytes"
	"context"
	"encoding/binary"
	"slices"
	"sync/atomic"

	"github.com/idem-go/idem/internal/batch"
)

// write is one statement that writes.
type write struct {
	statement string
	args      []any
}

// commits let the writes of a database with one writer share their commits:
// those that would wait for the writer are carried out in one transaction.
// Each applies or not by itself, as it would in one of its own.
type commits struct {
	batch.Group[write, int]
	last atomic.Uint64
}

func (t *Table) newCommits() *commits {
	return &commits{Group: batch.Group[write, int]{
		Left: func(err error) error { return err }, Keep: keepWrite, Alone: t.alone, Together: t.together, Limit: 1,
	}}
}

// do carries out a write. That several are to one record does not matter: they
// follow each other, and each looks at what it finds.
func (c *commits) do(ctx context.Context, w write) (int, error) {
	var id [32]byte
	binary.BigEndian.PutUint64(id[:], c.last.Add(1))
	size := 0
	for _, arg := range w.args {
		if b, ok := arg.([]byte); ok {
			size += len(b)
		}
	}
	return c.Do(ctx, id, size, w)
}

// keepWrite returns the write with bytes of its own.
func keepWrite(w write) write {
	w.args = slices.Clone(w.args)
	for i, arg := range w.args {
		if b, ok := arg.([]byte); ok {
			w.args[i] = bytes.Clone(b)
		}
	}
	return w
}

// alone carries out a write by itself.
func (t *Table) alone(ctx context.Context, w write) (int, error) {
	if err := t.Enter(ctx); err != nil {
		return 0, err
	}
	defer t.Leave()
	return affected(t.db.ExecContext(ctx, t.sql(w.statement), w.args...))
}

// together carries out the writes of a batch, all or none. Where one of them
// fails, each finds out alone what is the matter.
func (t *Table) together(ctx context.Context, members []*batch.Member[write, int]) (err error) {
	if len(members) == 1 {
		m := members[0]
		m.Answer, err = t.alone(ctx, m.Call)
		m.Answered = err == nil
		return err
	}
	if err := t.Enter(ctx); err != nil {
		return err
	}
	defer t.Leave()
	tx, err := t.db.BeginTx(ctx, nil)
	if err != nil {
		return nil
	}
	defer tx.Rollback() // does nothing after a Commit
	applied := make([]int, len(members))
	for i, m := range members {
		if applied[i], err = affected(tx.ExecContext(ctx, t.sql(m.Call.statement), m.Call.args...)); err != nil {
			return nil
		}
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	for i, m := range members {
		m.Answer, m.Answered = applied[i], true
	}
	return nil
}

// Pending is how many writes are under way or wait.
func (t *Table) Pending() int { return t.commits.Pending() }
