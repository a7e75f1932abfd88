package pgstore

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/idem-go/idem/internal/await"
	"github.com/idem-go/idem/keystore"
)

// reads counts the looks at records that began after the change that a waiter
// should have been told of.
type reads struct {
	*Store
	looked  chan struct{} // closed after the first look
	once    sync.Once
	changed atomic.Bool
	after   atomic.Int64
}

func (r *reads) Records(ctx context.Context, q keystore.Query) ([]keystore.Record, error) {
	defer r.once.Do(func() { close(r.looked) })
	if r.changed.Load() {
		r.after.Add(1)
	}
	return r.Store.Records(ctx, q)
}

// A notification that is lost, as its connection is ended or nobody has sent
// it, costs a waiter one poll: it looks once after the change, and is done.
// (How long a poll takes, package await shows.)
func TestLostNotificationCostsOnePoll(t *testing.T) {
	end := func(s *Store) {
		run(t, s, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query = $1`, "LISTEN "+quoted(s.cfg.Table))
	}
	for name, settle := range map[string]func(*Store, keystore.Owner){
		"ended before": func(s *Store, o keystore.Owner) { end(s); complete(t, s, o, "result") },
		"ended after":  func(s *Store, o keystore.Owner) { complete(t, s, o, "result"); end(s) },
		// A Store that does not run Listen tells nobody.
		"never sent": func(s *Store, o keystore.Owner) { complete(t, openStore(t, s.pool, s.cfg), o, "result") },
	} {
		t.Run(name, func(t *testing.T) {
			here, there := twoProcesses(t)
			listen(t, here)
			listen(t, there)
			c := claim(t, there, params(), keystore.Acquired)
			counted := &reads{Store: here, looked: make(chan struct{})}
			waiters := await.New(counted)
			defer waiters.Stop()
			ended, result := make(chan struct{}), error(nil)
			go func() {
				defer close(ended)
				result = waiters.Change(t.Context(), c.Record)
			}()
			closes(t, counted.looked)
			settle(there, c.Owner)
			counted.changed.Store(true)
			closes(t, ended)
			if result != nil {
				t.Fatal(result)
			}
			if n := counted.after.Load(); n > 1 {
				t.Errorf("the waiter has looked %d times after the change, want once at most", n)
			}
		})
	}
}
