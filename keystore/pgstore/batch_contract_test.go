package pgstore

import (
	"bytes"
	"context"
	"crypto/rand"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/internal/batch"
	"github.com/idem-go/idem/internal/lincheck"
	"github.com/idem-go/idem/keystore"
	"github.com/idem-go/idem/keystore/keystoretest"
)

// company is how many strangers a call of a forced store travels with.
const company = 3

// meet makes the calls of a store wait for each other whenever two are made at
// once.
func meet(s *Store) {
	s.batches = true
	s.claims.Limit, s.completes.Limit = 1, 1
}

// force makes a store send every Claim and Complete in a batch: one that would go
// by itself gets company. It returns the number of calls that batches have
// answered.
func force(s *Store) *atomic.Int64 {
	var n atomic.Int64
	meet(s)
	s.claims.Together = accompanied(s.claims.Together, &n, func() *claimMember {
		p := params()
		p.Scope = [32]byte{1}
		return &claimMember{ID: p.ID, Call: p}
	})
	s.completes.Together = accompanied(s.completes.Together, &n, func() *completeMember {
		o := keystore.Owner{Nonce: [16]byte{1}, Token: 1}
		rand.Read(o.ID[:])
		return &completeMember{ID: o.ID, Call: completion{owner: o, retention: 1, result: []byte("a stranger's")}}
	})
	return &n
}

// accompanied returns a together in which nobody travels alone.
func accompanied[C, A any](together func(context.Context, []*batch.Member[C, A]) error, n *atomic.Int64, stranger func() *batch.Member[C, A]) func(context.Context, []*batch.Member[C, A]) error {
	return func(ctx context.Context, own []*batch.Member[C, A]) error {
		members := slices.Clone(own)
		for range company {
			members = append(members, stranger())
		}
		slices.SortFunc(members, func(a, b *batch.Member[C, A]) int { return bytes.Compare(a.ID[:], b.ID[:]) })
		err := together(ctx, members)
		for _, m := range own {
			if m.Answered {
				n.Add(1)
			}
		}
		return err
	}
}

// The contract with batches that always carry what is called, and with those
// that come by themselves. Without any it is TestContract.
func TestContractBatches(t *testing.T) {
	t.Parallel()
	for name, setup := range map[string]func(t *testing.T) *pgxpool.Pool{
		"read committed": func(t *testing.T) *pgxpool.Pool { return newPool(t, serverURL, conns(16)) },
		"serializable": func(t *testing.T) *pgxpool.Pool {
			return newPool(t, serverURL, conns(16), isolation("serializable"))
		},
		"pooler": func(t *testing.T) *pgxpool.Pool { return newPool(t, newPooler(t, serverURL), conns(16)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := newStore(t, setup(t))
			batched := force(store)
			keystoretest.Run(t, func(*testing.T) keystore.Store { return store })
			if batched.Load() == 0 {
				t.Error("no call was answered by a batch")
			}
		})
	}
	t.Run("by themselves", func(t *testing.T) {
		t.Parallel()
		pool := newPool(t, serverURL, conns(16))
		store := openStore(t, pool, Config{Table: newStore(t, pool).cfg.Table, Batch: true})
		keystoretest.Run(t, func(*testing.T) keystore.Store { return store })
	})
}

// Stores that batch and stores that do not, on one table, are one store.
func TestLinearizableBatches(t *testing.T) {
	t.Parallel()
	const workers, callsEach = 12, 800
	singles := newStore(t, newPool(t, serverURL, conns(4)))
	cfg := singles.cfg
	a := openStore(t, newPool(t, serverURL, conns(4)), cfg)
	b := openStore(t, newPool(t, serverURL, conns(4), isolation("serializable")), cfg)
	met := openStore(t, newPool(t, serverURL, conns(4)), cfg)
	meet(met)
	batched := []*atomic.Int64{force(a), force(b)}
	lincheck.Run(t, workers, callsEach, a, b, met, singles)
	for _, n := range batched {
		if n.Load() == 0 {
			t.Error("no call was answered by a batch")
		}
	}
}

// Every mode of pgx sends and reads arrays of the same bytes and times.
func TestModesBatches(t *testing.T) {
	for _, m := range []pgx.QueryExecMode{
		pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec, pgx.QueryExecModeExec,
		pgx.QueryExecModeSimpleProtocol,
	} {
		t.Run(m.String(), func(t *testing.T) {
			store := newStore(t, newPool(t, serverURL, mode(m)))
			batched := force(store)
			p := params()
			p.Meta, p.Begun = []byte("a\x00\xff\\'\",{}"), true
			c := claim(t, store, p, keystore.Acquired)
			claim(t, store, rival(p), keystore.InFlight)
			release(t, store, c.Owner, keystore.Abandon)
			claim(t, store, rival(p), keystore.Unresolved)
			r := rival(p)
			r.Takeover = true
			c = claim(t, store, r, keystore.Acquired)
			complete(t, store, c.Owner, "r\x00\xff\\'\",{}")
			complete(t, store, c.Owner, "repeated")
			got := claim(t, store, rival(p), keystore.Completed).Record
			if string(got.Meta) != string(p.Meta) || string(got.Result) != "r\x00\xff\\'\",{}" {
				t.Errorf("Meta %q, Result %q came back", got.Meta, got.Result)
			}
			if got.Token != 2 || !got.Begun || got.Scope != p.Scope {
				t.Errorf("the record came back as %+v", got)
			}
			if n := batched.Load(); n != 7 { // the repeated Complete included
				t.Errorf("batches answered %d calls, want 7", n)
			}
		})
	}
}
