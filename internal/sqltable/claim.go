package sqltable

import (
	"context"
	"fmt"
	"time"

	"github.com/idem-go/idem/keystore"
)

// Claim implements keystore.Store.
func (t *Table) Claim(ctx context.Context, p keystore.ClaimParams) (c keystore.Claim, err error) {
	if err := p.Validate(); err != nil {
		return keystore.Claim{}, err
	}
	start := time.Now()
	err = t.retry(ctx, "claim", func() (err error) {
		c, err = t.claim(ctx, p)
		if t.dialect.Fault(err) == Locked && (t.tx != nil || time.Since(start) > t.dialect.Patience) {
			c, err = heldElsewhere(p), nil
		}
		return err
	})
	return c, err
}

func (t *Table) claim(ctx context.Context, p keystore.ClaimParams) (keystore.Claim, error) {
	r, now, err := t.readForClaim(ctx, p, "")
	if err != nil {
		return keystore.Claim{}, err
	}
	if c, err := answer(r, now, p); c.Status != 0 || err != nil {
		return c, err
	}
	switch {
	case t.tx != nil && !t.tx.held:
		return heldElsewhere(p), nil
	case t.tx != nil && t.dialect.Lock != "":
		// What was read may be under change by another transaction.
		if r, now, err = t.readForClaim(ctx, p, t.dialect.Lock); err != nil {
			return keystore.Claim{}, err
		}
		if c, err := answer(r, now, p); c.Status != 0 || err != nil {
			return c, err
		}
	}
	switch {
	case r == nil:
		return t.insert(ctx, p)
	case r.state == keystore.Running && r.nonce == p.Nonce:
		return t.repeat(ctx, r, now, p)
	}
	return t.take(ctx, r, now, p)
}

// readForClaim reads the result only where the claim may know it.
func (t *Table) readForClaim(ctx context.Context, p keystore.ClaimParams, end string) (*row, int64, error) {
	return t.read(ctx, p.ID, end, "CASE WHEN fingerprint = ? THEN result END", p.Fingerprint[:])
}

// answer decides a claim. The zero Claim means that the record, nil if there
// is none, is to be acquired.
func answer(r *row, now int64, p keystore.ClaimParams) (keystore.Claim, error) {
	var status keystore.Status
	switch {
	case r == nil || r.outlived(now):
		return keystore.Claim{}, nil
	case r.state == keystore.Free && r.nonce == p.Nonce:
		return keystore.Claim{}, fmt.Errorf("%w: this claim was released before", keystore.ErrFenced)
	case r.state == keystore.Free:
		return keystore.Claim{}, nil // whatever the fingerprint
	case r.fingerprint != p.Fingerprint:
		status = keystore.Mismatch
	case r.state == keystore.Done:
		status = keystore.Completed
	case r.nonce == p.Nonce:
		return keystore.Claim{}, nil // acquired before, by this very claim
	case r.alive(now):
		status = keystore.InFlight
	case r.begun && !p.Takeover:
		status = keystore.Unresolved
	default:
		return keystore.Claim{}, nil
	}
	rec := r.view(now)
	if status == keystore.Completed {
		rec.Result = r.result
	}
	return keystore.Claim{Status: status, Record: rec}, nil
}

// heldLease stands for what is left of a lease that nobody can see.
const heldLease = time.Second

// heldElsewhere is the answer to a claim whose record another transaction
// holds. What that has written nobody can see; that it runs is certain.
func heldElsewhere(p keystore.ClaimParams) keystore.Claim {
	return keystore.Claim{Status: keystore.InFlight, Record: keystore.Record{
		ID: p.ID, Scope: p.Scope, Fingerprint: p.Fingerprint, State: keystore.Running, LeaseLeft: heldLease,
	}}
}

// expiry is when a claimed record may be purged: never by itself once it has
// begun. A Renew that only extends the lease leaves it, so that a heartbeat
// changes no index; Purge looks at the lease too.
const expiry = "CASE WHEN ? THEN NULL ELSE {clock} + ? END"

func (t *Table) insert(ctx context.Context, p keystore.ClaimParams) (keystore.Claim, error) {
	lease, keep := micros(p.Lease), micros(p.Keep)
	applied, err := t.exec(ctx, t.dialect.Try+`INSERT INTO {table}
		(id, format, scope, fingerprint, revision, state, released, begun, nonce, token, generation,
			since_us, until_us, keep_us, expires_us, meta)
		VALUES (?, ?, ?, ?, 1, ?, 0, ?, ?, 1, 0, {clock}, {clock} + ?, ?, `+expiry+`, ?)`+t.dialect.Unless,
		p.ID[:], format, p.Scope[:], p.Fingerprint[:], keystore.Running, p.Begun, p.Nonce[:],
		lease, keep, p.Begun, lease+keep, p.Meta)
	if err == nil && applied == 0 || t.dialect.Fault(err) == Duplicate {
		err = errRaced
	}
	if err != nil {
		return keystore.Claim{}, err
	}
	return acquired(&row{
		id: p.ID, scope: p.Scope, fingerprint: p.Fingerprint, state: keystore.Running, begun: p.Begun,
		nonce: p.Nonce, token: 1, meta: p.Meta,
	}, 0, p), nil
}

// take makes the claim the owner of r, which was read at now and has another.
func (t *Table) take(ctx context.Context, r *row, now int64, p keystore.ClaimParams) (keystore.Claim, error) {
	next := *r
	restarts := r.state != keystore.Running
	if restarts {
		next.state, next.since, next.begun = keystore.Running, now, false
		next.scope, next.fingerprint = p.Scope, p.Fingerprint
	}
	if r.state == keystore.Done { // and expired: as if there were none
		next.generation, next.meta = 0, nil
	}
	if len(next.meta) == 0 {
		next.meta = p.Meta
	}
	next.begun = next.begun || p.Begun
	next.token, next.nonce = r.token+1, p.Nonce

	lease, keep := micros(p.Lease), micros(p.Keep)
	applied, err := t.exec(ctx, t.dialect.Try+`UPDATE {table} SET
		revision = revision + 1, state = ?, scope = ?, fingerprint = ?, begun = ?, nonce = ?, token = ?, generation = ?,
		since_us = CASE WHEN ? THEN {clock} ELSE since_us END, until_us = {clock} + ?, keep_us = ?, expires_us = `+expiry+`,
		meta = ?, result = NULL
		WHERE id = ? AND revision = ?`,
		next.state, next.scope[:], next.fingerprint[:], next.begun, next.nonce[:], int64(next.token), next.generation,
		restarts, lease, keep, next.begun, lease+keep,
		next.meta, r.id[:], r.revision)
	if err == nil && applied == 0 {
		err = errRaced
	}
	if err != nil {
		return keystore.Claim{}, err
	}
	return acquired(&next, now, p), nil
}

// repeat renews the claim, which owns r already. Unlike take it holds for any
// revision, or the copies of one claim would race each other.
func (t *Table) repeat(ctx context.Context, r *row, now int64, p keystore.ClaimParams) (keystore.Claim, error) {
	lease, keep := micros(p.Lease), micros(p.Keep)
	applied, err := t.exec(ctx, t.dialect.Try+`UPDATE {table} SET
		revision = revision + 1, until_us = {clock} + ?, keep_us = ?,
		expires_us = CASE WHEN ? OR begun = 1 THEN NULL ELSE {clock} + ? END,
		begun = CASE WHEN ? THEN 1 ELSE begun END,
		meta = CASE WHEN length(meta) > 0 THEN meta ELSE ? END`+owned,
		append([]any{lease, keep, p.Begun, lease + keep, p.Begun, p.Meta},
			ownedArgs(keystore.Owner{ID: r.id, Nonce: r.nonce, Token: r.token})...)...)
	if err == nil && applied == 0 {
		err = errRaced
	}
	if err != nil {
		return keystore.Claim{}, err
	}
	r.begun = r.begun || p.Begun
	if len(r.meta) == 0 {
		r.meta = p.Meta
	}
	return acquired(r, now, p), nil
}

// acquired is the answer to the claim that has just made r its own.
func acquired(r *row, now int64, p keystore.ClaimParams) keystore.Claim {
	rec := r.view(now)
	rec.LeaseLeft = p.Lease
	return keystore.Claim{
		Status: keystore.Acquired,
		Owner:  keystore.Owner{ID: r.id, Nonce: r.nonce, Token: r.token},
		Record: rec,
	}
}
