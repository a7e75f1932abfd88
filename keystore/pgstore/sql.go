package pgstore

import "strings"

// statements are the SQL of a store, with the name of its table in it.
type statements struct {
	claim, claimInTx          string
	claimBatch, completeBatch string
	renew, complete           string
	free, abandon, lastOwner  string
	records                   string
	purgeSettled, purgeDead   string
}

func newStatements(table string) statements {
	parts := strings.NewReplacer("{claimable}", claimableSQL, "{owned}", ownedSQL)
	leaves := strings.NewReplacer("{sound}", soundSQL, "{table}", quoted(table))
	in := func(sql string) string { return leaves.Replace(parts.Replace(sql)) }
	claim := strings.Replace(claimSQL, "{regrant}", strings.Replace(regrantSQL, "{lease_until}",
		"clock_timestamp() + $5::bigint * interval '1 microsecond'", 1), 1)
	return statements{
		claim:         in(strings.Replace(claim, "{want}", wantSQL, 1)),
		claimInTx:     in(strings.Replace(claim, "{want}", wantInTxSQL, 1)),
		claimBatch:    in(claimBatch()),
		completeBatch: in(completeBatch()),
		renew:         in(renewSQL),
		complete:      in(completeSQL),
		free:          in(freeSQL),
		abandon:       in(abandonSQL),
		lastOwner:     in(lastOwnerSQL),
		records:       in(recordsSQL),
		purgeSettled:  in(purgeSettledSQL),
		purgeDead:     in(purgeDeadSQL),
	}
}

// soundSQL: the row can be read. Nothing else is ever changed or granted.
const soundSQL = `(r.format = 1 AND r.state IN (1, 2, 3) AND r.token > 0 AND r.generation BETWEEN 0 AND 4294967295
	AND octet_length(r.scope) = 32 AND octet_length(r.fingerprint) = 32 AND octet_length(r.nonce) = 16
	AND isfinite(r.since) AND isfinite(r.lease_until) AND (r.state = 2) = (r.expires IS NULL))`

// claimableSQL: the claim may have the row as it is now. decide tells the others
// why not.
const claimableSQL = `({sound} AND CASE r.state
	WHEN 1 THEN r.nonce <> $4
	WHEN 2 THEN r.fingerprint = $3 AND (r.nonce = $4 OR r.lease_until <= clock_timestamp() AND (NOT r.begun OR $8))
	WHEN 3 THEN r.expires <= clock_timestamp() END)`

// claimSQL reads the record and, where it is claimable, inserts or updates it. It
// returns one row: the record that was granted, or else the one that was seen.
// want.free tells why a record that was seen claimable was not granted: false,
// another transaction holds it; true, another claim was faster. It is null
// where the record was not claimable, and then nothing was written.
//
// What was seen is only a reason to try: the insert waits for its turn at the
// primary key and decides by the row as it is then.
//
//	$1 id, $2 scope, $3 fingerprint, $4 nonce, $5 lease and $6 keep in µs,
//	$7 begun, $8 takeover, $9 meta, $10 number of the advisory lock
const claimSQL = `WITH live AS MATERIALIZED (
	SELECT r.id IS NOT NULL AS found, coalesce(r.format, 1) AS format, r.scope, r.fingerprint, coalesce(r.state, 0) AS state,
		coalesce(r.begun, false) AS begun, r.nonce, coalesce(r.token, 0) AS token, coalesce(r.generation, 0) AS generation,
		r.since, r.lease_until, r.expires, clock_timestamp() AS now, r.meta, r.result
	FROM (SELECT) AS one LEFT JOIN {table} AS r ON r.id = $1
), {want}, granted AS (
	INSERT INTO {table} AS r
		(id, format, scope, fingerprint, state, begun, nonce, token, generation, since, lease_until, keep, meta)
	SELECT $1, 1, $2, $3, 2, $7, $4, 1, 0, clock_timestamp(),
		clock_timestamp() + $5::bigint * interval '1 microsecond', $6::bigint * interval '1 microsecond', $9
	FROM want WHERE want.free
	{regrant}
	RETURNING r.format, r.scope, r.fingerprint, r.state, r.begun, r.nonce, r.token, r.generation,
		r.since, r.lease_until, r.expires, clock_timestamp(), r.meta
)
SELECT true, true, granted.*, NULL::bytea FROM granted
UNION ALL
SELECT false, (SELECT want.free FROM want), r.format, r.scope, r.fingerprint, r.state, r.begun, r.nonce, r.token,
	r.generation, r.since, r.lease_until, r.expires, r.now, r.meta,
	CASE WHEN r.state = 3 AND r.fingerprint = $3 THEN r.result END
FROM live AS r WHERE NOT EXISTS (SELECT FROM granted)`

// regrantSQL grants a row that is there, if it is claimable by then.
const regrantSQL = `ON CONFLICT (id) DO UPDATE SET
		scope       = CASE r.state WHEN 2 THEN r.scope ELSE excluded.scope END,
		fingerprint = excluded.fingerprint,
		state       = 2,
		released    = 0,
		begun       = r.begun AND r.state = 2 OR excluded.begun,
		nonce       = excluded.nonce,
		token       = r.token + CASE WHEN r.state = 2 AND r.nonce = excluded.nonce THEN 0 ELSE 1 END,
		generation  = CASE r.state WHEN 3 THEN 0 ELSE r.generation END,
		since       = CASE r.state WHEN 2 THEN r.since ELSE excluded.since END,
		lease_until = {lease_until},
		keep        = excluded.keep,
		expires     = NULL,
		meta        = CASE WHEN r.state = 3 OR octet_length(r.meta) = 0 THEN excluded.meta ELSE r.meta END,
		result      = NULL
	WHERE {claimable}`

// wantSQL has a row where what was seen is claimable. Claims outside transactions
// share the advisory lock, and so pass each other. It is taken where a
// transaction that lasts longer than its statement has claimed the record.
const wantSQL = `want AS MATERIALIZED (
	SELECT pg_try_advisory_xact_lock_shared($10) AS free FROM live AS r WHERE NOT r.found OR {claimable}
)`

// wantInTxSQL waits for nobody: not for a row that is new, which only the advisory
// lock tells of, and not for one that is held for whatever reason.
const wantInTxSQL = `tried AS MATERIALIZED (
	SELECT r.found, pg_try_advisory_xact_lock($10) AS free FROM live AS r WHERE NOT r.found OR {claimable}
), locked AS MATERIALIZED (
	SELECT 1 FROM {table} AS r WHERE r.id = $1 AND (SELECT tried.free FROM tried) FOR UPDATE SKIP LOCKED
), want AS MATERIALIZED (
	SELECT tried.free AND (NOT tried.found OR EXISTS (SELECT FROM locked)) AS free FROM tried
)`

// ownedSQL: the row runs, and the caller is its owner.
//
//	$1 id, $2 nonce, $3 token
const ownedSQL = `r.id = $1 AND r.nonce = $2 AND r.token = $3 AND r.state = 2 AND {sound}`

// renewSQL touches no column that an index knows, so that a heartbeat is written
// to the row's own page alone. A null meta keeps the old one.
//
//	$4 lease in µs, $5 begun, $6 meta
const renewSQL = `UPDATE {table} AS r SET
	lease_until = clock_timestamp() + $4::bigint * interval '1 microsecond',
	begun = r.begun OR $5,
	meta = coalesce($6, r.meta)
WHERE {owned}`

// completeSQL
//
//	$4 retention in µs, $5 result
const completeSQL = `UPDATE {table} AS r SET
	state = 3, expires = clock_timestamp() + $4::bigint * interval '1 microsecond', result = $5
WHERE {owned}`

// freeSQL forgets or rejects, as $4 says.
//
//	$4 how, $5 meta
const freeSQL = `UPDATE {table} AS r SET
	state = 1, released = $4::smallint, begun = false, expires = clock_timestamp() + r.keep,
	generation = r.generation + CASE $4::smallint WHEN 2 THEN 1 ELSE 0 END,
	meta = coalesce($5, CASE $4::smallint WHEN 2 THEN ''::bytea ELSE r.meta END)
WHERE {owned}`

// abandonSQL
//
//	$4 meta
const abandonSQL = `UPDATE {table} AS r SET
	lease_until = least(r.lease_until, clock_timestamp()), meta = coalesce($4, r.meta)
WHERE {owned}`

// lastOwnerSQL tells a call that changed nothing why.
//
//	$1 id, $2 nonce, $3 token
const lastOwnerSQL = `SELECT r.format, {sound}, r.state, r.released, r.nonce = $2 AND r.token = $3,
	coalesce(r.state = 3 AND r.expires <= clock_timestamp(), false)
FROM {table} AS r WHERE r.id = $1`

// recordsSQL is followed by further conditions, the order and the limit. A row
// that can't be read is selected, so that it is reported.
const recordsSQL = `SELECT r.id, r.format, r.scope, r.fingerprint, r.state, r.begun, r.nonce, r.token, r.generation,
	r.since, r.lease_until, r.expires, clock.now, r.meta, r.result
FROM (SELECT clock_timestamp() AS now) AS clock, {table} AS r
WHERE NOT (r.format = 1 AND r.state = 3 AND r.expires IS NOT NULL AND r.expires <= clock.now)`

// The two halves of a purge. Each reads the clock once, so that the index on
// expires can be used, and passes by what others are at work on.
const (
	purgeSettledSQL = `WITH doomed AS MATERIALIZED (
	SELECT r.id FROM {table} AS r WHERE r.expires <= (SELECT clock_timestamp()) AND {sound}
	ORDER BY r.expires LIMIT $1 FOR UPDATE SKIP LOCKED
) DELETE FROM {table} AS r USING doomed WHERE r.id = doomed.id`

	purgeDeadSQL = `WITH doomed AS MATERIALIZED (
	SELECT r.id FROM {table} AS r
	WHERE r.state = 2 AND NOT r.begun AND r.lease_until + r.keep <= (SELECT clock_timestamp()) AND {sound}
	LIMIT $1 FOR UPDATE SKIP LOCKED
) DELETE FROM {table} AS r USING doomed WHERE r.id = doomed.id`
)
