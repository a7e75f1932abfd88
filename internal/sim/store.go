package sim

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/idem-go/idem/keystore"
)

// link is a store as one process reaches it: over a network that loses, delays
// and doubles what it carries.
type link struct {
	p     *process
	store keystore.Store
	// server: its repeats in the background are spread at random, see held.
	server bool
}

// waiting is a link to a store that tells of changes, at least sometimes.
type waiting struct {
	*link
	keystore.Waiter
}

// open returns the store as the process reaches it.
func (p *process) open(store keystore.Store, server bool) keystore.Store {
	l := &link{p: p, store: store, server: server}
	if waiter, ok := store.(keystore.Waiter); ok && !p.w.shape.unsteady {
		return waiting{l, waiter}
	}
	return l
}

// Watch implements keystore.Waiter. One notification in four is lost.
func (l waiting) Watch(id [32]byte) (<-chan struct{}, func()) {
	about := l.p.name + "/watch/" + l.p.w.names[id]
	changed, stop := l.Waiter.Watch(id)
	if !l.p.w.calm() && l.p.w.dice(about, l.p.w.nth(about)).IntN(4) == 0 {
		return nil, stop
	}
	return changed, stop
}

// answer is what a call to the store came to.
type answer[T any] struct {
	value T
	err   error
}

// call sends one call to the store. sender tells repeats of one call from
// others; apply is run when it arrives, which may be after the sender has given
// up, and may be twice.
func call[T any](ctx context.Context, l *link, kind string, id [32]byte, sender any, apply func() (T, error)) (T, error) {
	var none T
	p, w := l.p, l.p.w
	if p.dead() {
		return none, errDead
	}
	if err := ctx.Err(); err != nil {
		return none, err
	}
	about := p.name + " " + kind + " " + w.name(id)
	rep := repeat{p.name, kind, sender}
	held := w.held(rep, l.server)
	n := w.nth(about)
	f := w.fate(w.dice(about, n), held, w.shape.storeTrouble, w.shape.storeUsual, w.shape.storeWorst)
	if strings.HasPrefix(kind, "renew") && !w.calmIn(held) && (w.dice("line of "+about, 0).IntN(8) == 0 || w.stands(p.name, id)) {
		f = fate{what: "cut off", lost: true, breaks: f.back} // and so are all of this owner's
	}
	if kind == "read" && f.breaks > 0 && !w.shape.unsteady {
		f.breaks = 0 // the next poll after an error is spread
	}
	if held > 0 && f.breaks == 0 && (f.lost || f.deaf) {
		f.breaks = f.there // or its end depends on when it was sent
	}
	came := make(chan answer[T], 2)
	arrive := func(copied string) func() {
		return func() {
			var a answer[T]
			a.value, a.err = apply()
			w.note(p.name, "%s %s #%d%s%s: %s", kind, w.name(id), n, copied, f.words(), outcomeOf(a.value, a.err))
			if !f.deaf {
				time.AfterFunc(f.back, func() { came <- a })
			}
		}
	}
	leave := func() {
		switch {
		case held > 0 && (p.dead() || ctx.Err() != nil): // it would not have been sent yet
		case f.lost:
			w.note(p.name, "%s %s #%d%s", kind, w.name(id), n, f.words())
		default:
			time.AfterFunc(f.there, arrive(""))
			if f.again > 0 {
				time.AfterFunc(f.there+f.again, arrive(" copy"))
			}
		}
	}
	if held > 0 {
		time.AfterFunc(held, leave)
	} else {
		leave()
	}
	var broken <-chan time.Time
	if f.breaks > 0 {
		timer := time.NewTimer(held + f.breaks)
		defer timer.Stop()
		broken = timer.C
	}
	a := answer[T]{}
	select {
	case a = <-came:
	case <-broken:
		a.err = errBroken
	case <-p.ctx.Done():
		a.err = errDead
	case <-ctx.Done():
		a.err = ctx.Err()
	}
	w.answered(rep, a.err)
	return a.value, a.err
}

// repeat names what may be sent several times as the same call.
type repeat struct {
	process, kind string
	sender        any
}

// failing is a call that has failed so far.
type failing struct {
	times int
	last  time.Time
}

// held is how long a call is held up on its way: until the latest moment at
// which the server half could have repeated it, so that the random part of its
// pause is not seen.
func (w *world) held(rep repeat, server bool) time.Duration {
	if !server || w.shape.unsteady {
		return 0
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	f, ok := w.failing[rep]
	if !ok {
		return 0
	}
	pause := min(100*time.Millisecond<<min(f.times-1, 10), 5*time.Second)
	return max(time.Until(f.last.Add(pause)), 0)
}

// answered notes how a call ended.
func (w *world) answered(rep repeat, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err == nil || keystore.Final(err) {
		delete(w.failing, rep)
		return
	}
	w.failing[rep] = failing{w.failing[rep].times + 1, time.Now()}
}

func outcomeOf(value any, err error) string {
	if err != nil {
		return err.Error()
	}
	switch v := value.(type) {
	case keystore.Claim:
		return fmt.Sprintf("%v token %d", v.Status, v.Record.Token)
	case []keystore.Record:
		if len(v) == 1 {
			return fmt.Sprintf("%v token %d", v[0].State, v[0].Token)
		}
		return fmt.Sprintf("%d records", len(v))
	}
	return "done"
}

// heard is a record by the process' clock.
func (l *link) heard(r keystore.Record) keystore.Record {
	r.Age, r.LeaseLeft = l.p.heard(r.Age), l.p.heard(r.LeaseLeft)
	return r
}

// Claim implements keystore.Store.
func (l *link) Claim(ctx context.Context, c keystore.ClaimParams) (keystore.Claim, error) {
	kind := "claim"
	if c.Takeover {
		kind = "takeover"
	}
	return call(ctx, l, kind, c.ID, c.Nonce, func() (keystore.Claim, error) {
		c := c
		c.Lease, c.Keep = l.p.stretched(c.Lease), l.p.stretched(c.Keep)
		got, err := l.store.Claim(context.Background(), c)
		got.Record = l.heard(got.Record)
		return got, err
	})
}

// Renew implements keystore.Store.
func (l *link) Renew(ctx context.Context, o keystore.Owner, r keystore.RenewParams) error {
	kind := "renew"
	if r.Begun {
		kind = "begin"
	}
	return l.settle(ctx, kind, o, func() error {
		r := r
		r.Lease = l.p.stretched(r.Lease)
		return l.store.Renew(context.Background(), o, r)
	})
}

// Complete implements keystore.Store.
func (l *link) Complete(ctx context.Context, o keystore.Owner, c keystore.CompleteParams) error {
	return l.settle(ctx, "complete", o, func() error {
		c := c
		c.Retention = l.p.stretched(c.Retention)
		return l.store.Complete(context.Background(), o, c)
	})
}

// Release implements keystore.Store.
func (l *link) Release(ctx context.Context, o keystore.Owner, r keystore.ReleaseParams) error {
	return l.settle(ctx, r.How.String(), o, func() error { return l.store.Release(context.Background(), o, r) })
}

func (l *link) settle(ctx context.Context, kind string, o keystore.Owner, apply func() error) error {
	_, err := call(ctx, l, fmt.Sprintf("%s by %d", kind, o.Token), o.ID, o, func() (struct{}, error) { return struct{}{}, apply() })
	return err
}

// Records implements keystore.Store.
func (l *link) Records(ctx context.Context, q keystore.Query) ([]keystore.Record, error) {
	kind, id := "list", q.After
	if q.ID != nil {
		kind, id = "read", *q.ID
	}
	return call(ctx, l, kind, id, nil, func() ([]keystore.Record, error) {
		recs, err := l.store.Records(context.Background(), q)
		for i := range recs {
			recs[i] = l.heard(recs[i])
		}
		return recs, err
	})
}

// Purge implements keystore.Store.
func (l *link) Purge(ctx context.Context, limit int) (int, error) {
	return call(ctx, l, "purge", [32]byte{}, nil, func() (int, error) { return l.store.Purge(context.Background(), limit) })
}
