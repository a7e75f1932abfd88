package redisstore

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/idem-go/idem/keystore"
)

// B159: whatever is done, in whatever order, a record either has an expiry or
// is running and begun.
func TestB159EveryRecordExpiresOrIsBegun(t *testing.T) {
	s := newStore(t, shared, Config{})
	seed := uint64(time.Now().UnixNano())
	r := rand.New(rand.NewPCG(seed, 0))
	ids := make([][32]byte, 8)
	owners := make([]keystore.Owner, len(ids))
	for i := range ids {
		ids[i] = params().ID
	}
	var expire, stay int
	for step := range 1500 {
		i := r.IntN(len(ids))
		var what string
		var err error
		switch r.IntN(12) {
		case 0, 1, 2, 3, 4, 5:
			p := params()
			p.ID, p.Begun, p.Takeover = ids[i], r.IntN(2) == 0, r.IntN(2) == 0
			p.Lease = []time.Duration{time.Nanosecond, time.Hour}[r.IntN(2)]
			what = "Claim"
			var c keystore.Claim
			if c, err = s.Claim(t.Context(), p); c.Status == keystore.Acquired {
				owners[i] = c.Owner
			}
		case 6, 7, 8:
			what = "Renew"
			err = s.Renew(t.Context(), owners[i], keystore.RenewParams{Lease: time.Hour, Begun: r.IntN(2) == 0})
		case 9:
			what = "Complete"
			err = s.Complete(t.Context(), owners[i], keystore.CompleteParams{Retention: time.Millisecond << r.IntN(3)})
		default:
			how := keystore.How(1 + r.IntN(3))
			what = "Release " + how.String()
			err = s.Release(t.Context(), owners[i], keystore.ReleaseParams{How: how})
		}
		ttl, ttlErr := s.client.PTTL(t.Context(), s.key(ids[i])).Result()
		ok(t, ttlErr)
		recs := records(t, s, keystore.Query{ID: &ids[i]})
		if len(recs) == 0 {
			continue
		}
		begun := recs[0].State == keystore.Running && recs[0].Begun
		if never := ttl == -1; never != begun {
			t.Fatalf("seed %d, step %d, %s (%v): PTTL %v, but the record is %v, begun %t",
				seed, step, what, err, ttl, recs[0].State, recs[0].Begun)
		}
		if begun {
			stay++
		} else {
			expire++
		}
	}
	if stay < 100 || expire < 100 {
		t.Errorf("seed %d: %d records that stay and %d that expire were seen: too few to tell", seed, stay, expire)
	}
}

// The expiry of each kind of record is the one that the contract allows.
func TestExpiryIsRetentionOrKeep(t *testing.T) {
	s := newStore(t, shared, Config{})
	const lease, keep, retention = 10 * time.Minute, 2 * time.Hour, 30 * time.Hour
	for name, tt := range map[string]struct {
		begun bool
		do    func(keystore.Owner)
		want  time.Duration // from now; 0 means never
	}{
		"running":        {false, func(keystore.Owner) {}, lease + keep},
		"running, begun": {true, func(keystore.Owner) {}, 0},
		"begun later": {false, func(o keystore.Owner) {
			ok(t, s.Renew(t.Context(), o, keystore.RenewParams{Lease: lease, Begun: true}))
		}, 0},
		"renewed": {false, func(o keystore.Owner) {
			ok(t, s.Renew(t.Context(), o, keystore.RenewParams{Lease: 2 * lease}))
		}, 2*lease + keep},
		"abandoned":        {false, func(o keystore.Owner) { release(t, s, o, keystore.Abandon) }, keep},
		"abandoned, begun": {true, func(o keystore.Owner) { release(t, s, o, keystore.Abandon) }, 0},
		"forgotten":        {true, func(o keystore.Owner) { release(t, s, o, keystore.Forget) }, keep},
		"rejected":         {true, func(o keystore.Owner) { release(t, s, o, keystore.Reject) }, keep},
		"done": {true, func(o keystore.Owner) {
			ok(t, s.Complete(t.Context(), o, keystore.CompleteParams{Retention: retention}))
		}, retention},
	} {
		p := params()
		p.Begun, p.Lease, p.Keep = tt.begun, lease, keep
		tt.do(acquire(t, s, p))
		got, err := s.client.PTTL(t.Context(), s.key(p.ID)).Result()
		ok(t, err)
		if tt.want == 0 && got != -1 || tt.want > 0 && (got > tt.want+time.Millisecond || got < tt.want-time.Minute) {
			t.Errorf("%s: the key expires in %v, want %v", name, got, tt.want)
		}
	}
}

// Redis removes what is over by itself: neither the keys nor what they take
// stay.
func TestSettledRecordsVanish(t *testing.T) {
	s := newStore(t, shared, Config{})
	for i := range 30 {
		p := params()
		p.Begun, p.Keep = false, time.Millisecond
		switch i % 3 {
		case 0:
			p.Lease = time.Millisecond
			acquire(t, s, p)
		case 1:
			release(t, s, acquire(t, s, p), keystore.Forget)
		case 2:
			ok(t, s.Complete(t.Context(), acquire(t, s, p), keystore.CompleteParams{Retention: time.Millisecond}))
		}
	}
	eventually(t, "the end of all keys", func() bool {
		keys, _, err := s.client.Scan(t.Context(), 0, s.prefix+"*", 1<<20).Result()
		ok(t, err)
		return len(keys) == 0
	})
	if n, err := s.Purge(t.Context(), 1); n != 0 || err != nil {
		t.Errorf("Purge: %d, %v", n, err)
	}
}

// A walk keeps its order and its pages over more keys than one step looks at.
func TestPagesOfManyRecords(t *testing.T) {
	s := newStore(t, shared, Config{})
	const n = 3 * keysPerScan
	want := map[[32]byte]bool{}
	for range n {
		want[acquire(t, s, params()).ID] = true
	}
	var after [32]byte
	for pages := 0; ; pages++ {
		recs := records(t, s, keystore.Query{After: after, Limit: 400})
		if len(recs) == 0 {
			if pages != 4 {
				t.Errorf("%d pages, want 4", pages)
			}
			break
		}
		for _, rec := range recs {
			if !want[rec.ID] || string(after[:]) >= string(rec.ID[:]) {
				t.Fatalf("the record %x is unknown, out of order or there twice", rec.ID[:4])
			}
			delete(want, rec.ID)
			after = rec.ID
		}
	}
	if len(want) != 0 {
		t.Errorf("%d of %d records are on no page", len(want), n)
	}
}
