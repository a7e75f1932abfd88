package sim

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"
)

// mortal is what can crash, shut down, and start again.
type mortal interface {
	start() error
	crash()
	stop(patience time.Duration)
}

// chaos lets processes crash and start again until things calm down. It
// returns how many have ended.
func (w *world) chaos(r *rand.Rand) int {
	all := make([]mortal, 0, len(w.hosts)+len(w.clients))
	for _, h := range w.hosts {
		all = append(all, h)
	}
	for _, c := range w.clients {
		all = append(all, c)
	}
	type blow struct {
		at, down time.Duration
		patience time.Duration // of a shutdown; 0 is a crash
		who      int
	}
	blows := make([]blow, w.shape.crashes)
	for i := range blows {
		b := blow{at: between(r, 5*time.Millisecond, w.shape.chaos), down: between(r, time.Millisecond, 3*w.shape.lease), who: r.IntN(len(all))}
		if r.IntN(3) == 0 {
			b.patience = between(r, time.Millisecond, 200*time.Millisecond)
		}
		blows[i] = b
	}
	slices.SortFunc(blows, func(a, b blow) int { return int(a.at - b.at) })
	for _, b := range blows {
		w.sleep(b.at)
		if b.patience > 0 {
			all[b.who].stop(b.patience)
		} else {
			all[b.who].crash()
		}
		time.Sleep(b.down)
		must(all[b.who].start())
	}
	w.sleep(w.shape.chaos)
	return len(blows)
}

// must is for what fails by a mistake in this package only.
func must(err error) {
	if err != nil {
		panic(err)
	}
}

// rounds is how often what is unknown is driven again at most. Recover is asked
// less and less often, up to five minutes apart.
const rounds = 24

// heal drives everything to its end and checks it.
func (w *world) heal() {
	w.note("world", "heals")
	w.workers.Wait()
	time.Sleep(longest)
	for round := range rounds {
		if !w.drive(round, func(j *job) bool { return !j.done(w) }) {
			break
		}
		time.Sleep(5 * time.Second << min(round, 5))
	}
	w.checkEnds()
	w.reconcile()
	// Whoever asks again is told the same.
	w.drive(rounds, func(*job) bool { return true })
	for _, c := range w.clients {
		c.end()
	}
	for _, h := range w.hosts {
		h.end()
	}
	w.graves.Wait()
	time.Sleep(longest)
	w.checkRecords()
}

// drive has every client call for its jobs that are wanted, and tells whether
// there were any.
func (w *world) drive(round int, wanted func(*job) bool) (some bool) {
	for _, c := range w.clients {
		for _, j := range c.jobs {
			if !wanted(j) {
				continue
			}
			some = true
			w.workers.Go(func() {
				about := "driving " + j.name
				time.Sleep(between(w.dice(about, round), time.Millisecond, 50*time.Millisecond))
				c.up.call(c.up.ctx, j)
			})
		}
	}
	w.workers.Wait()
	return some
}

// checkEnds wants every job to have come to an end.
func (w *world) checkEnds() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.clients {
		for _, j := range c.jobs {
			if !j.last.final() {
				w.violate(UnknownEnds, "%s, for %v, is told %v after everything is well: %v", j.name, j.intent, j.last.outcome, j.last.err)
			}
		}
	}
}

// reconcile settles what no caller has come back for.
func (w *world) reconcile() {
	for round := range rounds {
		up := w.hosts[round%len(w.hosts)].current()
		n, err := up.server.Reconcile(w.ctx)
		w.note(up.name, "has reconciled %d: %t", n, err == nil)
		if err == nil {
			return
		}
		time.Sleep(5 * time.Second << min(round, 6))
	}
}

// end shuts a client down in peace.
func (c *slot) end() {
	ctx, cancel := context.WithTimeout(c.w.ctx, time.Minute)
	defer cancel()
	c.w.ended(c.up.process, c.up.client.Shutdown(ctx))
}

// end shuts a server down in peace.
func (h *host) end() {
	ctx, cancel := context.WithTimeout(h.w.ctx, time.Minute)
	defer cancel()
	s := h.current()
	h.w.ended(s.process, s.server.Shutdown(ctx))
}

// ended notes how a process has shut down in peace.
func (w *world) ended(p *process, err error) {
	if err != nil {
		w.mu.Lock()
		w.violate(NoneLeft, "%s can't be shut down: %v", p.name, err)
		w.mu.Unlock()
	}
	p.die()
}
