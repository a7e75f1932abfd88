package keystoretest

import (
	"time"

	"github.com/idem-go/idem/keystore"
)

// watchRules are for stores that are a keystore.Waiter, and hold trivially for
// others.
var watchRules = []rule{
	{"watch-complete", "", watchWakes(func(p *probe, o keystore.Owner) { p.complete(o, "result") })},
	{"watch-forget", "", watchWakes(func(p *probe, o keystore.Owner) { p.release(o, keystore.Forget) })},
	{"watch-reject", "", watchWakes(func(p *probe, o keystore.Owner) { p.release(o, keystore.Reject) })},
	{"watch-takeover", "", watchWakes(func(p *probe, o keystore.Owner) {
		p.release(o, keystore.Abandon)
		c := p.params()
		c.ID, c.Takeover = o.ID, true
		p.acquire(c)
	})},

	{"watch-many", "B098", func(p *probe) {
		waiter, ok := p.store.(keystore.Waiter)
		if !ok {
			return
		}
		// Every waiter watches before it looks, so none may sleep through.
		for range raceKeys {
			c := p.params()
			owner := p.acquire(c)
			together(racers, func(i int) {
				if i == 0 {
					if err := p.completeErr(owner, "result"); err != nil {
						p.errorf("Complete failed: %v", err)
					}
					return
				}
				changed, stop := waiter.Watch(c.ID)
				defer stop()
				recs, err := p.store.Records(p.ctx, keystore.Query{ID: &c.ID})
				if err != nil || len(recs) != 1 {
					p.errorf("Records returned %d records, %v; want 1", len(recs), err)
				} else if recs[0].State != keystore.Done && !closes(changed) {
					p.errorf("a waiter that watched before it looked was not woken within %v", patience)
				}
			})
			p.endIfFailed()
		}
	}},

	{"watch-stop", "", func(p *probe) {
		waiter, ok := p.store.(keystore.Waiter)
		if !ok {
			return
		}
		c := p.params()
		owner := p.acquire(c)
		_, stopFirst := waiter.Watch(c.ID)
		second, stopSecond := waiter.Watch(c.ID)
		stopFirst()
		stopFirst() // must not stop the second
		p.complete(owner, "result")
		p.wakes(second)
		stopSecond()
		stopSecond()
		stopFirst()
	}},
}

// watchWakes returns a check that the change wakes who watched before it.
func watchWakes(change func(*probe, keystore.Owner)) func(*probe) {
	return func(p *probe) {
		waiter, ok := p.store.(keystore.Waiter)
		if !ok {
			return
		}
		owner := p.acquire(p.params())
		changed, stop := waiter.Watch(owner.ID)
		defer stop()
		change(p, owner)
		p.wakes(changed)
	}
}

func (p *probe) wakes(changed <-chan struct{}) {
	p.t.Helper()
	if !closes(changed) {
		p.fatalf("the watcher was not woken within %v", patience)
	}
}

func closes(changed <-chan struct{}) bool {
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	select {
	case <-changed:
		return true
	case <-deadline.C:
		return false
	}
}
