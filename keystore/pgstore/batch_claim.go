package pgstore

import (
	"bytes"
	"context"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/internal/batch"
	"github.com/idem-go/idem/keystore"
)

// maxBatchResult is the size of the largest Result in the answer to a batch. A
// claim whose answer has a larger one is made again alone, so that what a
// batch holds in memory is bounded.
const maxBatchResult = 64 << 10

// claimBatchSQL is claimSQL for several claims, with an array in place of each
// parameter but $8: those are the IDs of the claims that take over. It returns
// a row for each claim, after the claim's ID.
//
// The rows are looked up one by one, so that the server makes the same plan
// whatever it knows of the table, and inserted in the order of the arrays.
const claimBatchSQL = `WITH {asked} AS q(id, scope, fingerprint, nonce, lease, keep, begun, meta, number)
), live AS MATERIALIZED (
	SELECT q.id, q.scope AS new_scope, q.fingerprint AS new_fingerprint, q.nonce AS new_nonce, q.lease, q.keep, q.begun AS new_begun,
		q.meta AS new_meta, coalesce(r.format, 1) AS format, r.scope, r.fingerprint, coalesce(r.state, 0) AS state,
		coalesce(r.begun, false) AS begun, r.nonce, coalesce(r.token, 0) AS token, coalesce(r.generation, 0) AS generation,
		r.since, r.lease_until, r.expires, clock_timestamp() AS now, r.meta, r.result,
		CASE WHEN r.id IS NULL OR {claimable by q} THEN pg_try_advisory_xact_lock_shared(q.number) END AS free
	FROM asked AS q LEFT JOIN LATERAL (SELECT r.* FROM {table} AS r WHERE r.id = q.id OFFSET 0) AS r ON true
), granted AS (
	INSERT INTO {table} AS r
		(id, format, scope, fingerprint, state, begun, nonce, token, generation, since, lease_until, keep, meta)
	SELECT l.id, 1, l.new_scope, l.new_fingerprint, 2, l.new_begun, l.new_nonce, 1, 0, l.start,
		l.start + l.lease * interval '1 microsecond', l.keep * interval '1 microsecond', l.new_meta
	FROM (SELECT live.*, clock_timestamp() AS start FROM live WHERE live.free OFFSET 0) AS l
	{regrant}
	RETURNING r.id, r.format, r.scope, r.fingerprint, r.state, r.begun, r.nonce, r.token, r.generation,
		r.since, r.lease_until, r.expires, clock_timestamp(), r.meta
)
SELECT granted.id, true, true, granted.format, granted.scope, granted.fingerprint, granted.state, granted.begun, granted.nonce,
	granted.token, granted.generation, granted.since, granted.lease_until, granted.expires, granted.clock_timestamp,
	granted.meta, NULL::bytea
FROM granted
UNION ALL
SELECT r.id, false, r.free, r.format, r.scope, r.fingerprint, r.state, r.begun, r.nonce, r.token,
	r.generation, r.since, r.lease_until, r.expires, r.now, r.meta,
	CASE WHEN r.state = 3 AND r.fingerprint = r.new_fingerprint AND octet_length(r.result) <= $11 THEN r.result END
FROM live AS r WHERE NOT EXISTS (SELECT FROM granted WHERE granted.id = r.id)`

// askedSQL reads the arrays of a batch. A batch waits for nobody for long: a
// transaction that holds one record must not hold up the calls to the others,
// nor wait in turn for a record that the batch holds.
const askedSQL = `asked AS MATERIALIZED (
	SELECT q.* FROM (SELECT set_config('lock_timeout', '200ms', true) OFFSET 0) AS bounded, unnest({arrays})`

// claimBatch returns the statement of a batch. The rules are those of a single
// claim.
func claimBatch() string {
	byQ := strings.NewReplacer("$3", "q.fingerprint", "$4", "q.nonce", "$8", "q.id = ANY ($8::bytea[])").Replace(claimableSQL)
	excluded := strings.NewReplacer("$3", "excluded.fingerprint", "$4", "excluded.nonce", "$8", "excluded.id = ANY ($8::bytea[])",
		"{lease_until}", "excluded.lease_until + (clock_timestamp() - excluded.since)",
	).Replace(strings.ReplaceAll(regrantSQL, "{claimable}", claimableSQL))
	arrays := "(SELECT $1::bytea[]), (SELECT $2::bytea[]), (SELECT $3::bytea[]), (SELECT $4::bytea[]), (SELECT $5::bigint[]), (SELECT $6::bigint[]), (SELECT $7::boolean[]), (SELECT $9::bytea[]), (SELECT $10::bigint[])"
	return strings.NewReplacer("{asked}", strings.ReplaceAll(askedSQL, "{arrays}", arrays),
		"{claimable by q}", byQ, "{regrant}", excluded).Replace(claimBatchSQL)
}

type claimMember = batch.Member[keystore.ClaimParams, answer]

// keepClaim returns the parameters with a Meta of their own.
func keepClaim(p keystore.ClaimParams) keystore.ClaimParams {
	p.Meta = bytes.Clone(p.Meta)
	return p
}

// claimTogether makes the claims of a batch.
func (s *Store) claimTogether(ctx context.Context, members []*claimMember) error {
	n := len(members)
	digests := make([][]byte, 4*n)
	ids, scopes, fingerprints, nonces := digests[:n:n], digests[n:2*n:2*n], digests[2*n:3*n:3*n], digests[3*n:]
	numbers := make([]int64, 3*n)
	leases, keeps, locks := numbers[:n:n], numbers[n:2*n:2*n], numbers[2*n:]
	begun, metas, takeovers := make([]bool, n), make([][]byte, n), [][]byte{}
	for i, m := range members {
		p := &m.Call
		ids[i], scopes[i], fingerprints[i], nonces[i] = p.ID[:], p.Scope[:], p.Fingerprint[:], p.Nonce[:]
		leases[i], keeps[i], locks[i] = micros(p.Lease), micros(p.Keep), s.advisoryLock(p.ID)
		begun[i], metas[i] = p.Begun, p.Meta
		if p.Meta == nil {
			metas[i] = []byte{}
		}
		if p.Takeover {
			takeovers = append(takeovers, ids[i])
		}
	}
	answers := make([]answer, n)
	err := s.together(ctx, "claim", func() error {
		rows, err := s.pool.Query(ctx, s.sql.claimBatch, s.args(ids, scopes, fingerprints, nonces, leases, keeps,
			begun, takeovers, metas, locks, maxBatchResult)...)
		if err != nil {
			return err
		}
		var a answer
		_, err = pgx.ForEachRow(rows, append([]any{&a.row.id, &a.granted, &a.free}, a.row.columns()...), func() error {
			if i, ok := find(members, a.row.id); ok {
				answers[i] = a
			}
			a = answer{}
			return nil
		})
		return err
	})
	if err != nil {
		return ignoreRefused(err)
	}
	for i, m := range members {
		if a := answers[i]; a.row.id != nil && !a.large(m.Call) {
			m.Answer, m.Answered = a, true
		}
	}
	return nil
}

// large tells whether the answer lacks a Result that it should have.
func (a *answer) large(p keystore.ClaimParams) bool {
	return a.row.state == int16(keystore.Done) && a.row.result == nil && bytes.Equal(a.row.fingerprint, p.Fingerprint[:])
}
