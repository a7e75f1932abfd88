package keystoretest

import (
	"errors"
	"sync"

	"github.com/idem-go/idem/keystore"
)

const (
	racers    = 16
	raceKeys  = 25
	raceTries = 50
)

// raceRules: whatever happens at once, one wins, and no loser gets an error.
var raceRules = []rule{
	{"race-new", "B087 B088 B152", func(p *probe) {
		p.raceForEach(func(keystore.ClaimParams) {})
	}},
	{"race-free", "", func(p *probe) {
		p.raceForEach(func(c keystore.ClaimParams) { p.release(p.acquire(c), keystore.Forget) })
	}},
	{"race-dead", "", func(p *probe) {
		p.raceForEach(func(c keystore.ClaimParams) { p.release(p.acquire(c), keystore.Abandon) })
	}},
	{"race-takeover", "B143", func(p *probe) {
		p.raceForEach(func(c keystore.ClaimParams) {
			c.Begun = true
			p.release(p.acquire(c), keystore.Abandon)
		})
	}},
	{"race-expired", "B149", func(p *probe) {
		p.raceForEach(func(c keystore.ClaimParams) {
			owner := p.acquire(c)
			p.ok("Complete", p.store.Complete(p.ctx, owner, keystore.CompleteParams{Retention: 1}))
			p.untilGone(c.ID)
		})
	}},

	{"race-same-nonce", "B093", func(p *probe) {
		for range raceKeys {
			c := p.params()
			owners := make([]keystore.Owner, racers)
			together(racers, func(i int) {
				got, err := p.store.Claim(p.ctx, c)
				if err != nil || got.Status != keystore.Acquired {
					p.errorf("one of the repeats of one Claim answered %v, %v; want acquired", got.Status, err)
				}
				owners[i] = got.Owner
			})
			p.endIfFailed()
			for _, o := range owners {
				if o != owners[0] {
					p.fatalf("the repeats of one Claim are different owners: %+v, %+v", owners[0], o)
				}
			}
		}
	}},

	{"race-complete-takeover", "B143", func(p *probe) {
		for range raceTries {
			c := p.params()
			c.Begun = true
			owner := p.acquire(c)
			p.release(owner, keystore.Abandon)
			r := rival(c)
			r.Takeover = true

			var completeErr, claimErr error
			var claim keystore.Claim
			together(2, func(i int) {
				if i == 0 {
					completeErr = p.completeErr(owner, "result")
				} else {
					claim, claimErr = p.store.Claim(p.ctx, r)
				}
			})
			p.ok("the racing Claim", claimErr)
			switch {
			case completeErr == nil && claim.Status == keystore.Completed:
			case errors.Is(completeErr, keystore.ErrFenced) && claim.Status == keystore.Acquired:
			default:
				p.fatalf("the racing Complete answered %v and the take-over %v; want exactly one to win", completeErr, claim.Status)
			}
		}
	}},

	{"race-settle", "", func(p *probe) {
		for range raceTries {
			c := p.params()
			owner := p.acquire(c)
			errs := make([]error, 3)
			together(len(errs), func(i int) {
				switch i {
				case 0:
					errs[i] = p.completeErr(owner, "result")
				case 1:
					errs[i] = p.releaseErr(owner, keystore.Forget)
				case 2:
					errs[i] = p.releaseErr(owner, keystore.Reject)
				}
			})
			won := 0
			for _, err := range errs {
				if err == nil {
					won++
				} else {
					p.is("a Complete or Release that lost a race", err, keystore.ErrFenced)
				}
			}
			if won != 1 {
				p.fatalf("%d of a Complete, a Forget and a Reject by one owner succeeded (%v), want exactly 1", won, errs)
			}
		}
	}},

	{"race-reject-repeated", "", func(p *probe) {
		for range raceKeys {
			c := p.params()
			owner := p.acquire(c)
			together(racers, func(int) {
				if err := p.releaseErr(owner, keystore.Reject); err != nil {
					p.errorf("one of the repeats of one Release failed: %v", err)
				}
			})
			p.endIfFailed()
			p.freed(c, 1)
		}
	}},
}

// raceForEach prepares records and has racers claim each of them at once, with
// Takeover. Exactly one must acquire it.
func (p *probe) raceForEach(prepare func(keystore.ClaimParams)) {
	p.t.Helper()
	for range raceKeys {
		c := p.params()
		prepare(c)
		claims := make([]keystore.Claim, racers)
		together(racers, func(i int) {
			r := rival(c)
			r.Takeover = true
			var err error
			if claims[i], err = p.store.Claim(p.ctx, r); err != nil {
				p.errorf("a racing Claim failed: %v", err)
			}
		})
		p.endIfFailed()
		var winners []keystore.Owner
		for _, claim := range claims {
			switch claim.Status {
			case keystore.Acquired:
				winners = append(winners, claim.Owner)
			case keystore.InFlight:
			default:
				p.fatalf("a racing Claim answered %v, want acquired or in-flight", claim.Status)
			}
		}
		if len(winners) != 1 {
			p.fatalf("%d of %d racing claims acquired the record, want exactly 1", len(winners), racers)
		}
		p.complete(winners[0], "result")
	}
}

// together runs n calls at once and waits for all.
func together(n int, call func(i int)) {
	var wg sync.WaitGroup
	start := make(chan struct{})
	for i := range n {
		wg.Go(func() {
			<-start
			call(i)
		})
	}
	close(start)
	wg.Wait()
}

// endIfFailed ends the test after a failure in another goroutine.
func (p *probe) endIfFailed() {
	if p.t.Failed() {
		p.t.FailNow()
	}
}
