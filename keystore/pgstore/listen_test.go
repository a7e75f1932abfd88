package pgstore

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/puddle/v2"

	"github.com/idem-go/idem/keystore"
)

// listen runs Listen until the test ends, and returns when it listens.
func listen(t *testing.T, s *Store) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	subscribed, stop := s.Watch([32]byte{})
	defer stop()
	go func() { ended <- s.Listen(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Listen returned %v when its context had ended", err)
		}
	})
	closes(t, subscribed) // since who watches may have missed something
}

// twoProcesses returns two stores of one table with nothing else in common.
func twoProcesses(t *testing.T) (here, there *Store) {
	here = newStore(t, newPool(t, serverURL))
	return here, openStore(t, newPool(t, serverURL), here.cfg)
}

func TestListen(t *testing.T) {
	here, there := twoProcesses(t)
	listen(t, here)
	listen(t, there)
	for name, change := range map[string]func(keystore.Owner){
		"complete": func(o keystore.Owner) { complete(t, there, o, "result") },
		"release":  func(o keystore.Owner) { release(t, there, o, keystore.Forget) },
		"abandon":  func(o keystore.Owner) { release(t, there, o, keystore.Abandon) },
		"in a transaction": func(o keystore.Owner) {
			err := there.InTx(t.Context(), func(ctx context.Context, inTx keystore.Store) error {
				return inTx.Complete(ctx, o, keystore.CompleteParams{Retention: long})
			})
			if err != nil {
				t.Error(err)
			}
		},
		"take-over": func(o keystore.Owner) {
			p := params()
			p.ID = o.ID
			run(t, there, "UPDATE {table} SET lease_until = '2000-01-01' WHERE id = $1", o.ID[:])
			claim(t, there, p, keystore.Acquired)
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := claim(t, here, params(), keystore.Acquired).Owner
			changed, stop := here.Watch(o.ID)
			defer stop()
			change(o)
			closes(t, changed)
		})
	}
}

// A connection that is lost is replaced, and who watches is woken: it may have
// missed something.
func TestListenReconnects(t *testing.T) {
	here, there := twoProcesses(t)
	listen(t, here)
	listen(t, there)
	o := claim(t, here, params(), keystore.Acquired).Owner
	changed, stop := here.Watch(o.ID)
	defer stop()
	run(t, there, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query = $1`, "LISTEN "+quoted(here.cfg.Table))
	closes(t, changed)
	changed, stop = here.Watch(o.ID)
	defer stop()
	complete(t, there, o, "result")
	closes(t, changed)
}

// Many changes at once are packed, and none is too long for the server.
func TestListenMany(t *testing.T) {
	const records = 3*idsPerNotification + 1
	here, there := twoProcesses(t)
	listen(t, here)
	listen(t, there)
	var watched []<-chan struct{}
	for i := range records {
		id := [32]byte{0: 1, 30: byte(i >> 8), 31: byte(i)}
		changed, stop := here.Watch(id)
		defer stop()
		watched = append(watched, changed)
		there.changes.tell(id)
	}
	for _, changed := range watched {
		closes(t, changed)
	}
	packed := payloads(func() map[[32]byte]struct{} {
		ids := map[[32]byte]struct{}{}
		for i := range records {
			ids[[32]byte{30: byte(i >> 8), 31: byte(i)}] = struct{}{}
		}
		return ids
	}())
	if len(packed) != 4 || len(packed[0]) >= 8000 || len(packed[3]) != idLength {
		t.Errorf("%d records are packed into %d notifications", records, len(packed))
	}
}

func TestListenEnds(t *testing.T) {
	store, _ := twoProcesses(t)
	t.Run("twice", func(t *testing.T) {
		listen(t, store)
		wantErr(t, store.Listen(t.Context()), errListening, "pgstore: listen")
	})
	t.Run("again", func(t *testing.T) { listen(t, store) })
	pool := newPool(t, serverURL)
	pool.Close()
	wantErr(t, openStore(t, pool, store.cfg).Listen(t.Context()), puddle.ErrClosedPool, "pgstore: listen")
}

// What is not for a record is passed by.
func TestListenIgnoresNoise(t *testing.T) {
	here, there := twoProcesses(t)
	listen(t, here)
	o := claim(t, here, params(), keystore.Acquired).Owner
	changed, stop := here.Watch(o.ID)
	defer stop()
	for _, payload := range []string{"", "noise", strings.Repeat("?", idLength), strings.Repeat("é", idLength)} {
		run(t, there, "SELECT pg_notify($1, $2)", here.cfg.Table, payload)
	}
	run(t, there, "SELECT pg_notify($1, $2)", here.cfg.Table, fmt.Sprint(payloads(map[[32]byte]struct{}{o.ID: {}})[0]))
	closes(t, changed)
}

// Without Listen nothing is queued, and what is watched leaves nothing behind.
func TestWatchLeavesNothing(t *testing.T) {
	store := newStore(t, newPool(t, serverURL))
	o := claim(t, store, params(), keystore.Acquired).Owner
	_, stopFirst := store.Watch(o.ID)
	changed, stopSecond := store.Watch(o.ID)
	stopFirst()
	stopFirst()
	complete(t, store, o, "result")
	closes(t, changed)
	_, stopThird := store.Watch(o.ID)
	stopSecond() // of the earlier watch, must not end the later one
	if n := len(store.changes.watches); n != 1 {
		t.Errorf("%d watches, want 1", n)
	}
	stopThird()
	if n := len(store.changes.watches); n != 0 || len(store.changes.outgoing) != 0 {
		t.Errorf("%d watches and %d changes to tell are left", n, len(store.changes.outgoing))
	}
}
