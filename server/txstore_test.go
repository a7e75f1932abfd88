package server_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/idem-go/idem/keystore"
)

// txStore adds transactions to a store: what is written in one is kept back
// until its function returns nil. Nobody else sees it before that, but that
// somebody has claimed the record, a claim is told.
type txStore struct {
	keystore.Store
	// Stand in, if set, for a database that fails, or what happens meanwhile.
	begin    func() error
	complete func(keystore.CompleteParams) error
	commit   func(*tx) error
	// pool, if set, has a slot for each connection.
	pool chan struct{}

	mu     sync.Mutex
	held   map[[32]byte]*tx
	owners map[[16]byte]keystore.Owner // by the nonces of what was committed
	ledger []string                    // the effects that were committed
	began  int
	last   context.Context // of the latest InTx
}

func newTxStore(t testing.TB) *txStore {
	return &txStore{Store: newStore(t), held: map[[32]byte]*tx{}, owners: map[[16]byte]keystore.Owner{}}
}

// tx is one transaction. It is a store that can claim and complete one record.
type tx struct {
	keystore.Store
	all     *txStore
	claim   keystore.ClaimParams
	settle  *keystore.CompleteParams
	effects []string
}

type txKey struct{}

// effect is what the application writes.
func effect(ctx context.Context, what string) {
	in := ctx.Value(txKey{}).(*tx)
	in.effects = append(in.effects, what)
}

func (s *txStore) connect(ctx context.Context) (release func(), err error) {
	if s.pool == nil {
		return func() {}, ctx.Err()
	}
	select {
	case s.pool <- struct{}{}:
		return func() { <-s.pool }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (s *txStore) InTx(ctx context.Context, fn func(context.Context, keystore.Store) error) error {
	release, err := s.connect(ctx)
	if err != nil {
		return err
	}
	defer release()
	s.mu.Lock()
	s.began++
	s.last = ctx
	s.mu.Unlock()
	if s.begin != nil {
		if err := s.begin(); err != nil {
			return err
		}
	}
	in := &tx{Store: s.Store, all: s}
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.held[in.claim.ID] == in {
			delete(s.held, in.claim.ID)
		}
	}()
	if err := fn(context.WithValue(ctx, txKey{}, in), in); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if s.commit != nil {
		return s.commit(in)
	}
	return in.apply()
}

func (in *tx) Claim(ctx context.Context, p keystore.ClaimParams) (keystore.Claim, error) {
	s := in.all
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held[p.ID] != nil {
		return keystore.Claim{Status: keystore.InFlight, Record: keystore.Record{ID: p.ID, State: keystore.Running, LeaseLeft: p.Lease}}, nil
	}
	recs, err := s.Store.Records(ctx, keystore.Query{ID: &p.ID})
	if err != nil {
		return keystore.Claim{}, err
	}
	if len(recs) == 1 && (recs[0].State == keystore.Done || recs[0].State == keystore.Running && (recs[0].LeaseLeft > 0 || recs[0].Begun)) {
		return s.Store.Claim(ctx, p) // acquires nothing
	}
	s.held[p.ID], in.claim = in, p
	return keystore.Claim{Status: keystore.Acquired, Owner: keystore.Owner{ID: p.ID, Nonce: p.Nonce, Token: 1}}, nil
}

func (in *tx) Complete(_ context.Context, o keystore.Owner, p keystore.CompleteParams) error {
	if o.Nonce != in.claim.Nonce {
		return keystore.ErrFenced
	}
	if in.all.complete != nil {
		if err := in.all.complete(p); err != nil {
			return err
		}
	}
	in.settle = &p
	return nil
}

// apply commits.
func (in *tx) apply() error {
	s, ctx := in.all, context.Background()
	s.mu.Lock()
	defer s.mu.Unlock()
	if in.settle == nil {
		return errors.New("it committed a claim that is not settled")
	}
	c, err := s.Store.Claim(ctx, in.claim)
	if err != nil || c.Status != keystore.Acquired {
		return errors.Join(err, errors.New("the claim was not its own: "+c.Status.String()))
	}
	s.owners[in.claim.Nonce] = c.Owner
	s.ledger = append(s.ledger, in.effects...)
	return s.Store.Complete(ctx, c.Owner, *in.settle)
}

// Complete repeats what a transaction has done.
func (s *txStore) Complete(ctx context.Context, o keystore.Owner, p keystore.CompleteParams) error {
	s.mu.Lock()
	owner := s.owners[o.Nonce]
	s.mu.Unlock()
	return s.Store.Complete(ctx, owner, p)
}

func (s *txStore) Records(ctx context.Context, q keystore.Query) ([]keystore.Record, error) {
	release, err := s.connect(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	return s.Store.Records(ctx, q)
}

// transactions returns how many transactions were begun so far.
func (s *txStore) transactions() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.began
}

// wantEffects checks what was committed so far.
func (s *txStore) wantEffects(t testing.TB, want ...string) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Equal(s.ledger, want) {
		t.Errorf("committed %q, want %q", s.ledger, want)
	}
}

// release rolls the transaction back before its function is back.
func (s *txStore) release(in *tx) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.held, in.claim.ID)
}

// linger commits after d, whatever becomes of the transaction's function.
func (s *txStore) linger(in *tx, d time.Duration) {
	late := *in
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held[in.claim.ID] = &late
	time.AfterFunc(d, func() {
		_ = late.apply()
		s.release(&late)
	})
}

// context returns that of the latest InTx.
func (s *txStore) context() context.Context {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last
}
