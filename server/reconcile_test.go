package server_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/keystore"
	"github.com/idem-go/idem/server"
)

// breakOffMany leaves n calls unresolved, a second apart.
func breakOffMany(t *testing.T, store keystore.Store, n int) {
	t.Helper()
	s := newServer(t, server.Config{Store: store, Retention: time.Hour})
	for i := range n {
		_, err := server.Run(t.Context(), s, idem.Intent{Scope: "q", ID: fmt.Sprint(i)}, func(context.Context) (int, error) { return 0, errDown })
		if !errors.Is(err, idem.ErrOutcomeUnknown) {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
	}
}

// B142: what nobody comes back for is found and settled, the oldest first.
func TestReconcile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t)
		breakOffMany(t, store, 230) // more than a page
		// The client half keeps its records in the same store.
		client, err := idem.New(idem.Config{Store: store, Scope: "shop"})
		if err != nil {
			t.Fatal(err)
		}
		_, err = idem.Do(t.Context(), client, idem.Intent{ID: "1"}, func(context.Context, idem.Key) (int, error) { return 0, errDown })
		if !errors.Is(err, idem.ErrOutcomeUnknown) {
			t.Fatal(err)
		}
		var mu sync.Mutex
		var ages []time.Duration
		now, most := 0, 0
		seen := &events{}
		s := newServer(t, server.Config{Store: store, Observer: seen, Recover: func(_ context.Context, p server.Pending) (server.Resolution, error) {
			mu.Lock()
			ages = append(ages, p.Age)
			now++
			most = max(most, now)
			mu.Unlock()
			time.Sleep(time.Millisecond)
			mu.Lock()
			now--
			mu.Unlock()
			return server.Resolution{Outcome: idem.OutcomeExecuted, Value: len(p.ID)}, nil
		}})
		n, err := s.Reconcile(t.Context())
		if n != 230 || err != nil || len(ages) != 230 || most != 4 {
			t.Fatalf("%d settled, %v; asked %d times, %d at once", n, err, len(ages), most)
		}
		for i := 4; i < len(ages); i++ {
			if ages[i] > ages[i-4] {
				t.Fatalf("asked about %v after %v", ages[i], ages[i-4])
			}
		}
		if all := seen.take(); len(all) != 230 || all[0].Name != idem.EventRecovered || all[0].Outcome != idem.OutcomeExecuted {
			t.Errorf("%d events", len(all))
		}
		got, err := server.Run(t.Context(), s, idem.Intent{Scope: "q", ID: "100"}, func(context.Context) (int, error) { t.Error("it ran"); return 0, nil })
		if got != 3 || err != nil {
			t.Errorf("%d, %v", got, err)
		}
		recs, err := store.Records(t.Context(), keystore.Query{Unresolved: true})
		if err != nil || len(recs) != 1 {
			t.Errorf("%d are left, %v; want the client half's", len(recs), err)
		}
		// They are replayed for as long as their own route says.
		time.Sleep(2 * time.Hour)
		got, err = server.Run(t.Context(), s, idem.Intent{Scope: "q", ID: "100"}, func(context.Context) (int, error) { return -1, nil })
		if got != -1 || err != nil {
			t.Errorf("after its retention: %d, %v", got, err)
		}
	})
}

// What is not settled is told of, each with its name.
func TestReconcileLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t)
		breakOffMany(t, store, 4)
		asked := map[string]int{}
		var mu sync.Mutex
		seen := &events{}
		s := newServer(t, server.Config{Store: store, Observer: seen, Recover: func(_ context.Context, p server.Pending) (server.Resolution, error) {
			mu.Lock()
			defer mu.Unlock()
			asked[p.ID]++
			switch p.ID {
			case "1":
				return server.Resolution{}, errDown
			case "2":
				return server.Resolution{}, nil
			}
			return server.Resolution{Outcome: idem.OutcomeNotExecuted}, nil
		}})
		for try := range 2 { // at once, so nobody is asked a second time
			n, err := s.Reconcile(t.Context())
			if n != map[int]int{0: 2}[try] {
				t.Errorf("%d settled", n)
			}
			if got := len(seen.take()); got != map[int]int{0: 4}[try] {
				t.Errorf("%d events", got)
			}
			var left []string
			for _, part := range err.(interface{ Unwrap() []error }).Unwrap() {
				var e *idem.Error
				if !errors.As(part, &e) || !errors.Is(e, server.ErrRecoveryRequired) || e.Outcome != idem.OutcomeUnknown || e.RetryAfter <= 0 || e.RetryAfter > time.Second {
					t.Errorf("%v", part)
				}
				if try == 0 && e.ID == "1" && !errors.Is(e, errDown) {
					t.Errorf("%v", e)
				}
				left = append(left, e.ID)
			}
			if slices.Sort(left); !slices.Equal(left, []string{"1", "2"}) {
				t.Errorf("left %q", left)
			}
		}
		if asked["1"] != 1 || asked["2"] != 1 {
			t.Errorf("asked %v", asked)
		}
		got, err := server.Run(t.Context(), s, idem.Intent{Scope: "q", ID: "3"}, func(context.Context) (int, error) { return 9, nil })
		if got != 9 || err != nil {
			t.Errorf("what was not executed: %d, %v", got, err)
		}
	})
}

// Two processes that reconcile at once ask about each record once.
func TestReconcileTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t)
		breakOffMany(t, store, 50)
		l := &lookup{res: server.Resolution{Outcome: idem.OutcomeExecuted, Value: 1}, do: func(context.Context) { time.Sleep(time.Second) }}
		var total int
		var mu sync.Mutex
		var all sync.WaitGroup
		for range 2 {
			s := newServer(t, server.Config{Store: store, Recover: l.recover})
			all.Go(func() {
				n, err := s.Reconcile(t.Context())
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				total += n
			})
		}
		all.Wait()
		if total != 50 || l.times() != 50 {
			t.Errorf("%d settled, asked %d times", total, l.times())
		}
	})
}

func TestReconcileEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t)
		breakOffMany(t, store, 20)
		l := &lookup{do: func(context.Context) { time.Sleep(time.Second) }}
		s := newServer(t, server.Config{Store: store, Recover: l.recover})
		ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		defer cancel()
		if n, err := s.Reconcile(ctx); n != 0 || !errors.Is(err, context.DeadlineExceeded) || l.times() > 8 {
			t.Errorf("%d, %v; asked %d times", n, err, l.times())
		}
		if err := s.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		if _, err := s.Reconcile(t.Context()); !errors.Is(err, idem.ErrShutdown) {
			t.Error(err)
		}
	})
	if _, err := newServer(t, server.Config{}).Reconcile(t.Context()); !errors.Is(err, idem.ErrConfig) || !strings.Contains(err.Error(), "Recover") {
		t.Error(err)
	}
}

// B094: a record whose note can't be read is told of, and hides no other.
func TestReconcileUnreadable(t *testing.T) {
	store := &spoiled{Store: newStore(t)}
	synctest.Test(t, func(t *testing.T) { breakOffMany(t, store, 3) })
	l := &lookup{res: server.Resolution{Outcome: idem.OutcomeExecuted, Value: 1}}
	n, err := newServer(t, server.Config{Store: store, Recover: l.recover}).Reconcile(t.Context())
	if n != 2 || !errors.Is(err, keystore.ErrCorrupt) {
		t.Errorf("%d, %v", n, err)
	}
}

// spoiled is a store whose first record's Meta is damaged.
type spoiled struct{ keystore.Store }

func (s *spoiled) Records(ctx context.Context, q keystore.Query) ([]keystore.Record, error) {
	recs, err := s.Store.Records(ctx, q)
	if len(recs) > 0 && q.After == [32]byte{} {
		recs[0].Meta = []byte("{")
	}
	return recs, err
}

// B148: a server must remember keys for as long as its clients send them.
func TestCheck(t *testing.T) {
	for _, tt := range []struct {
		name             string
		server, contract time.Duration
		stored           bool
		fits             bool
	}{
		{"defaults", 0, 0, true, true},
		{"forgets too early", time.Hour, 0, true, false},
		{"client knows", time.Hour, time.Hour, true, true},
		{"calls are short", time.Hour, 0, false, true},
		{"calls are long", 20 * time.Second, 0, false, false},
	} {
		cfg := idem.Config{Contract: idem.Contract{Retention: tt.contract}}
		if tt.stored {
			cfg.Store = newStore(t)
		}
		client, err := idem.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		err = newServer(t, server.Config{Retention: tt.server}).Check(client)
		if (err == nil) != tt.fits || err != nil && (!errors.Is(err, idem.ErrConfig) || !strings.Contains(err.Error(), "Retention")) {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
	if err := newServer(t, server.Config{}).Check(nil); !errors.Is(err, idem.ErrConfig) {
		t.Error(err)
	}
}
