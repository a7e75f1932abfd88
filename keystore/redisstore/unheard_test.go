package redisstore

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/idem-go/idem/internal/await"
	"github.com/idem-go/idem/internal/servertest"
	"github.com/idem-go/idem/keystore"
)

// reads counts the looks at records that began after the change that a waiter
// should have been told of.
type reads struct {
	*Store
	changed    atomic.Bool
	all, after atomic.Int64
}

func (r *reads) Records(ctx context.Context, q keystore.Query) ([]keystore.Record, error) {
	defer r.all.Add(1)
	if r.changed.Load() {
		r.after.Add(1)
	}
	return r.Store.Records(ctx, q)
}

// A notification that is lost, as its connection is killed or nobody has sent
// it, costs a waiter one poll: it looks once after the change, and is done.
// (How long a poll takes, package await shows.)
func TestLostNotificationCostsOnePoll(t *testing.T) {
	server := servertest.Redis(t, servertest.RedisOptions{}) // whose subscriptions are all ours
	kill := func(s *Store) { ok(t, s.client.ClientKillByFilter(t.Context(), "TYPE", "pubsub").Err()) }
	for name, settle := range map[string]func(*Store, keystore.Owner){
		"killed before": func(s *Store, o keystore.Owner) { kill(s); complete(t, s, o, "result") },
		"killed after":  func(s *Store, o keystore.Owner) { complete(t, s, o, "result"); kill(s) },
		"never sent": func(s *Store, o keystore.Owner) {
			// Where nobody listens is as good as nowhere.
			_, err := s.run(t.Context(), completeScript, o.ID,
				o.Nonce[:], token(o), micros(time.Hour), "result", s.prefix+"elsewhere", o.ID[:])
			ok(t, err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			prefix := newPrefix()
			here, there := listen(t, server.Addr, prefix, time.Minute), newStore(t, server.Addr, Config{Prefix: prefix})
			here.subscribed()
			c := claim(t, there, params(), keystore.Acquired)
			counted := &reads{Store: here.store}
			waiters := await.New(counted)
			defer waiters.Stop()
			ended := make(chan error, 1)
			go func() { ended <- waiters.Change(t.Context(), c.Record) }()
			eventually(t, "the waiter's first look", func() bool { return counted.all.Load() > 0 })
			settle(there, c.Owner)
			counted.changed.Store(true)
			ok(t, receive(t, ended))
			if n := counted.after.Load(); n > 1 {
				t.Errorf("the waiter has looked %d times after the change, want once at most", n)
			}
		})
	}
}
