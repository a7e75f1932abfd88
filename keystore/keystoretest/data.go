package keystoretest

import (
	"bytes"
	"fmt"
	"math"
	"time"

	"github.com/idem-go/idem/keystore"
)

// dataRules: bytes come back as they went in, IDs are compared whole, and
// every duration that is allowed is meant.
var dataRules = []rule{
	{"bytes-exact", "", func(p *probe) {
		for _, b := range [][]byte{
			nil,
			{},
			{0},
			[]byte("a\x00b\x00"),
			[]byte("\xff\xfe\xc3\x28\xed\xa0\x80"), // not UTF-8
			[]byte("  'quoted' \\x41 %s $1 ? \r\n "),
			allBytes(keystore.MaxMeta),
		} {
			c := p.params()
			c.Meta = b
			owner := p.acquire(c)
			p.ok("Complete", p.store.Complete(p.ctx, owner, keystore.CompleteParams{Result: b, Retention: long}))
			for _, rec := range []keystore.Record{p.claim(rival(c), keystore.Completed).Record, p.record(c.ID)} {
				p.bytesEqual("Meta", rec.Meta, b)
				p.bytesEqual("Result", rec.Result, b)
			}
		}
	}},

	{"large-results", "", func(p *probe) {
		for _, size := range []int{1 << 20, keystore.MaxResult} {
			c := p.params()
			b := allBytes(size)
			owner := p.acquire(c)
			p.ok("Complete", p.store.Complete(p.ctx, owner, keystore.CompleteParams{Result: b, Retention: long}))
			p.bytesEqual("Result", p.claim(rival(c), keystore.Completed).Record.Result, b)
		}
	}},

	{"bytes-are-copied", "", func(p *probe) {
		c := p.params()
		meta := []byte("meta")
		c.Meta = meta
		owner := p.acquire(c)
		clear(meta)
		p.metaIs(c.ID, "meta")
		meta = []byte("new meta")
		p.renew(owner, keystore.RenewParams{Lease: long, Meta: meta})
		clear(meta)
		p.metaIs(c.ID, "new meta")
		result := []byte("result")
		p.ok("Complete", p.store.Complete(p.ctx, owner, keystore.CompleteParams{Result: result, Retention: long}))
		clear(result)

		for range 2 {
			for _, rec := range []keystore.Record{p.claim(rival(c), keystore.Completed).Record, p.record(c.ID)} {
				p.bytesEqual("Meta", rec.Meta, []byte("new meta"))
				p.bytesEqual("Result", rec.Result, []byte("result"))
				clear(rec.Meta)
				clear(rec.Result)
			}
		}
	}},

	{"ids-distinct", "B064 B065", func(p *probe) {
		base := p.params()
		p.done(base, "base")
		var others [][32]byte
		for i := range base.ID {
			id := base.ID
			id[i] ^= 0x20 // the bit between a and A
			others = append(others, id)
		}
		// What a text column may take for the end, for nothing, or for equal.
		for _, end := range []string{"", "k", "k ", "K", "\x00k", "é", "e\u0301", "%", "_", "        "} {
			id := base.ID
			clear(id[24:])
			copy(id[24:], end)
			others = append(others, id)
		}
		for i, id := range others {
			c := p.params()
			c.ID = id
			p.done(c, fmt.Sprint(i))
		}
		for i, id := range others {
			if got := p.record(id).Result; string(got) != fmt.Sprint(i) {
				p.fatalf("ID %x has the Result %q, want %q: two IDs share a record", id, got, fmt.Sprint(i))
			}
		}
	}},

	{"durations-tiny", "B140", func(p *probe) {
		c := p.params()
		c.Lease = 1
		owner := p.acquire(c)
		p.untilDead(c.ID)
		p.renew(owner, keystore.RenewParams{Lease: 1})
		p.untilDead(c.ID)
		p.ok("Complete", p.store.Complete(p.ctx, owner, keystore.CompleteParams{Result: []byte("result"), Retention: 1}))
		p.untilGone(c.ID)
	}},

	{"durations-huge", "B140", func(p *probe) {
		c := p.params()
		c.Begun, c.Lease, c.Keep = true, math.MaxInt64, math.MaxInt64
		owner := p.acquire(c)
		p.claim(rival(c), keystore.InFlight)
		p.renew(owner, keystore.RenewParams{Lease: math.MaxInt64})
		p.claim(rival(c), keystore.InFlight)
		p.ok("Complete", p.store.Complete(p.ctx, owner, keystore.CompleteParams{Result: []byte("result"), Retention: math.MaxInt64}))
		p.claim(rival(c), keystore.Completed)

		free := p.params()
		free.Keep = math.MaxInt64
		p.release(p.acquire(free), keystore.Reject)
		p.purgeAll()
		p.freed(free, 1)
	}},

	{"age-is-plausible", "", func(p *probe) {
		c := p.params()
		start := time.Now()
		p.acquire(c)
		got := p.untilOlder(c.ID, 2*short)
		// Two clocks may differ in their pace, but not by this much.
		if most := time.Since(start) + patience; got > most {
			p.fatalf("Age is %v, but the first claim was at most %v ago", got, most)
		}
	}},
}

// bytesEqual wants the bytes, and takes nil for empty.
func (p *probe) bytesEqual(field string, got, want []byte) {
	p.t.Helper()
	if !bytes.Equal(got, want) {
		p.fatalf("%s came back as %d bytes beginning %.20q, want %d beginning %.20q", field, len(got), got, len(want), want)
	}
}

// allBytes returns n bytes in which every value occurs.
func allBytes(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i ^ i>>8)
	}
	return b
}
