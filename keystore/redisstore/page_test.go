package redisstore

import (
	"math/rand/v2"
	"testing"

	"github.com/idem-go/idem/keystore"
)

// SCAN may return a key twice, and nodes answer in any order.
func TestPageIsSortedAndWithoutDoubles(t *testing.T) {
	const n, limit, after = 50, 10, 7
	p := newPage(keystore.Query{Limit: limit, After: [32]byte{after}})
	for _, i := range append(rand.Perm(n), rand.Perm(n)...) {
		id := [32]byte{byte(i)}
		if p.wants(id) {
			p.add(entry{id: id, rec: keystore.Record{ID: id}})
		}
	}
	p.add(entry{id: [32]byte{after + 1}, rec: keystore.Record{ID: [32]byte{after + 1}, Token: 2}})
	recs, err := p.records()
	ok(t, err)
	if len(recs) != limit {
		t.Fatalf("the page has %d records, want %d", len(recs), limit)
	}
	for i, rec := range recs {
		if rec.ID != [32]byte{byte(after + 1 + i)} {
			t.Errorf("record %d of the page is %d, want %d", i, rec.ID[0], after+1+i)
		}
	}
	if recs[0].Token != 2 {
		t.Error("the page kept the older look at a record")
	}
}
