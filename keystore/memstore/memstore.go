// Package memstore keeps the records of package keystore in memory.
//
// It is for tests, for programs that need no more than one process, and for
// merging the duplicates that meet in one process. What it holds ends with the
// process: after a restart nothing is known about what was under way, so where
// an effect must not happen twice across restarts, use a store on a disk.
//
// The store is bounded (see Config) and starts no goroutines. Every Claim
// removes a few of the records that have expired, and Purge removes the rest.
package memstore

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/idem-go/idem/keystore"
)

const (
	// shardBits is how many of an ID's first bits name its shard. They are
	// the first bits so that the shards are in the order of the IDs, which is
	// the order in which Records answers.
	shardBits = 6
	// alwaysFits is the size up to which a Meta or Result of an existing
	// record is accepted over MaxBytes too: an operation that has run must be
	// settled, if only with a note that its result was not kept.
	alwaysFits = 512
)

// Config bounds a Store. The zero Config is valid.
type Config struct {
	// MaxRecords is how many records the store holds; 0 means 1<<20. At the
	// bound a Claim that needs a new record is answered keystore.ErrFull.
	MaxRecords int
	// MaxBytes is how many bytes of Meta and Result the store holds in all;
	// 0 means 1 GiB. At the bound a Claim that needs a new record is answered
	// keystore.ErrFull, and a Result or Meta of more than 512 bytes
	// keystore.ErrTooLarge; smaller ones are accepted, so that what runs can
	// be settled. The bound is thus exceeded by at most 1 KiB per record.
	// What a record takes besides, about 400 bytes, is not counted.
	MaxBytes int64
	// MaxResult is the size of the largest Result in bytes; 0 means
	// keystore.MaxResult. Over it Complete answers keystore.ErrTooLarge. A
	// smaller one than keystore.MaxResult is less than the contract promises.
	MaxResult int
}

// Store is a keystore.Store and a keystore.Waiter in memory. It is safe for
// concurrent use. It needs no closing.
type Store struct {
	maxRecords, maxBytes int64
	maxResult            int

	// What all shards hold together.
	records, bytes atomic.Int64

	shards [1 << shardBits]shard
}

var (
	_ keystore.Store  = (*Store)(nil)
	_ keystore.Waiter = (*Store)(nil)
)

// shard holds the records of the IDs that begin with the same bits.
type shard struct {
	store *Store

	// mu guards everything below, and the rows in it. It is never held
	// together with another shard's, and never while waiting for anything.
	mu      sync.Mutex
	rows    map[[32]byte]*row
	peak    int        // how many rows the map has held since it was built
	expiry  expiryHeap // the rows that expire by themselves
	watches map[[32]byte]*watch

	// lastToken is the latest fencing token given. The shard's records share
	// it, so that a record's token rises even if the record was removed.
	lastToken uint64
}

// New returns an empty store. It fails where a field of cfg is negative.
func New(cfg Config) (*Store, error) {
	for _, field := range []struct {
		name  string
		value int64
	}{
		{"MaxRecords", int64(cfg.MaxRecords)},
		{"MaxBytes", cfg.MaxBytes},
		{"MaxResult", int64(cfg.MaxResult)},
	} {
		if field.value < 0 {
			return nil, fmt.Errorf("memstore: Config.%s is %d; use 0 for the default or a positive number",
				field.name, field.value)
		}
	}
	s := &Store{
		maxRecords: int64(cfg.MaxRecords),
		maxBytes:   cfg.MaxBytes,
		maxResult:  cfg.MaxResult,
	}
	if s.maxRecords == 0 {
		s.maxRecords = 1 << 20
	}
	if s.maxBytes == 0 {
		s.maxBytes = 1 << 30
	}
	if s.maxResult == 0 {
		s.maxResult = keystore.MaxResult
	}
	for i := range s.shards {
		s.shards[i].store = s
		s.shards[i].rows = make(map[[32]byte]*row)
	}
	return s, nil
}

// lock returns the shard of the ID with its mutex held.
func (s *Store) lock(id [32]byte) *shard {
	sh := &s.shards[shardIndex(id)]
	sh.mu.Lock()
	return sh
}

func shardIndex(id [32]byte) int { return int(id[0] >> (8 - shardBits)) }

// live returns the record of the ID, or nil where there is none or its
// retention is over.
func (sh *shard) live(id [32]byte, now time.Time) *row {
	r := sh.rows[id]
	if r != nil && r.outlived(now) {
		return nil
	}
	return r
}
