package keystore

import (
	"errors"
	"fmt"
)

// The sentinels that stores answer with; test with errors.Is.
var (
	// ErrFenced: the caller does not own the record (any more), so the call
	// changed nothing. Another owner has it, or it was settled otherwise, or
	// it is gone.
	ErrFenced = errors.New("keystore: fenced: the record has another owner")
	// ErrInvalid: a parameter breaks the contract; nothing was stored.
	ErrInvalid = errors.New("keystore: invalid parameter")
	// ErrFull: the store has no room for a new record; or, where its disk is
	// full, for any change. Nothing was stored.
	ErrFull = errors.New("keystore: full: no room for a new record")
	// ErrTooLarge: a Result or Meta is over the store's limit; the record is
	// unchanged.
	ErrTooLarge = errors.New("keystore: too large")
	// ErrCorrupt: the stored record can't be read. It is left as it is.
	ErrCorrupt = errors.New("keystore: corrupt record")
	// ErrFormat: the stored record was written by a newer format.
	ErrFormat = errors.New("keystore: record of an unknown format")
)

// Final tells that repeating a call can't change its answer: err is one of the
// sentinels above, but for ErrFull, since there may be room again. After any
// other error nothing is known, and the same call may be sent again.
func Final(err error) bool {
	for _, e := range []error{ErrFenced, ErrInvalid, ErrTooLarge, ErrCorrupt, ErrFormat} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// Validate reports the first rule that the parameters break, as ErrInvalid or
// ErrTooLarge naming the field. Stores call it before they do anything else.
func (p ClaimParams) Validate() error {
	switch {
	case p.Nonce == [16]byte{}:
		return invalid("ClaimParams.Nonce", "is zero; draw 16 random bytes per claim")
	case p.Lease <= 0:
		return invalid("ClaimParams.Lease", fmt.Sprintf("is %v; it must be positive", p.Lease))
	case p.Keep < 0:
		return invalid("ClaimParams.Keep", fmt.Sprintf("is %v; it must not be negative", p.Keep))
	}
	return checkMeta("ClaimParams.Meta", p.Meta)
}

// Validate is like ClaimParams.Validate.
func (p RenewParams) Validate() error {
	if p.Lease <= 0 {
		return invalid("RenewParams.Lease", fmt.Sprintf("is %v; it must be positive", p.Lease))
	}
	return checkMeta("RenewParams.Meta", p.Meta)
}

// Validate is like ClaimParams.Validate.
func (p CompleteParams) Validate() error {
	if p.Retention <= 0 {
		return invalid("CompleteParams.Retention", fmt.Sprintf("is %v; it must be positive", p.Retention))
	}
	return nil
}

// Validate is like ClaimParams.Validate.
func (p ReleaseParams) Validate() error {
	switch p.How {
	case Forget, Reject, Abandon:
		return checkMeta("ReleaseParams.Meta", p.Meta)
	}
	return invalid("ReleaseParams.How", fmt.Sprintf("is %v; use Forget, Reject or Abandon", p.How))
}

// Validate is like ClaimParams.Validate.
func (q Query) Validate() error {
	if q.Limit < 0 {
		return invalid("Query.Limit", fmt.Sprintf("is %d; use 0 for %d or a positive number", q.Limit, DefaultLimit))
	}
	return nil
}

// ValidatePurge is ClaimParams.Validate for the limit of Purge.
func ValidatePurge(limit int) error {
	if limit < 1 {
		return invalid("Purge limit", fmt.Sprintf("is %d; it must be at least 1", limit))
	}
	return nil
}

func checkMeta(field string, meta []byte) error {
	if len(meta) > MaxMeta {
		return fmt.Errorf("%w: %s has %d bytes, the limit is %d", ErrTooLarge, field, len(meta), MaxMeta)
	}
	return nil
}

func invalid(field, rule string) error {
	return fmt.Errorf("%w: %s %s", ErrInvalid, field, rule)
}
