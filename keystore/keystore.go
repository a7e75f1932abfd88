// Package keystore is the contract between idem and the stores that hold its
// records: one record per intent, claimed by one owner at a time.
//
// A record tells who may execute an intent, and, once it was executed, what
// came out. Both halves of idem use the same contract: the client half keeps
// the key and the outcome of an intent, the server half keeps the claim and
// the stored answer. A store that passes keystoretest.Run serves both.
//
// # Life of a record
//
//	           Claim                Complete
//	(none) ─────────────▶ Running ────────────▶ Done ──▶ (none, after its retention)
//	                       │  ▲
//	        Release Forget │  │ Claim
//	        Release Reject ▼  │
//	                      Free
//
// A Running record is held by its owner for a lease. When the lease has run
// out, the record is in one of two conditions, and both are derived when the
// record is read, so no background job is needed for correctness:
//
//   - not begun: the effect cannot have started; the next Claim takes it.
//   - begun: nobody knows whether the effect happened. The record is
//     unresolved. A Claim answers Unresolved, and only a Claim with Takeover
//     set acquires it.
//
// # Rules
//
// Time is the store's own clock, never the caller's. Every method may be
// called concurrently. A cancelled context or a lost connection says nothing
// about whether the call was applied: repeat it with the same arguments, every
// call recognises its own earlier self (Claim by the nonce, the others by
// owner and token).
package keystore

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"time"
)

// Store holds records. Implementations are safe for concurrent use by many
// goroutines and, where the backend is shared, by many processes.
//
// Errors are the sentinels of this package (test with errors.Is) or whatever
// the backend reports; after a backend error nothing is known about whether
// the call was applied.
type Store interface {
	// Claim decides, atomically and in one round trip, who may execute an
	// intent. Its Status tells the decision and its Record what the store
	// knew at that moment:
	//
	//	no record, or an expired one  Acquired; token rises, generation 0
	//	Free                          Acquired; token rises, generation kept,
	//	                              the fingerprint is not compared, Age restarts
	//	Free, same nonce              ErrFenced: a copy of a claim that was
	//	                              released already, delayed on its way
	//	other fingerprint             Mismatch, whatever else is true of the record
	//	Done                          Completed, with the Result
	//	Running, same nonce           Acquired again: the caller's own earlier
	//	                              claim; the lease is renewed, the token kept
	//	Running, lease alive          InFlight
	//	Running, dead, not begun      Acquired; token rises, generation kept
	//	Running, dead, begun          Unresolved; with Takeover: Acquired,
	//	                              token rises, the record stays begun
	//
	// A store remembers the nonce of the latest claim only. A copy of an older
	// one that was released, and arrives after another claim was released as
	// well, is granted to nobody: it executes nothing, but a record that it
	// begins has to be recovered.
	//
	// Meta is stored only where the record has none, so that what the first
	// claim wrote survives a take-over and a Forget; an empty Meta is none.
	// Record.Result is filled only for Completed; Record.Meta is filled always.
	//
	// Errors: ErrFenced (see above), ErrInvalid (parameters), ErrFull (no room for a new record),
	// ErrTooLarge (Meta), ErrCorrupt and ErrFormat (the stored record can't be
	// read; it is left as it is and never granted).
	Claim(context.Context, ClaimParams) (Claim, error)

	// Renew extends the lease of a running record, and marks it begun or
	// replaces its Meta if asked to. An owner whose lease is dead but whom
	// nobody replaced may renew. Errors: ErrFenced, ErrInvalid, ErrTooLarge.
	Renew(context.Context, Owner, RenewParams) error

	// Complete settles the record with its result, which is replayed for
	// Retention from now on. A repeat by the same owner is success and
	// changes nothing, until the retention is over. An owner whose lease is
	// dead but whom nobody replaced may complete. Errors: ErrFenced, ErrInvalid, and ErrTooLarge where the
	// result is over the store's own limit (the record is unchanged then).
	Complete(context.Context, Owner, CompleteParams) error

	// Release gives the claim up without a result, as Params.How says. A
	// repeat of the same release by the same owner is success and changes
	// nothing. Errors: ErrFenced, ErrInvalid, ErrTooLarge.
	Release(context.Context, Owner, ReleaseParams) error

	// Records reads records without claiming them, whole, in the order of
	// their IDs. Expired records are not returned. Errors: ErrInvalid, ErrCorrupt,
	// ErrFormat.
	Records(context.Context, Query) ([]Record, error)

	// Purge removes at most limit records that no rule needs any more, and
	// returns how many it removed: Done records after their retention, Free
	// records, and dead ones that had not begun, both after their Keep. It
	// never removes a live or an unresolved record. Errors: ErrInvalid for a
	// limit below 1.
	Purge(ctx context.Context, limit int) (int, error)
}

// Transactor is implemented by stores that can put an effect and its record
// into one transaction. Inside InTx the Store given to the function, and the
// database handle in its context, belong to the same transaction: it commits
// when the function returns nil and rolls back otherwise. The function is
// called at most once. A Claim inside it
// never blocks; where another transaction holds the record it is InFlight.
type Transactor interface {
	InTx(context.Context, func(context.Context, Store) error) error
}

// Waiter is implemented by stores that can tell of a change without being
// polled.
type Waiter interface {
	// Watch returns a channel that is closed when the record changes its
	// state or its owner after the call. It may be closed without a change,
	// and a notification may be lost, so a waiter polls as well. A lease
	// that runs out is no change. stop frees the watch, must be called, and
	// may be called more than once.
	Watch(id [32]byte) (changed <-chan struct{}, stop func())
}

// ClaimParams ask for a claim.
type ClaimParams struct {
	// ID names the record; see RecordID.
	ID [32]byte
	// Scope is the digest of the scope, for listing records by it.
	Scope [32]byte
	// Fingerprint is the digest of what is asked. A record that exists with
	// another one is a Mismatch.
	Fingerprint [32]byte
	// Nonce is drawn at random once per claim and repeated when the same
	// claim is sent again. A zero nonce is refused.
	Nonce [16]byte
	// Lease is how long the claim stands unrenewed. It must be positive.
	Lease time.Duration
	// Keep is how long the record is kept at least once it is Free, or dead
	// without having begun. It must not be negative; zero keeps it no longer
	// than until the next Purge.
	Keep time.Duration
	// Begun marks the record begun from the first moment: the effect may
	// start as soon as the claim is granted.
	Begun bool
	// Takeover lets the claim acquire an unresolved record. A record whose
	// lease is alive is never taken.
	Takeover bool
	// Meta is the half's own note, at most MaxMeta bytes.
	Meta []byte
}

// Owner identifies one granted claim. The zero Owner owns nothing.
type Owner struct {
	ID    [32]byte
	Nonce [16]byte
	Token uint64
}

// Claim is the answer to a claim.
type Claim struct {
	Status Status
	// Owner is set when Status is Acquired, and zero otherwise.
	Owner Owner
	// Record is the record after the claim.
	Record Record
}

// Record is what a store knows of one intent. Its byte slices belong to the
// receiver: a store hands out copies.
type Record struct {
	ID, Scope, Fingerprint [32]byte
	State                  State
	// Token is the fencing token: it rises with every change of owner, for as
	// long as the store has the record. Owner.Nonce fences beyond that.
	Token uint64
	// Generation rises when the intent was definitely refused.
	Generation uint32
	// Begun tells that the effect may have started; it means nothing once the
	// record is Free.
	Begun bool
	// Age is the time since the first claim of this generation (since the
	// latest claim that found the record Free).
	Age time.Duration
	// LeaseLeft is what is left of a running record's lease; zero or less
	// means dead. It is zero for other states.
	LeaseLeft time.Duration
	Meta      []byte
	Result    []byte
}

// Unresolved tells that nobody knows whether the effect happened: the record
// is running and begun, and its lease is dead.
func (r Record) Unresolved() bool {
	return r.State == Running && r.Begun && r.LeaseLeft <= 0
}

// RenewParams extend a claim.
type RenewParams struct {
	// Lease is counted from now on. It must be positive.
	Lease time.Duration
	// Begun marks the record begun; false leaves the mark as it is.
	Begun bool
	// Meta replaces the record's Meta; nil keeps it.
	Meta []byte
}

// CompleteParams settle a claim.
type CompleteParams struct {
	Result []byte
	// Retention is how long the result is replayed, from now on. It must be
	// positive.
	Retention time.Duration
}

// ReleaseParams give a claim up.
type ReleaseParams struct {
	How How
	// Meta replaces the record's Meta. With Forget and Abandon nil keeps the
	// old one; with Reject nil clears it.
	Meta []byte
}

// Query selects records.
type Query struct {
	// ID, Scope: only records with this ID, this scope digest. nil: any.
	ID, Scope *[32]byte
	// Unresolved: only unresolved records.
	Unresolved bool
	// After: only records whose ID is greater, to read page by page. Zero
	// means from the start.
	After [32]byte
	// Limit is the page size: 0 means DefaultLimit, negative is refused.
	Limit int
}

const (
	// DefaultLimit is the page size of a Query that names none.
	DefaultLimit = 100
	// MaxMeta is how many bytes of Meta every store accepts.
	MaxMeta = 64 << 10
	// MaxResult is how many bytes of Result every store accepts at least.
	MaxResult = 2 << 20
)

// Half tells whose record an ID names, so that a client and a server that
// share a store never meet in one record.
type Half string

// The two halves.
const (
	Client Half = "client"
	Server Half = "server"
)

// RecordID is the ID of the record of one intent: a SHA-256 over a version,
// the half, the scope, and what names the intent. kind keeps apart names that
// were given in different ways ("id", "key"), so that they can't collide. No
// user text is ever part of a store's own key.
func RecordID(half Half, scope, kind, name string) [32]byte {
	return digest("idem record 1", string(half), scope, kind, name)
}

// ScopeDigest is the digest of a scope, for ClaimParams.Scope.
func ScopeDigest(half Half, scope string) [32]byte {
	return digest("idem scope 1", string(half), scope)
}

// digest hashes its parts with their lengths, so that no two lists of parts
// feed the same bytes.
func digest(parts ...string) [32]byte {
	b := make([]byte, 0, 256) // which need not be on the heap
	for _, p := range parts {
		b = binary.BigEndian.AppendUint64(b, uint64(len(p)))
		b = append(b, p...)
	}
	return sha256.Sum256(b)
}
