package keystore_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idem-go/idem/keystore"
	"github.com/idem-go/idem/keystore/memstore"
)

// purges answers Purge as told and counts the calls.
type purges struct {
	keystore.Store
	answers []any // an int or an error
	limits  []int
}

func (p *purges) Purge(_ context.Context, limit int) (int, error) {
	p.limits = append(p.limits, limit)
	if len(p.answers) == 0 {
		return 0, nil
	}
	next := p.answers[0]
	p.answers = p.answers[1:]
	if err, ok := next.(error); ok {
		return 0, err
	}
	return next.(int), nil
}

func TestSweeperSweeps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		boom := errors.New("boom")
		store := &purges{answers: []any{5, 5, 4, boom, 5, 0}}
		var told []error
		err := keystore.Sweeper{Store: store, Every: 3 * time.Second, Batch: 5, OnError: func(err error) { told = append(told, err) }}.Run(ctx)
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Run ended with %v", err)
		}
		// The first sweep takes three batches, the second fails, the third
		// takes two; whoever does not pause would be far beyond.
		if n := len(store.limits); n < 6 || n > 12 || store.limits[0] != 5 {
			t.Errorf("%d calls with limits %v", n, store.limits)
		}
		if len(told) != 1 || told[0] != boom {
			t.Errorf("told of %v", told)
		}
	})
}

// A table under steady load stays flat.
func TestSweeperKeepsTheStoreFlat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, err := memstore.New(memstore.Config{})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- keystore.Sweeper{Store: store, Every: time.Second}.Run(ctx) }()
		for i := range 2000 {
			id := keystore.RecordID(keystore.Server, "s", "id", fmt.Sprint(i))
			c, err := store.Claim(ctx, keystore.ClaimParams{ID: id, Nonce: [16]byte{1}, Lease: time.Hour})
			if err != nil {
				t.Fatal(err)
			}
			if err := store.Complete(ctx, c.Owner, keystore.CompleteParams{Retention: time.Second}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if n, err := store.Purge(ctx, 1000); n != 0 || err != nil {
			t.Errorf("%d expired records were left, %v", n, err)
		}
		cancel()
		<-done
	})
}

func TestSweeperRefuses(t *testing.T) {
	store := &purges{}
	for field, s := range map[string]keystore.Sweeper{
		"Store": {}, "Every": {Store: store, Every: -1}, "Batch": {Store: store, Batch: -1},
	} {
		if err := s.Run(t.Context()); !errors.Is(err, keystore.ErrInvalid) {
			t.Errorf("%s: %v", field, err)
		}
	}
}

func ExampleSweeper() {
	store, _ := memstore.New(memstore.Config{})
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	fmt.Println(keystore.Sweeper{Store: store}.Run(ctx))
	// Output: context deadline exceeded
}
