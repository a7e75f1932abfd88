package tiered_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idem-go/idem/keystore"
	"github.com/idem-go/idem/keystore/keystoretest"
	"github.com/idem-go/idem/keystore/memstore"
	"github.com/idem-go/idem/keystore/tiered"
)

func memory(t testing.TB) *memstore.Store {
	t.Helper()
	s, err := memstore.New(memstore.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func store(t testing.TB, front, back keystore.Store, cfg tiered.Config) keystore.Store {
	t.Helper()
	s, err := tiered.New(front, back, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// front is a store that may fail before each call, or be flushed.
type front struct {
	mu    sync.Mutex
	store keystore.Store
	// before each call; an error is the call's.
	before func(context.Context) error
	reads  atomic.Int64
}

func (f *front) get(ctx context.Context) (keystore.Store, error) {
	f.mu.Lock()
	s := f.store
	f.mu.Unlock()
	if f.before != nil {
		return s, f.before(ctx)
	}
	return s, nil
}

func (f *front) flush(s keystore.Store) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.store = s
}

func (f *front) Claim(ctx context.Context, p keystore.ClaimParams) (keystore.Claim, error) {
	s, err := f.get(ctx)
	if err != nil {
		return keystore.Claim{}, err
	}
	return s.Claim(ctx, p)
}

func (f *front) Renew(context.Context, keystore.Owner, keystore.RenewParams) error {
	panic("the front is never asked to renew")
}

func (f *front) Complete(ctx context.Context, o keystore.Owner, p keystore.CompleteParams) error {
	s, err := f.get(ctx)
	if err != nil {
		return err
	}
	return s.Complete(ctx, o, p)
}

func (f *front) Release(ctx context.Context, o keystore.Owner, p keystore.ReleaseParams) error {
	s, err := f.get(ctx)
	if err != nil {
		return err
	}
	return s.Release(ctx, o, p)
}

func (f *front) Records(ctx context.Context, q keystore.Query) ([]keystore.Record, error) {
	f.reads.Add(1)
	s, err := f.get(ctx)
	if err != nil {
		return nil, err
	}
	return s.Records(ctx, q)
}

func (f *front) Purge(ctx context.Context, limit int) (int, error) {
	s, err := f.get(ctx)
	if err != nil {
		return 0, err
	}
	return s.Purge(ctx, limit)
}

var errFront = errors.New("front is down")

// The contract holds whatever the front does.
func TestContract(t *testing.T) {
	for name, before := range map[string]func(context.Context) error{
		"sound": nil,
		"down":  func(context.Context) error { return errFront },
		"at random": func(context.Context) error {
			if rand.N(2) == 0 {
				return errFront
			}
			return nil
		},
		"hanging": func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
	} {
		t.Run(name, func(t *testing.T) {
			cfg := tiered.Config{}
			if name == "hanging" {
				cfg.FrontTimeout = time.Millisecond
			}
			keystoretest.Run(t, func(t *testing.T) keystore.Store {
				return store(t, &front{store: memory(t), before: before}, memory(t), cfg)
			})
		})
	}
}

// A front that forgets, at any moment, has nothing executed twice.
func TestLosingTheFront(t *testing.T) {
	const intents, racers = 300, 6
	f := &front{store: memory(t)}
	s := store(t, f, memory(t), tiered.Config{FrontTimeout: time.Second})
	var executed [intents]atomic.Int64
	var replayed atomic.Int64
	var wg sync.WaitGroup
	for range racers {
		wg.Go(func() {
			for i := range intents {
				p := keystore.ClaimParams{ID: keystore.RecordID(keystore.Server, "s", "id", fmt.Sprint(i)), Lease: time.Hour, Begun: true}
				for k := range p.Nonce {
					p.Nonce[k] = byte(rand.N(256))
				}
				switch c, err := s.Claim(t.Context(), p); {
				case err != nil:
					t.Error(err)
				case c.Status == keystore.Acquired:
					executed[i].Add(1)
					if err := s.Complete(t.Context(), c.Owner, keystore.CompleteParams{Result: []byte(fmt.Sprint(i)), Retention: time.Hour}); err != nil {
						t.Error(err)
					}
				case c.Status == keystore.Completed:
					replayed.Add(1)
					if string(c.Record.Result) != fmt.Sprint(i) {
						t.Errorf("intent %d replays %q", i, c.Record.Result)
					}
				}
				if rand.N(20) == 0 {
					f.flush(memory(t))
				}
			}
		})
	}
	wg.Wait()
	for i := range executed {
		if n := executed[i].Load(); n != 1 {
			t.Errorf("intent %d was executed %d times", i, n)
		}
	}
	if replayed.Load() == 0 {
		t.Error("nothing was replayed, so nothing was shown")
	}
}

func params(name string) keystore.ClaimParams {
	return keystore.ClaimParams{ID: keystore.RecordID(keystore.Server, "s", "id", name), Nonce: [16]byte{1}, Lease: time.Hour, Meta: []byte("meta")}
}

func settle(t *testing.T, s keystore.Store, p keystore.ClaimParams, retention time.Duration) {
	t.Helper()
	c, err := s.Claim(t.Context(), p)
	if err != nil || c.Status != keystore.Acquired {
		t.Fatalf("%v, %v", c.Status, err)
	}
	if err := s.Complete(t.Context(), c.Owner, keystore.CompleteParams{Result: []byte("result"), Retention: retention}); err != nil {
		t.Fatal(err)
	}
}

// broken is a store that must not be asked.
type broken struct{ keystore.Store }

func (broken) Claim(context.Context, keystore.ClaimParams) (keystore.Claim, error) {
	return keystore.Claim{}, errors.New("the back was asked")
}

// A replay asks the front alone, and says what the back would say.
func TestReplayAsksTheFront(t *testing.T) {
	f, back := &front{store: memory(t)}, memory(t)
	p := params("a")
	settle(t, store(t, f, back, tiered.Config{}), p, time.Hour)
	p.Nonce[0]++
	want, err := back.Claim(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	alone := store(t, f, broken{back}, tiered.Config{FrontTimeout: time.Minute})
	got, err := alone.Claim(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	if got.Record.Age < 0 || got.Record.Age > time.Minute {
		t.Errorf("age %v", got.Record.Age)
	}
	got.Record.Age, want.Record.Age = 0, 0
	if g, w := fmt.Sprintf("%+v", got), fmt.Sprintf("%+v", want); g != w {
		t.Errorf("got  %s\nwant %s", g, w)
	}
	p.Fingerprint[0]++
	got, err = alone.Claim(t.Context(), p)
	if err != nil || got.Status != keystore.Mismatch || got.Record.Result != nil {
		t.Errorf("another fingerprint: %+v, %v", got, err)
	}
}

// late delays the call that settles a copy, as a network may.
type late struct {
	keystore.Store
	by time.Duration
}

func (l late) Complete(ctx context.Context, o keystore.Owner, p keystore.CompleteParams) error {
	time.Sleep(l.by)
	return l.Store.Complete(ctx, o, p)
}

// A copy never outlives its record, however late it was written.
func TestCopyExpiresWithItsRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := memory(t)
		s := store(t, late{mem, 30 * time.Second}, memory(t), tiered.Config{FrontTimeout: time.Hour})
		p := params("a")
		settle(t, s, p, time.Minute)
		p.Nonce[0]++
		if c, err := s.Claim(t.Context(), p); err != nil || c.Status != keystore.Completed {
			t.Fatalf("%v, %v", c.Status, err)
		}
		time.Sleep(30 * time.Second)
		if recs, err := mem.Records(t.Context(), keystore.Query{ID: &p.ID}); err != nil || len(recs) != 1 {
			t.Fatalf("the front has %d copies, %v; the test shows nothing", len(recs), err)
		}
		if c, err := s.Claim(t.Context(), p); err != nil || c.Status != keystore.Acquired {
			t.Errorf("after the retention: %v, %v", c.Status, err)
		}
	})
}

// What can't be read in front counts as absent.
func TestForeignRecordInFront(t *testing.T) {
	mem := memory(t)
	p := params("a")
	settle(t, mem, p, time.Hour)
	var told error
	s := store(t, mem, memory(t), tiered.Config{OnFrontError: func(err error) { told = err }})
	if c, err := s.Claim(t.Context(), p); err != nil || c.Status != keystore.Acquired {
		t.Errorf("%v, %v", c.Status, err)
	}
	if told == nil {
		t.Error("nobody was told")
	}
}

func TestPurgesBoth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := memory(t)
		s := store(t, mem, memory(t), tiered.Config{})
		settle(t, s, params("a"), time.Second)
		time.Sleep(2 * time.Second)
		if n, err := s.Purge(t.Context(), 10); n != 1 || err != nil {
			t.Errorf("purged %d, %v", n, err)
		}
		if n, _ := mem.Purge(t.Context(), 10); n != 0 {
			t.Errorf("%d copies were left", n)
		}
	})
}

func TestNewRefuses(t *testing.T) {
	mem := memory(t)
	for name, err := range map[string]error{
		"no front":  second(tiered.New(nil, mem, tiered.Config{})),
		"no back":   second(tiered.New(mem, (*memstore.Store)(nil), tiered.Config{})),
		"a timeout": second(tiered.New(mem, mem, tiered.Config{FrontTimeout: -1})),
	} {
		if err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
}

func second(_ keystore.Store, err error) error { return err }

func ExampleNew() {
	front, _ := memstore.New(memstore.Config{}) // in production redisstore
	back, _ := memstore.New(memstore.Config{})  // in production pgstore
	store, err := tiered.New(front, back, tiered.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	n, err := store.Purge(context.Background(), 100)
	fmt.Println(n, err)
	// Output: 0 <nil>
}

func BenchmarkStore(b *testing.B) {
	keystoretest.Bench(b, func(*testing.B) keystore.Store { return store(b, memory(b), memory(b), tiered.Config{}) })
}
