package pgstore

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/internal/batch"
	"github.com/idem-go/idem/keystore"
)

// meeting returns a store whose calls wait for each other.
func meeting(t testing.TB, pool *pgxpool.Pool) *Store {
	s := newStore(t, pool)
	meet(s)
	return s
}

// asBatch makes the calls to a meeting store, which are to different records, as
// one batch. It returns when they all wait in it and were let go; wait waits
// for their answers.
func asBatch[C, A any](t *testing.T, g *batch.Group[C, A], calls ...func()) (wait func()) {
	t.Helper()
	release, ok := g.Occupy()
	if !ok {
		t.Fatal("something is under way")
	}
	var wg sync.WaitGroup
	for _, call := range calls {
		wg.Go(call)
	}
	for deadline := time.Now().Add(patience); g.Pending() < 1+len(calls); runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatalf("%d of %d calls wait", g.Pending()-1, len(calls))
		}
	}
	release()
	return wg.Wait
}

// situations are what a claim can find.
var situations = map[string]func(t *testing.T, s *Store, p *keystore.ClaimParams){
	"new":     func(*testing.T, *Store, *keystore.ClaimParams) {},
	"no meta": func(_ *testing.T, _ *Store, p *keystore.ClaimParams) { p.Meta = nil },
	"begun":   func(_ *testing.T, _ *Store, p *keystore.ClaimParams) { p.Begun = true },
	"running": func(t *testing.T, s *Store, p *keystore.ClaimParams) {
		claim(t, s, rival(*p), keystore.Acquired)
		p.Takeover = true
	},
	"repeated": func(t *testing.T, s *Store, p *keystore.ClaimParams) { claim(t, s, *p, keystore.Acquired) },
	"done": func(t *testing.T, s *Store, p *keystore.ClaimParams) {
		complete(t, s, claim(t, s, rival(*p), keystore.Acquired).Owner, "result")
	},
	"done, empty": func(t *testing.T, s *Store, p *keystore.ClaimParams) {
		complete(t, s, claim(t, s, rival(*p), keystore.Acquired).Owner, "")
	},
	"done, just small": func(t *testing.T, s *Store, p *keystore.ClaimParams) {
		complete(t, s, claim(t, s, rival(*p), keystore.Acquired).Owner, strings.Repeat("x", maxBatchResult))
	},
	"done, large": func(t *testing.T, s *Store, p *keystore.ClaimParams) {
		complete(t, s, claim(t, s, rival(*p), keystore.Acquired).Owner, strings.Repeat("y", maxBatchResult+1))
	},
	"mismatch": func(t *testing.T, s *Store, p *keystore.ClaimParams) {
		complete(t, s, claim(t, s, rival(*p), keystore.Acquired).Owner, "secret")
		p.Fingerprint[0]++
	},
	"expired": func(t *testing.T, s *Store, p *keystore.ClaimParams) {
		complete(t, s, claim(t, s, rival(*p), keystore.Acquired).Owner, "result")
		run(t, s, "UPDATE {table} SET expires = '2000-01-01' WHERE id = $1", p.ID[:])
		p.Meta, p.Fingerprint, p.Scope = []byte("new meta"), [32]byte{7}, [32]byte{8}
	},
	"dead": func(t *testing.T, s *Store, p *keystore.ClaimParams) {
		release(t, s, claim(t, s, rival(*p), keystore.Acquired).Owner, keystore.Abandon)
		p.Meta, p.Scope = []byte("new meta"), [32]byte{8}
	},
	"unresolved": func(t *testing.T, s *Store, p *keystore.ClaimParams) {
		p.Begun = true
		release(t, s, claim(t, s, rival(*p), keystore.Acquired).Owner, keystore.Abandon)
	},
	"take-over": func(t *testing.T, s *Store, p *keystore.ClaimParams) {
		p.Begun = true
		release(t, s, claim(t, s, rival(*p), keystore.Acquired).Owner, keystore.Abandon)
		p.Begun, p.Takeover = false, true
	},
	"forgotten": func(t *testing.T, s *Store, p *keystore.ClaimParams) {
		release(t, s, claim(t, s, rival(*p), keystore.Acquired).Owner, keystore.Forget)
		p.Meta, p.Fingerprint, p.Scope = []byte("new meta"), [32]byte{7}, [32]byte{8}
	},
	"rejected": func(t *testing.T, s *Store, p *keystore.ClaimParams) {
		release(t, s, claim(t, s, rival(*p), keystore.Acquired).Owner, keystore.Reject)
		p.Meta = []byte("new meta")
	},
	"released before": func(t *testing.T, s *Store, p *keystore.ClaimParams) {
		release(t, s, claim(t, s, *p, keystore.Acquired).Owner, keystore.Forget)
	},
	"corrupt": func(t *testing.T, s *Store, p *keystore.ClaimParams) {
		claim(t, s, rival(*p), keystore.Acquired)
		run(t, s, "UPDATE {table} SET token = 0 WHERE id = $1", p.ID[:])
	},
	"of another format": func(t *testing.T, s *Store, p *keystore.ClaimParams) {
		claim(t, s, rival(*p), keystore.Acquired)
		run(t, s, "UPDATE {table} SET format = 2, state = 9 WHERE id = $1", p.ID[:])
	},
}

// told is an answer without what is different for every record.
func told(c keystore.Claim, err error, p keystore.ClaimParams) string {
	if c.Owner != (keystore.Owner{}) && (c.Owner.ID != p.ID || c.Owner.Nonce != p.Nonce || c.Owner.Token != c.Record.Token) {
		return fmt.Sprintf("another's owner: %+v", c.Owner)
	}
	r := &c.Record
	if err == nil && (r.ID != p.ID || r.Age < 0 || r.Age > time.Hour || r.LeaseLeft > long) {
		return fmt.Sprintf("another's record: %+v", r)
	}
	result := fmt.Sprintf("%.10q and %d bytes", r.Result, len(r.Result))
	dead := r.LeaseLeft <= 0
	r.ID, r.Age, r.LeaseLeft, r.Result, c.Owner = [32]byte{}, 0, 0, nil, keystore.Owner{}
	return fmt.Sprintf("%v, %+v, dead %v, result %s, %s", c.Status, *r, dead, result, withoutID(err, p.ID))
}

func withoutID(err error, id [32]byte) string {
	return strings.ReplaceAll(fmt.Sprint(err), fmt.Sprintf("%x", id), "ID")
}

// Whatever a claim in a batch finds, it is answered, and stored, as alone.
func TestBatchOfClaims(t *testing.T) {
	store := meeting(t, newPool(t, serverURL))
	const row = `SELECT to_jsonb(r) - '{id,nonce,since,lease_until,expires}'::text[] || jsonb_build_object('rest',
		array[r.since > now() - interval '1 minute', r.lease_until - now() BETWEEN interval '59 minutes' AND interval '61 minutes',
		r.expires > now()])::text FROM {table} AS r WHERE r.id = $1`
	alone, batched := map[string]string{}, map[string]string{}
	var calls []func()
	var mu sync.Mutex
	stored := map[string][32]byte{}
	for name, prepare := range situations {
		p, q := params(), params()
		prepare(t, store, &p)
		prepare(t, store, &q)
		c, err := store.Claim(t.Context(), p)
		alone[name] = told(c, err, p) + query[string](t, store, row, p.ID[:])
		stored[name] = q.ID
		calls = append(calls, func() {
			c, err := store.Claim(t.Context(), q)
			mu.Lock()
			defer mu.Unlock()
			batched[name] = told(c, err, q)
		})
	}
	asBatch(t, &store.claims, calls...)()
	for name := range situations {
		id := stored[name]
		if got := batched[name] + query[string](t, store, row, id[:]); got != alone[name] {
			t.Errorf("%s: in a batch\n%s, alone\n%s", name, got, alone[name])
		}
	}
}

// The same for completions.
func TestBatchOfCompletions(t *testing.T) {
	store := meeting(t, newPool(t, serverURL))
	situations := map[string]func(o *keystore.Owner){
		"owner":            func(*keystore.Owner) {},
		"other token":      func(o *keystore.Owner) { o.Token++ },
		"other nonce":      func(o *keystore.Owner) { o.Nonce[0]++ },
		"impossible token": func(o *keystore.Owner) { o.Token = 1 << 63 },
		"no record":        func(o *keystore.Owner) { o.ID[0]++ },
		"repeated":         func(o *keystore.Owner) { complete(t, store, *o, "before") },
		"freed":            func(o *keystore.Owner) { release(t, store, *o, keystore.Forget) },
		"dead":             func(o *keystore.Owner) { release(t, store, *o, keystore.Abandon) },
		"corrupt": func(o *keystore.Owner) {
			run(t, store, "UPDATE {table} SET nonce = nonce || nonce WHERE id = $1", o.ID[:])
		},
		"of another format": func(o *keystore.Owner) { run(t, store, "UPDATE {table} SET format = 2 WHERE id = $1", o.ID[:]) },
	}
	const row = "SELECT coalesce(string_agg(concat_ws(' ', format, state, token, result, expires > now() + interval '59 minutes'), ''), '–') FROM {table} WHERE id = $1"
	alone, batched, stored := map[string]string{}, map[string]string{}, map[string][32]byte{}
	settle := func(name string, o keystore.Owner) string {
		return withoutID(store.Complete(t.Context(), o, keystore.CompleteParams{Result: []byte("of " + name), Retention: long}), o.ID)
	}
	var calls []func()
	var mu sync.Mutex
	for name, prepare := range situations {
		o, p := claim(t, store, params(), keystore.Acquired).Owner, claim(t, store, params(), keystore.Acquired).Owner
		prepare(&o)
		prepare(&p)
		alone[name] = settle(name, o) + query[string](t, store, row, o.ID[:])
		stored[name] = p.ID
		calls = append(calls, func() {
			answer := settle(name, p)
			mu.Lock()
			defer mu.Unlock()
			batched[name] = answer
		})
	}
	asBatch(t, &store.completes, calls...)()
	for name := range situations {
		id := stored[name]
		if got := batched[name] + query[string](t, store, row, id[:]); got != alone[name] {
			t.Errorf("%s: in a batch\n%s, alone\n%s", name, got, alone[name])
		}
	}
}

// What the server refuses for one is no matter of the others.
func TestPoisonedBatch(t *testing.T) {
	const checkViolation = "23514"
	store := meeting(t, newPool(t, serverURL))
	run(t, store, `ALTER TABLE {table} ADD CHECK (meta <> 'poison'), ADD CHECK (result <> 'poison')`)
	ps := []keystore.ClaimParams{params(), params(), params()}
	ps[1].Meta = []byte("poison")
	owners, errs := make([]keystore.Owner, len(ps)), make([]error, len(ps))
	var claims, completions []func()
	for i, p := range ps {
		claims = append(claims, func() {
			var c keystore.Claim
			c, errs[i] = store.Claim(t.Context(), p)
			owners[i] = c.Owner
		})
		completions = append(completions, func() {
			result := fmt.Sprint("result ", i)
			if i == 1 {
				result = "poison"
			}
			errs[i] = store.Complete(t.Context(), owners[i], keystore.CompleteParams{Result: []byte(result), Retention: long})
		})
	}
	wants := func(op string) {
		t.Helper()
		for i, err := range errs {
			if i == 1 && (code(err) != checkViolation || !strings.HasPrefix(err.Error(), "pgstore: "+op)) || i != 1 && err != nil {
				t.Errorf("%s %d: %v", op, i, err)
			}
		}
	}
	asBatch(t, &store.claims, claims...)()
	wants("claim")
	owners[1] = claim(t, store, params(), keystore.Acquired).Owner
	asBatch(t, &store.completes, completions...)()
	wants("complete")
	if got := claim(t, store, rival(ps[2]), keystore.Completed).Record.Result; string(got) != "result 2" {
		t.Errorf("the result is %q", got)
	}
}

// held begins a transaction that has stored p's record and is not committed.
func held(t *testing.T, s *Store, p keystore.ClaimParams) pgx.Tx {
	t.Helper()
	tx, err := s.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tx.Rollback(context.Background()) })
	if a, err := s.ask(t.Context(), tx, s.sql.claim, p); err != nil || !a.granted {
		t.Fatalf("the holder: %+v, %v", a, err)
	}
	return tx
}

// untilBlockedBy waits until some session waits for the transaction.
func untilBlockedBy(t *testing.T, s *Store, tx pgx.Tx) {
	t.Helper()
	deadline := time.Now().Add(patience)
	const blocked = "SELECT count(*) FROM pg_stat_activity WHERE pg_blocking_pids(pid) @> ARRAY[$1::int]"
	for query[int](t, s, blocked, int32(tx.Conn().PgConn().PID())) == 0 {
		if time.Now().After(deadline) {
			t.Fatalf("nobody was blocked within %v", patience)
		}
	}
}

// A record that a transaction holds for long holds up the claims to that one.
func TestBatchWaitsForNobody(t *testing.T) {
	store := meeting(t, newPool(t, serverURL))
	p, q := params(), params()
	tx := held(t, store, rival(p))
	waited, granted := make(chan struct{}), make(chan struct{})
	wait := asBatch(t, &store.claims,
		func() {
			defer close(waited)
			claim(t, store, p, keystore.Acquired)
		},
		func() {
			defer close(granted)
			claim(t, store, q, keystore.Acquired)
		})
	closes(t, granted)
	select {
	case <-waited:
		t.Error("the record was granted while another transaction had claimed it")
	default:
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Error(err)
	}
	wait()
}

// So does it hold up one that went by itself, and not those who wait for that.
func TestSingleCallHoldsNobodyUp(t *testing.T) {
	store := meeting(t, newPool(t, serverURL))
	p, q := params(), params()
	tx := held(t, store, rival(p))
	var waits sync.WaitGroup
	waits.Go(func() { claim(t, store, p, keystore.Acquired) })
	untilBlockedBy(t, store, tx)
	claim(t, store, q, keystore.Acquired)
	if err := tx.Rollback(t.Context()); err != nil {
		t.Error(err)
	}
	waits.Wait()
}

// Who leaves a batch on its way leaves at once, and alone.
func TestBatchMemberCancelled(t *testing.T) {
	store := meeting(t, newPool(t, serverURL))
	store.sql.claimBatch = strings.Replace(store.sql.claimBatch, "200ms", "0", 1) // waits for as long as it takes
	p, left, stays := params(), params(), params()
	tx := held(t, store, rival(p))
	ctx, cancel := context.WithCancel(t.Context())
	gone := make(chan struct{})
	wait := asBatch(t, &store.claims,
		func() { claim(t, store, p, keystore.Acquired) },
		func() { claim(t, store, stays, keystore.Acquired) },
		func() {
			defer close(gone)
			_, err := store.Claim(ctx, left)
			wantErr(t, err, context.Canceled, "pgstore: claim: ")
		})
	untilBlockedBy(t, store, tx)
	cancel()
	closes(t, gone)
	if err := tx.Rollback(t.Context()); err != nil {
		t.Error(err)
	}
	wait()
	if c := claim(t, store, left, keystore.Acquired); c.Owner.Token != 1 {
		t.Errorf("the repeat was granted token %d, want 1: it took its own claim for another's", c.Owner.Token)
	}
}

// B093: a batch is committed, its answer is lost, and each repeat knows its own.
func TestBatchAnswerLost(t *testing.T) {
	var w wire
	store := meeting(t, newPool(t, serverURL, mode(pgx.QueryExecModeExec), w.option))
	ps := []keystore.ClaimParams{params(), params(), params()}
	errs := make([]error, len(ps))
	lost := func(op string) {
		t.Helper()
		for i, err := range errs {
			if err == nil || w.lose.Load() || code(err) != "" || !strings.HasPrefix(err.Error(), "pgstore: "+op+": ") {
				t.Errorf("%s %d, whose answer was lost, returned %v", op, i, err)
			}
		}
	}
	var claims, completions []func()
	owners := make([]keystore.Owner, len(ps))
	for i, p := range ps {
		claims = append(claims, func() { _, errs[i] = store.Claim(t.Context(), p) })
		completions = append(completions, func() {
			errs[i] = store.Complete(t.Context(), owners[i], keystore.CompleteParams{Result: []byte("first"), Retention: long})
		})
	}
	w.lose.Store(true)
	asBatch(t, &store.claims, claims...)()
	lost("claim")
	for i, p := range ps {
		if owners[i] = claim(t, store, p, keystore.Acquired).Owner; owners[i].Token != 1 {
			t.Errorf("the repeat of %d was granted token %d", i, owners[i].Token)
		}
	}
	w.lose.Store(true)
	asBatch(t, &store.completes, completions...)()
	lost("complete")
	for i, p := range ps {
		complete(t, store, owners[i], "second")
		if got := claim(t, store, rival(p), keystore.Completed).Record.Result; string(got) != "first" {
			t.Errorf("the result of %d is %q, want that of the first Complete", i, got)
		}
	}
}

// A hook of the pool may look at what a caller's context holds.
func TestHooksPreventBatches(t *testing.T) {
	for name, option := range map[string]func(*pgxpool.Config){
		//lint:ignore SA1019 some pools still have it
		"BeforeAcquire": func(cfg *pgxpool.Config) { cfg.BeforeAcquire = func(context.Context, *pgx.Conn) bool { return true } },
		"PrepareConn": func(cfg *pgxpool.Config) {
			cfg.PrepareConn = func(context.Context, *pgx.Conn) (bool, error) { return true, nil }
		},
		"not asked": func(*pgxpool.Config) {},
	} {
		store := openStore(t, newPool(t, serverURL, option), Config{Batch: name != "not asked"})
		if store.batches {
			t.Errorf("with %s there are batches", name)
		}
	}
	if !openStore(t, newPool(t, serverURL), Config{Batch: true}).batches {
		t.Error("there are no batches where they are asked for")
	}
}

// A batch without the server: every member is told.
func TestBatchUnreachable(t *testing.T) {
	store := meeting(t, newPool(t, serverURL))
	store.pool.Close()
	errs := make([]error, 3)
	var calls []func()
	for i := range errs {
		calls = append(calls, func() { _, errs[i] = store.Claim(t.Context(), params()) })
	}
	asBatch(t, &store.claims, calls...)()
	if slices.ContainsFunc(errs, func(err error) bool { return err == nil || errors.Is(err, context.Canceled) }) {
		t.Errorf("the calls returned %v", errs)
	}
}
