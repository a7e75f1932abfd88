package sim

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/idem-go/idem/keystore"
)

// process is one life of a client or a server, from its start to its crash.
type process struct {
	w    *world
	name string // with the number of its life
	rate float64

	ctx    context.Context // ends with it
	cancel context.CancelFunc
}

func (w *world) process(slot string, life int) *process {
	p := &process{w: w, name: fmt.Sprintf("%s.%d", slot, life)}
	p.rate = 1 + maxDrift*(2*w.dice("rate/"+p.name, 0).Float64()-1)
	p.ctx, p.cancel = context.WithCancel(context.Background())
	return p
}

// errDead is what the memory of a dead process gets, which nobody sees: its
// goroutines have to end. A store's final error makes them end at once.
var errDead = fmt.Errorf("%w: the process is dead", keystore.ErrFenced)

var errBroken = errors.New("connection reset by peer")

// lastWords is how long a process lives on after its Shutdown has returned:
// what it has ended with is told.
const lastWords = 10 * time.Microsecond

func (p *process) dead() bool { return p.ctx.Err() != nil }

// die ends the process: from now on nothing leaves or reaches it.
func (p *process) die() { p.cancel() }

// pause waits, unless ctx or the process ends before.
func (p *process) pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-p.ctx.Done():
		return errDead
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// stretched is how much of the world's time a duration takes that the process
// has asked the store for, and heard how much of its own it says one took.
func (p *process) stretched(d time.Duration) time.Duration {
	return max(time.Duration(float64(d)/p.rate), 1)
}

func (p *process) heard(d time.Duration) time.Duration { return time.Duration(float64(d) * p.rate) }
