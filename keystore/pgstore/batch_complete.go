package pgstore

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/internal/batch"
	"github.com/idem-go/idem/keystore"
)

// completeBatchSQL is completeSQL for several owners, with an array in place of
// each parameter. It returns the IDs of the records that it settled.
//
// The rows are held in the order of the arrays, before they are updated in
// whatever order the server likes. How the two are joined leaves it no choice
// but to look them up one by one.
const completeBatchSQL = `WITH {asked} AS q(id, nonce, token, retention, result)
), held AS MATERIALIZED (
	SELECT q.* FROM asked AS q CROSS JOIN LATERAL (SELECT 1 FROM {table} AS r WHERE {owned by q} FOR UPDATE) AS r
)
UPDATE {table} AS r SET
	state = 3, expires = clock_timestamp() + q.retention * interval '1 microsecond', result = q.result
FROM held AS q WHERE r.id = ANY (ARRAY[q.id])
RETURNING r.id`

func completeBatch() string {
	byQ := strings.NewReplacer("$1", "q.id", "$2", "q.nonce", "$3", "q.token").Replace(ownedSQL)
	arrays := "(SELECT $1::bytea[]), (SELECT $2::bytea[]), (SELECT $3::bigint[]), (SELECT $4::bigint[]), (SELECT $5::bytea[])"
	return strings.NewReplacer("{asked}", strings.ReplaceAll(askedSQL, "{arrays}", arrays), "{owned by q}", byQ).Replace(completeBatchSQL)
}

// completion is one call of Complete.
type completion struct {
	owner     keystore.Owner
	retention int64 // in µs
	result    []byte
}

type completeMember = batch.Member[completion, int64]

// keepCompletion returns the call with a result of its own.
func keepCompletion(c completion) completion {
	c.result = bytes.Clone(c.result)
	return c
}

// completeAlone runs the statement of one completion. It returns how many records it
// changed.
func (s *Store) completeAlone(ctx context.Context, c completion) (int64, error) {
	return s.exec(ctx, "complete", s.sql.complete, append(ownerParams(c.owner), c.retention, c.result)...)
}

// completeTogether makes the completions of a batch.
func (s *Store) completeTogether(ctx context.Context, members []*completeMember) error {
	n := len(members)
	ids, nonces, results := make([][]byte, n), make([][]byte, n), make([][]byte, n)
	tokens, retentions := make([]int64, n), make([]int64, n)
	for i, m := range members {
		c := &m.Call
		ids[i], nonces[i], tokens[i] = c.owner.ID[:], c.owner.Nonce[:], int64(c.owner.Token)
		retentions[i], results[i] = c.retention, c.result
	}
	changed := make([]int64, n)
	err := s.together(ctx, "complete", func() error {
		rows, err := s.pool.Query(ctx, s.sql.completeBatch, s.args(ids, nonces, tokens, retentions, results)...)
		if err != nil {
			return err
		}
		var id []byte
		_, err = pgx.ForEachRow(rows, []any{&id}, func() error {
			if i, ok := find(members, id); ok {
				changed[i] = 1
			}
			return nil
		})
		return err
	})
	if err != nil {
		return ignoreRefused(err)
	}
	for i, m := range members {
		m.Answer, m.Answered = changed[i], true
	}
	return nil
}

// together runs the statement of a batch, and again without preparing it where
// that is why it failed.
func (s *Store) together(ctx context.Context, op string, statement func() error) error {
	for {
		prepared := !s.unprepared.Load()
		err := statement()
		switch {
		case err == nil:
			return nil
		case s.misprepared(err) && prepared:
		default:
			return failed(op, err)
		}
	}
}

// ignoreRefused returns the error of a batch unless it is the server's: then nothing
// was carried out, and each of the calls finds its own answer alone.
func ignoreRefused(err error) error {
	var scan pgx.ScanArgError
	if code(err) != "" || errors.As(err, &scan) {
		return nil
	}
	return err
}

// find returns the place of the member with the record.
func find[C, A any](members []*batch.Member[C, A], id []byte) (int, bool) {
	return slices.BinarySearchFunc(members, id, func(m *batch.Member[C, A], id []byte) int { return bytes.Compare(m.ID[:], id) })
}
