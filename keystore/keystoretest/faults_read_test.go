package keystoretest

import (
	"context"
	"slices"
	"sync"

	"github.com/idem-go/idem/keystore"
)

// readFaults are faults in Records, Purge and Watch, and in naming records.
var readFaults = []fault{
	{"case of IDs ignored", "ids-distinct", renamed(func(id [32]byte) [32]byte {
		for i := range id {
			id[i] |= 0x20
		}
		return id
	})},
	{"IDs cut short", "ids-distinct", renamed(func(id [32]byte) [32]byte {
		id[31] = 0
		return id
	})},
	{"blanks at the end of IDs ignored", "ids-distinct", renamed(func(id [32]byte) [32]byte {
		for i := len(id) - 1; i > 0 && (id[i] == 0 || id[i] == ' '); i-- {
			id[i] = 0
		}
		return id
	})},

	{"scope ignored", "records-scope", onQuery(func(q *keystore.Query) {
		if q.ID != nil {
			q.Scope = nil
		}
	})},
	{"unresolved ignored", "records-unresolved", onQuery(func(q *keystore.Query) { q.Unresolved = false })},
	{"after ignored", "records-pages", onQuery(func(q *keystore.Query) { q.After = [32]byte{} })},
	{"no default limit", "records-default-limit", onQuery(func(q *keystore.Query) {
		if q.Limit == 0 {
			q.Limit = 1 << 20
		}
	})},
	{"limit ignored", "records-pages", onQuery(func(q *keystore.Query) { q.Limit = 1 << 20 })},
	{"descending order", "records-order", onRecords(func(_ *faulty, recs []keystore.Record) []keystore.Record {
		slices.Reverse(recs)
		return recs
	})},
	{"signed bytes in the order", "records-order", onRecords(func(_ *faulty, recs []keystore.Record) []keystore.Record {
		slices.SortFunc(recs, func(a, b keystore.Record) int {
			return slices.CompareFunc(a.ID[:], b.ID[:], func(a, b byte) int { return int(int8(a)) - int(int8(b)) })
		})
		return recs
	})},
	{"results not listed", "records-result", onRecords(func(_ *faulty, recs []keystore.Record) []keystore.Record {
		for i := range recs {
			recs[i].Result = nil
		}
		return recs
	})},
	{"reading claims", "records-claim-nothing", onRecords(func(f *faulty, recs []keystore.Record) []keystore.Record {
		for _, r := range recs {
			_, _ = f.take(r)
		}
		return recs
	})},
	{"expired records listed", "records-expired", func(f *faulty) {
		sound := f.records
		var mu sync.Mutex
		done := map[[32]byte]keystore.Record{}
		f.records = func(q keystore.Query) ([]keystore.Record, error) {
			mu.Lock()
			defer mu.Unlock()
			recs, err := sound(q)
			for _, r := range recs {
				done[r.Scope] = r
			}
			if q.Scope != nil && len(recs) == 0 && done[*q.Scope].State == keystore.Done {
				recs = append(recs, done[*q.Scope])
			}
			return recs, err
		}
	}},
	{"bytes not copied", "bytes-are-copied", func(f *faulty) {
		var mu sync.Mutex
		results := map[[32]byte][]byte{}
		complete, claim := f.complete, f.claim
		f.complete = func(o keystore.Owner, p keystore.CompleteParams) error {
			mu.Lock()
			defer mu.Unlock()
			results[o.ID] = p.Result
			return complete(o, p)
		}
		f.claim = func(p keystore.ClaimParams) (keystore.Claim, error) {
			mu.Lock()
			defer mu.Unlock()
			c, err := claim(p)
			if c.Status == keystore.Completed {
				c.Record.Result = results[p.ID]
			}
			return c, err
		}
	}},

	{"purge drops unresolved records", "purge-keeps-needed", func(f *faulty) {
		sound := f.purge
		f.purge = func(limit int) (int, error) {
			recs, _ := f.records(keystore.Query{Unresolved: true})
			for _, r := range recs {
				c, _ := f.take(r)
				_ = f.release(c.Owner, keystore.ReleaseParams{How: keystore.Forget})
			}
			return sound(limit)
		}
	}},
	{"purge removes nothing", "purge-free", func(f *faulty) {
		f.purge = func(int) (int, error) { return 0, nil }
	}},
	{"purge ignores its limit", "purge-limit", func(f *faulty) {
		f.purge = func(int) (int, error) { return f.Store.Purge(context.Background(), 1<<20) }
	}},

	{"watchers not woken", "watch-complete", func(f *faulty) {
		f.watch = func([32]byte) (<-chan struct{}, func()) { return make(chan struct{}), func() {} }
	}},
	{"second stop counts again", "watch-stop", func(f *faulty) {
		type watch struct {
			changed  chan struct{}
			watchers int
		}
		watches := map[[32]byte]*watch{}
		f.watch = func(id [32]byte) (<-chan struct{}, func()) {
			if watches[id] == nil {
				watches[id] = &watch{changed: make(chan struct{})}
			}
			w := watches[id]
			w.watchers++
			return w.changed, func() {
				if w.watchers--; w.watchers == 0 {
					delete(watches, id)
				}
			}
		}
		complete := f.complete
		f.complete = func(o keystore.Owner, p keystore.CompleteParams) error {
			err := complete(o, p)
			if w := watches[o.ID]; w != nil {
				close(w.changed)
			}
			return err
		}
	}},
}

// renamed is a store that takes IDs for equal which the function makes equal.
func renamed(rename func([32]byte) [32]byte) func(*faulty) {
	return func(f *faulty) {
		claim, complete, records := f.claim, f.complete, f.records
		f.claim = func(p keystore.ClaimParams) (keystore.Claim, error) {
			asked := p.ID
			p.ID = rename(asked)
			c, err := claim(p)
			c.Record.ID = asked
			if c.Status == keystore.Acquired {
				c.Owner.ID = asked
			}
			return c, err
		}
		f.complete = func(o keystore.Owner, p keystore.CompleteParams) error {
			o.ID = rename(o.ID)
			return complete(o, p)
		}
		f.records = func(q keystore.Query) ([]keystore.Record, error) {
			if q.ID != nil {
				id := rename(*q.ID)
				q.ID = &id
			}
			return records(q)
		}
	}
}

// onQuery is a store that reads a query otherwise.
func onQuery(change func(*keystore.Query)) func(*faulty) {
	return func(f *faulty) {
		sound := f.records
		f.records = func(q keystore.Query) ([]keystore.Record, error) {
			change(&q)
			return sound(q)
		}
	}
}

// onRecords is a store whose list is spoilt.
func onRecords(spoil func(*faulty, []keystore.Record) []keystore.Record) func(*faulty) {
	return func(f *faulty) {
		sound := f.records
		f.records = func(q keystore.Query) ([]keystore.Record, error) {
			recs, err := sound(q)
			return spoil(f, recs), err
		}
	}
}
