package memstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/idem-go/idem/keystore"
)

// errBound marks the errors for want of room in the whole store, which
// removing expired records can mend.
var errBound = errors.New("memstore is at its bound")

// madeRoom tells whether a call that has failed with err should be repeated: it
// found no room, and expired records, of whatever shard, could be removed. No
// shard's mutex may be held.
func (s *Store) madeRoom(err error) bool {
	return err != nil && errors.Is(err, errBound) && s.purge(context.Background(), removedPerLock) > 0
}

// add counts a new record with so many bytes of Meta, if there is room.
func (s *Store) add(meta int) error {
	if !reserve(&s.records, 1, s.maxRecords) {
		return fmt.Errorf("%w: %w: Config.MaxRecords is %d", keystore.ErrFull, errBound, s.maxRecords)
	}
	if !reserve(&s.bytes, meta, s.maxBytes) {
		s.records.Add(-1)
		return fmt.Errorf("%w: %w: Config.MaxBytes is %d", keystore.ErrFull, errBound, s.maxBytes)
	}
	return nil
}

// replace sets the Meta or Result of a record to a copy of b, if there is room.
func (s *Store) replace(field *[]byte, b []byte) error {
	more := len(b) - len(*field)
	if more <= 0 || len(b) <= alwaysFits {
		s.bytes.Add(int64(more))
	} else if !reserve(&s.bytes, more, s.maxBytes) {
		return fmt.Errorf("%w: %w: %d bytes more, Config.MaxBytes is %d", keystore.ErrTooLarge, errBound, more, s.maxBytes)
	}
	*field = bytes.Clone(b)
	return nil
}

// reserve adds n to total unless that takes it over the limit.
func reserve(total *atomic.Int64, n int, limit int64) bool {
	for {
		old := total.Load()
		if old+int64(n) > limit {
			return false
		}
		if total.CompareAndSwap(old, old+int64(n)) {
			return true
		}
	}
}
