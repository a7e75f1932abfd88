package model

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/idem-go/idem/keystore"
	"github.com/idem-go/idem/keystore/memstore"
)

// Short, so that many walks fit into the years that simulated time has. Keep is
// shorter than the retention, so that a Purge after Keep must leave what is done.
const (
	lease     = time.Second
	keep      = 10 * time.Second
	retention = 100 * time.Second
)

// replay does in a real store what the model does, and compares. It must run in
// simulated time.
type replay struct {
	ctx    context.Context
	model  Model
	store  keystore.Store
	id     [32]byte
	owners [MaxOwners]keystore.Owner // as they were told
	state  State
	token  uint64 // of the record when it was last seen
}

func newReplay(ctx context.Context, m Model) (*replay, error) {
	store, err := memstore.New(memstore.Config{})
	return &replay{ctx: ctx, model: m, store: store, id: [32]byte{1}}, err
}

// step makes the step in the model and in the store; an error tells how they
// differ.
func (r *replay) step(mv move) error {
	var err error
	switch {
	case mv.Kind.arrives() && mv.Call == Claim:
		err = r.claim(mv)
	case mv.Kind.arrives():
		err = r.call(mv)
	case mv.Kind == LeaseDies:
		time.Sleep(lease)
	case mv.Kind == Purges:
		time.Sleep(keep)
		if n, e := r.store.Purge(r.ctx, 10); n != 1 || e != nil {
			err = fmt.Errorf("Purge removed %d records, %v; want 1", n, e)
		}
	case mv.Kind == RetentionEnds:
		time.Sleep(retention)
	}
	if err == nil {
		err = r.compare(mv.to.Record)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", r.model.words(r.state, mv), err)
	}
	r.state = mv.to.normal()
	return nil
}

func (r *replay) claim(mv move) error {
	c, err := r.store.Claim(r.ctx, keystore.ClaimParams{ID: r.id, Nonce: nonce(mv.by.nonce), Lease: lease, Keep: keep,
		Begun: mv.by.begun, Takeover: mv.by.takeover})
	if err := sameFence(err, mv.reply); err != nil {
		return err
	}
	if c.Status != mv.reply.Status {
		return fmt.Errorf("the store answers %v, the model %v", c.Status, mv.reply.Status)
	}
	if was, is := r.state.Record, mv.to.Record; c.Status == keystore.Acquired {
		if risen := was.State == 0 || is.Token > was.Token; risen != (c.Owner.Token > r.token) || !risen && c.Owner.Token != r.token {
			return fmt.Errorf("the token went from %d to %d; want a higher one: %t", r.token, c.Owner.Token, risen)
		}
	}
	// A lost answer is one that the sender never learns.
	if was, is := r.state.Owners[mv.Owner].At, mv.to.Owners[mv.Owner].At; was != is && c.Status == keystore.Acquired {
		r.owners[mv.Owner] = c.Owner
	}
	return nil
}

func (r *replay) call(mv move) error {
	owner := r.owners[mv.Owner]
	var err error
	switch mv.Call {
	case Begin, Beat:
		err = r.store.Renew(r.ctx, owner, keystore.RenewParams{Lease: lease, Begun: mv.Call == Begin})
	case Complete:
		err = r.store.Complete(r.ctx, owner, keystore.CompleteParams{Result: []byte{mv.by.nonce}, Retention: retention})
	default:
		err = r.store.Release(r.ctx, owner, keystore.ReleaseParams{How: mv.Call.how()})
	}
	return sameFence(err, mv.reply)
}

func sameFence(err error, reply Reply) error {
	switch {
	case err != nil && !errors.Is(err, keystore.ErrFenced):
		return err
	case (err != nil) != reply.Fenced:
		return fmt.Errorf("the store answers %v, the model's reply is %+v", err, reply)
	}
	return nil
}

// compare looks at the record, after a Purge that must not remove it.
func (r *replay) compare(want Record) error {
	if n, err := r.store.Purge(r.ctx, 10); err != nil || n > 0 && want.State != 0 {
		return fmt.Errorf("Purge removed %d records too early, %v", n, err)
	}
	recs, err := r.store.Records(r.ctx, keystore.Query{ID: &r.id})
	if err != nil || len(recs) > 1 {
		return fmt.Errorf("%d records, %v", len(recs), err)
	}
	got := Record{Nonce: want.Nonce, Token: want.Token, Released: want.Released}
	if len(recs) == 1 {
		rec := recs[0]
		r.token = rec.Token
		got.State, got.Begun, got.Alive, got.Generation = rec.State, rec.Begun, rec.LeaseLeft > 0, uint8(rec.Generation)
		if len(rec.Result) == 1 {
			got.Result = rec.Result[0]
		}
	}
	if got != want {
		return fmt.Errorf("the store has %+v, the model %+v", got, want)
	}
	return nil
}

func nonce(n uint8) [16]byte { return [16]byte{n} }
