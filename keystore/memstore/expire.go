package memstore

import (
	"container/heap"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/idem-go/idem/keystore"
)

const (
	// removedPerClaim is how many expired records a Claim removes from its
	// shard. It adds at most one, so any number above one catches up.
	removedPerClaim = 4
	// removedPerLock is how many records are removed under one hold of a
	// shard's mutex.
	removedPerLock = 256
	// shrinkFrom is the size below which a map is not worth rebuilding.
	shrinkFrom = 64
)

// Purge implements keystore.Store.
func (s *Store) Purge(ctx context.Context, limit int) (int, error) {
	if err := keystore.ValidatePurge(limit); err != nil {
		return 0, err
	}
	n := s.purge(ctx, limit)
	if n < limit {
		return n, ctx.Err()
	}
	return n, nil
}

// purge removes at most limit expired records. It stops early when ctx ends.
func (s *Store) purge(ctx context.Context, limit int) (removed int) {
	for i := range s.shards {
		sh := &s.shards[i]
		for more := true; more; {
			if removed == limit || ctx.Err() != nil {
				return removed
			}
			batch := min(limit-removed, removedPerLock)
			sh.mu.Lock()
			n := sh.removeExpired(time.Now(), batch)
			sh.mu.Unlock()
			removed += n
			more = n == batch
		}
	}
	return removed
}

// removeExpired removes at most limit expired records, the longest expired
// first.
func (sh *shard) removeExpired(now time.Time, limit int) (removed int) {
	for removed < limit && len(sh.expiry) > 0 && !sh.expiry[0].at.After(now) {
		sh.remove(sh.expiry[0].row)
		removed++
	}
	return removed
}

// remove takes r out of the shard.
func (sh *shard) remove(r *row) {
	delete(sh.rows, r.id)
	if r.heapIndex >= 0 {
		heap.Remove(&sh.expiry, r.heapIndex)
	}
	sh.store.records.Add(-1)
	sh.store.bytes.Add(-int64(len(r.meta) + len(r.result)))
	sh.wake(r.id)
	sh.shrink()
}

// shrink rebuilds what has become much larger than its content: neither a Go
// map nor a slice gives memory back by itself. A rebuild copies at most a third
// as many records as were removed since the last one.
func (sh *shard) shrink() {
	if sh.peak < shrinkFrom || len(sh.rows) > sh.peak/4 {
		return
	}
	rows := make(map[[32]byte]*row, len(sh.rows))
	maps.Copy(rows, sh.rows)
	sh.rows = rows
	sh.expiry = slices.Clone(sh.expiry)
	sh.peak = len(rows)
}

// schedule puts r where it belongs among the expiring records. It is called
// after every change of r's state or times.
func (sh *shard) schedule(r *row) {
	at, ok := r.expires()
	switch {
	case ok && r.heapIndex >= 0:
		sh.expiry[r.heapIndex].at = at
		heap.Fix(&sh.expiry, r.heapIndex)
	case ok:
		// Not heap.Push, which would move it to Go's heap first.
		r.heapIndex = len(sh.expiry)
		sh.expiry = append(sh.expiry, expiring{at, r})
		heap.Fix(&sh.expiry, r.heapIndex)
	case r.heapIndex >= 0:
		heap.Remove(&sh.expiry, r.heapIndex)
	}
}

// expiring is a record that may be removed at a time.
type expiring struct {
	at  time.Time
	row *row
}

// expiryHeap is a heap.Interface, the record that expires first on top.
type expiryHeap []expiring

func (h expiryHeap) Len() int           { return len(h) }
func (h expiryHeap) Less(i, j int) bool { return h[i].at.Before(h[j].at) }

func (h expiryHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].row.heapIndex, h[j].row.heapIndex = i, j
}

// Push implements heap.Interface. Nothing calls it.
func (h *expiryHeap) Push(any) { panic("memstore: see schedule") }

// Pop implements heap.Interface. What it removes, nobody asks for.
func (h *expiryHeap) Pop() any {
	last := len(*h) - 1
	(*h)[last].row.heapIndex = -1
	(*h)[last] = expiring{} // or the array would keep the row alive
	*h = (*h)[:last]
	return nil
}
