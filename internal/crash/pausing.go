package crash

import (
	"context"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/idem-go/idem/keystore"
	"github.com/idem-go/idem/server"
)

// pausing is what a server does that is paused at a point: it reports that it
// is there, which returns only after it was stopped and went on, and then what
// it sees.
type pausing struct {
	point, control string
	reached        atomic.Bool
	// calls is held by calls to the store, so that none of them is stopped on
	// its way: it could hold a lock in the store.
	calls sync.RWMutex
}

// pauseLease is short, since a pause outlasts it.
const pauseLease = 500 * time.Millisecond

// newPausing is nil for a server that runs through.
func newPausing() *pausing {
	point := os.Getenv(pointEnv)
	if point == "" {
		return nil
	}
	return &pausing{point: point, control: os.Getenv(controlEnv)}
}

func (p *pausing) configure(cfg *server.Config) {
	cfg.Lease, cfg.Wait = pauseLease, server.NoWait
	if cfg.Effects == server.Opaque {
		cfg.Recover = nil // nothing is run a second time
	}
	cfg.Store = reporting{cfg.Store, p}
}

// at pauses, the first time, if this is the point. Afterwards a handler whose
// claim is lost has its context cancelled: wait for that.
func (p *pausing) at(ctx context.Context, point string) {
	if p == nil || point != p.point || p.reached.Swap(true) {
		return
	}
	p.calls.Lock()
	p.report("at", nil)
	p.calls.Unlock()
	if point == "complete" {
		return
	}
	lost, cancel := context.WithTimeoutCause(ctx, 2*pauseLease, nil)
	defer cancel()
	<-lost.Done()
	p.report("context", context.Cause(ctx))
}

// sight is what a paused server has seen.
type sight struct{ What, Err string }

func (p *pausing) report(what string, err error) {
	s := sight{What: what}
	if err != nil {
		s.Err = err.Error()
	}
	if err := call(context.Background(), p.control+"/saw", s, nil); err != nil {
		fmt.Println("report:", err)
	}
}

// reporting is a store that reports what it answers after the pause.
type reporting struct {
	keystore.Store
	p *pausing
}

func (r reporting) Renew(ctx context.Context, o keystore.Owner, p keystore.RenewParams) error {
	return r.do("renew", func() error { return r.Store.Renew(ctx, o, p) })
}

func (r reporting) Complete(ctx context.Context, o keystore.Owner, p keystore.CompleteParams) error {
	r.p.at(ctx, "complete")
	return r.do("complete", func() error { return r.Store.Complete(ctx, o, p) })
}

func (r reporting) Release(ctx context.Context, o keystore.Owner, p keystore.ReleaseParams) error {
	return r.do("release", func() error { return r.Store.Release(ctx, o, p) })
}

func (r reporting) do(what string, call func() error) error {
	r.p.calls.RLock()
	before := !r.p.reached.Load()
	err := call()
	r.p.calls.RUnlock()
	if !before {
		r.p.report(what, err)
	}
	return err
}
