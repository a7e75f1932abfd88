package lincheck

import (
	"context"
	crand "crypto/rand"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/idem-go/idem/keystore"
)

const (
	// long is a time that does not end during a test.
	long = time.Hour
	// Workers call about so many records at once, and each of them so often
	// before they turn to the next.
	recordsAtOnce  = 3
	callsPerRecord = 40
)

// Run has workers, spread over the stores, make random calls to shared new
// records, and checks what they were answered.
func Run(t testing.TB, workers, callsEach int, stores ...keystore.Store) {
	t.Helper()
	var h History
	ids := IDs(1 + workers*callsEach/callsPerRecord)
	var wg sync.WaitGroup
	for i := range workers {
		wg.Go(func() {
			w := NewWorker(&h, i, stores[i%len(stores)], ids)
			for range callsEach {
				if err := w.Call(t.Context()); err != nil {
					t.Errorf("lincheck: worker %d: %v", i, err)
					return
				}
			}
		})
	}
	wg.Wait()
	h.Check(t)
}

// IDs returns the IDs of n new records.
func IDs(n int) [][32]byte {
	ids := make([][32]byte, n)
	for i := range ids {
		_, _ = crand.Read(ids[i][:])
	}
	return ids
}

// Worker makes random calls. It is for one goroutine.
type Worker struct {
	h      *History
	store  keystore.Store
	ids    [][32]byte
	number int
	calls  int
	claims map[[32]byte]keystore.ClaimParams // the latest of each record
	owners map[[32]byte]keystore.Owner
}

// NewWorker returns a worker whose calls to the records h writes down. Workers
// of one history have different numbers and the same IDs, which they go through
// side by side, from the start again after the last.
func NewWorker(h *History, number int, s keystore.Store, ids [][32]byte) *Worker {
	return &Worker{
		h: h, store: h.Store(s, number), ids: ids, number: number,
		claims: map[[32]byte]keystore.ClaimParams{}, owners: map[[32]byte]keystore.Owner{},
	}
}

// Call makes one call. An error is the backend's: being fenced is none.
func (w *Worker) Call(ctx context.Context) error {
	w.calls++
	turn := int(w.h.turns.Add(1)) / callsPerRecord
	id := w.ids[(turn+rand.IntN(recordsAtOnce))%len(w.ids)]
	err := w.call(ctx, id)
	if (output{err: err}).unknown() {
		return err
	}
	return nil
}

func (w *Worker) call(ctx context.Context, id [32]byte) error {
	text := fmt.Appendf(nil, "%d/%d", w.number, w.calls)
	meta := [][]byte{nil, nil, {}, text}[rand.IntN(4)]
	owner, owns := w.owners[id]
	n := rand.IntN(10)
	if !owns && n > 3 {
		n %= 4
	}
	switch n {
	case 0:
		_, err := w.store.Records(ctx, keystore.Query{ID: &id})
		return err
	case 1:
		if p, ok := w.claims[id]; ok { // as after a lost answer
			return w.claim(ctx, p)
		}
		fallthrough
	case 2, 3:
		p := keystore.ClaimParams{
			ID: id, Fingerprint: [32]byte{1}, Lease: long, Keep: long, Meta: meta,
			Begun: rand.IntN(2) == 0, Takeover: rand.IntN(2) == 0,
		}
		_, _ = crand.Read(p.Nonce[:])
		if rand.IntN(8) == 0 {
			p.Fingerprint[0] = 2
		}
		return w.claim(ctx, p)
	case 4, 5:
		return w.store.Renew(ctx, owner, keystore.RenewParams{Lease: long, Begun: rand.IntN(2) == 0, Meta: meta})
	case 6:
		return w.store.Complete(ctx, owner, keystore.CompleteParams{Result: text, Retention: long})
	}
	how := []keystore.How{keystore.Forget, keystore.Reject, keystore.Abandon}[n-7]
	return w.store.Release(ctx, owner, keystore.ReleaseParams{How: how, Meta: meta})
}

func (w *Worker) claim(ctx context.Context, p keystore.ClaimParams) error {
	w.claims[p.ID] = p
	c, err := w.store.Claim(ctx, p)
	if c.Status == keystore.Acquired {
		w.owners[p.ID] = c.Owner
	}
	return err
}
