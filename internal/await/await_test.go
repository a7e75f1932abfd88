package await_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/idem-go/idem/internal/await"
	"github.com/idem-go/idem/keystore"
	"github.com/idem-go/idem/keystore/memstore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// counting counts the reads, and hides that the store is a Waiter.
type counting struct {
	keystore.Store
	reads atomic.Int32
	gone  atomic.Bool
	slow  time.Duration
	// returned counts the reads that are over.
	returned atomic.Int32
	err      atomic.Pointer[error]
}

func (s *counting) Records(ctx context.Context, q keystore.Query) ([]keystore.Record, error) {
	s.reads.Add(1)
	time.Sleep(s.slow) // whatever its context says
	defer s.returned.Add(1)
	if err := s.err.Load(); err != nil {
		return nil, *err
	}
	if s.gone.Load() {
		return nil, nil
	}
	return s.Store.Records(ctx, q)
}

// notifying is counting with its notifications.
type notifying struct {
	*counting
	keystore.Waiter
}

func newStore(t *testing.T) *counting {
	store, err := memstore.New(memstore.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return &counting{Store: store}
}

func claim(t *testing.T, store keystore.Store, lease time.Duration) keystore.Claim {
	t.Helper()
	c, err := store.Claim(t.Context(), keystore.ClaimParams{ID: [32]byte{1}, Nonce: [16]byte{1}, Lease: lease, Keep: time.Hour})
	if err != nil || c.Status != keystore.Acquired {
		t.Fatal(c, err)
	}
	return c
}

func TestWaitersShareTheirPolls(t *testing.T) {
	for _, notified := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			store := newStore(t)
			var s keystore.Store = store
			limit, late := 150, 75*time.Millisecond // two reads per poll, every 50 ms
			if notified {
				s = notifying{store, store.Store.(keystore.Waiter)}
				limit, late = 35, 0
			}
			w := await.New(s)
			c := claim(t, store, time.Minute)
			done := time.Now().Add(3 * time.Second)
			var wg sync.WaitGroup
			for range 1000 {
				wg.Go(func() {
					if err := w.Change(t.Context(), c.Record); err != nil {
						t.Error(err)
					}
					if after := time.Since(done); after < 0 || after > late {
						t.Errorf("told after %v", after)
					}
				})
			}
			time.Sleep(3 * time.Second)
			if err := store.Complete(t.Context(), c.Owner, keystore.CompleteParams{Retention: time.Hour}); err != nil {
				t.Fatal(err)
			}
			wg.Wait()
			if got := int(store.reads.Load()); got > limit || got < 10 {
				t.Errorf("notified %v: %d reads", notified, got)
			}
		})
	}
}

func TestWhatEndsAWait(t *testing.T) {
	tests := []struct {
		name string
		end  func(t *testing.T, store *counting, c keystore.Claim)
		err  error
	}{
		{"completed", func(t *testing.T, s *counting, c keystore.Claim) {
			_ = s.Complete(t.Context(), c.Owner, keystore.CompleteParams{Retention: time.Hour})
		}, nil},
		{"released", func(t *testing.T, s *counting, c keystore.Claim) {
			_ = s.Release(t.Context(), c.Owner, keystore.ReleaseParams{How: keystore.Forget})
		}, nil},
		{"abandoned", func(t *testing.T, s *counting, c keystore.Claim) {
			_ = s.Release(t.Context(), c.Owner, keystore.ReleaseParams{How: keystore.Abandon})
		}, nil},
		{"lease over", func(*testing.T, *counting, keystore.Claim) { time.Sleep(time.Minute) }, nil},
		{"taken over", func(t *testing.T, s *counting, c keystore.Claim) {
			_ = s.Release(t.Context(), c.Owner, keystore.ReleaseParams{How: keystore.Forget})
			_, _ = s.Claim(t.Context(), keystore.ClaimParams{ID: c.Owner.ID, Nonce: [16]byte{2}, Lease: time.Hour})
		}, nil},
		{"vanished", func(_ *testing.T, s *counting, _ keystore.Claim) {
			s.gone.Store(true)
		}, await.ErrGone},
		{"store error", func(_ *testing.T, s *counting, _ keystore.Claim) {
			s.err.Store(&errDown)
		}, errDown},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := newStore(t)
				w := await.New(store)
				c := claim(t, store, time.Minute)
				got := make(chan error, 1)
				go func() { got <- w.Change(t.Context(), c.Record) }()
				time.Sleep(10 * time.Second)
				synctest.Wait()
				tt.end(t, store, c)
				ended := time.Now()
				if err := <-got; !errors.Is(err, tt.err) {
					t.Errorf("got %v", err)
				}
				if after := time.Since(ended); after > 150*time.Millisecond {
					t.Errorf("told after %v", after)
				}
			})
		})
	}
}

var errDown = errors.New("the store is down")

// A waiter that leaves, leaves alone; the last one ends the poll.
func TestLeaving(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t)
		w := await.New(store)
		c := claim(t, store, time.Hour)
		ctx, cancel := context.WithCancel(t.Context())
		stayed := make(chan error, 1)
		go func() { stayed <- w.Change(ctx, c.Record) }()
		short, stop := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer stop()
		if err := w.Change(short, c.Record); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		time.Sleep(time.Second)
		select {
		case err := <-stayed:
			t.Fatal(err)
		default:
		}
		cancel()
		if err := <-stayed; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		synctest.Wait()
		reads := store.reads.Load()
		time.Sleep(time.Minute)
		if store.reads.Load() != reads {
			t.Error("reads go on though nobody waits")
		}
	})
}

func TestStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t)
		store.slow = time.Second
		w := await.New(store)
		c := claim(t, store, time.Hour)
		got := make(chan error, 1)
		go func() { got <- w.Change(t.Context(), c.Record) }()
		synctest.Wait()
		w.Stop()
		if store.reads.Load() != store.returned.Load() {
			t.Error("a read is under way after Stop")
		}
		w.Stop()
		if err := <-got; !errors.Is(err, await.ErrStopped) {
			t.Error(err)
		}
		if err := w.Change(t.Context(), c.Record); !errors.Is(err, await.ErrStopped) {
			t.Error(err)
		}
	})
}
