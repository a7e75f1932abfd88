package keystore

import (
	"context"
	"math/rand/v2"
	"time"
)

// Sweeper removes what a store needs no more, again and again. Correctness
// does not depend on it: an expired record counts as absent whether or not it
// was removed. It keeps a table from growing. Run it in one process or in
// several.
type Sweeper struct {
	// Store to sweep; required.
	Store Store
	// Every is the pause between two sweeps; 0 means 1 min. Each pause is
	// drawn at random between half of it and one and a half, so that several
	// processes do not sweep in step.
	Every time.Duration
	// Batch is how many records one Purge removes at most; 0 means 1,000.
	Batch int
	// OnError is told of each Purge that fails; the next sweep tries again.
	// Nil ignores it.
	OnError func(error)
}

// Run sweeps until ctx is done, and returns its error. It returns ErrInvalid
// at once if a field breaks its rule. A sweep purges batch after batch until
// one is not full.
func (s Sweeper) Run(ctx context.Context) error {
	switch {
	case s.Store == nil:
		return invalid("Sweeper.Store", "is nil; set the store to sweep")
	case s.Every < 0:
		return invalid("Sweeper.Every", "is negative; use 0 for 1 min, or a positive duration")
	case s.Batch < 0:
		return invalid("Sweeper.Batch", "is negative; use 0 for 1,000, or a positive number")
	}
	if s.Every == 0 {
		s.Every = time.Minute
	}
	if s.Batch == 0 {
		s.Batch = 1000
	}
	for {
		s.sweep(ctx)
		timer := time.NewTimer(s.Every/2 + rand.N(s.Every))
		select {
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case <-timer.C:
		}
	}
}

// sweep purges until nothing is left, or a Purge fails.
func (s Sweeper) sweep(ctx context.Context) {
	for ctx.Err() == nil {
		n, err := s.Store.Purge(ctx, s.Batch)
		if err != nil && ctx.Err() == nil && s.OnError != nil {
			s.OnError(err)
		}
		if err != nil || n < s.Batch {
			return
		}
	}
}
