package keystoretest

import (
	"math"
	"sync"
	"time"

	"github.com/idem-go/idem/keystore"
)

// claimFaults are faults in what a Claim decides.
var claimFaults = []fault{
	{"zero lease taken for none given", "claim-params", func(f *faulty) {
		sound := f.claim
		f.claim = func(p keystore.ClaimParams) (keystore.Claim, error) {
			if p.Lease == 0 {
				p.Lease = time.Hour
			}
			return sound(p)
		}
	}},

	{"fingerprint not compared in flight", "mismatch-in-flight", blind(func(_ keystore.ClaimParams, r keystore.Record) bool {
		return r.State == keystore.Running && r.LeaseLeft > 0
	})},
	{"fingerprint not compared when completed", "mismatch-completed", blind(func(_ keystore.ClaimParams, r keystore.Record) bool {
		return r.State == keystore.Done
	})},
	{"fingerprint not compared when dead", "mismatch-dead-not-begun", blind(func(_ keystore.ClaimParams, r keystore.Record) bool {
		return r.State == keystore.Running && r.LeaseLeft <= 0 && !r.Begun
	})},
	{"fingerprint not compared on take-over", "mismatch-dead-begun", blind(func(p keystore.ClaimParams, r keystore.Record) bool {
		return r.Unresolved() && p.Takeover
	})},
	{"fingerprint not compared with the same nonce", "mismatch-in-flight", func(f *faulty) {
		blind(func(p keystore.ClaimParams, r keystore.Record) bool { return p.Nonce == f.owner(p.ID).Nonce })(f)
	}},
	{"fingerprint compared on a free record", "claim-free", func(f *faulty) {
		sound := f.claim
		f.claim = func(p keystore.ClaimParams) (keystore.Claim, error) {
			if r, ok := f.stored(p.ID); ok && r.State == keystore.Free && r.Fingerprint != p.Fingerprint {
				return keystore.Claim{Status: keystore.Mismatch, Record: r}, nil
			}
			return sound(p)
		}
	}},
	{"result leaked on a mismatch", "mismatch-completed", onAnswer(func(f *faulty, _ keystore.ClaimParams, c *keystore.Claim) {
		if c.Status == keystore.Mismatch {
			c.Record, _ = f.stored(c.Record.ID)
		}
	})},

	{"released nonce taken for a new claim", "claim-same-nonce-released", func(f *faulty) {
		sound := f.claim
		f.claim = func(p keystore.ClaimParams) (keystore.Claim, error) {
			if r, ok := f.stored(p.ID); ok && r.State == keystore.Free {
				p.Nonce = randomNonce()
			}
			return sound(p)
		}
	}},
	{"own nonce not recognised", "claim-same-nonce", func(f *faulty) {
		sound := f.claim
		f.claim = func(p keystore.ClaimParams) (keystore.Claim, error) {
			if r, ok := f.stored(p.ID); ok && r.LeaseLeft > 0 {
				p.Nonce = randomNonce()
			}
			return sound(p)
		}
	}},
	{"repeated claim does not renew the lease", "claim-same-nonce-renews", func(f *faulty) {
		sound := f.claim
		f.claim = func(p keystore.ClaimParams) (keystore.Claim, error) {
			if p.Nonce == f.owner(p.ID).Nonce {
				p.Lease = 1
			}
			return sound(p)
		}
	}},
	{"claim checks, then acts", "race-new", func(f *faulty) {
		sound := f.claim
		second := pairs()
		f.claim = func(p keystore.ClaimParams) (keystore.Claim, error) {
			_, found := f.stored(p.ID)
			if !found {
				<-second(p.ID) // the fault shows where two have checked
			}
			c, err := sound(p)
			if !found && c.Status == keystore.InFlight {
				c.Status = keystore.Acquired
				c.Owner = keystore.Owner{ID: p.ID, Nonce: p.Nonce, Token: c.Record.Token}
			}
			return c, err
		}
	}},
	{"owner given to a loser", "claim-in-flight", onAnswer(func(f *faulty, p keystore.ClaimParams, c *keystore.Claim) {
		if c.Status == keystore.InFlight {
			c.Owner = f.owner(p.ID)
		}
	})},

	{"take-over without asking", "dead-begun-unresolved", func(f *faulty) {
		sound := f.claim
		f.claim = func(p keystore.ClaimParams) (keystore.Claim, error) {
			p.Takeover = true
			return sound(p)
		}
	}},
	{"take-over of a live record", "takeover-only-dead", func(f *faulty) {
		sound := f.claim
		f.claim = func(p keystore.ClaimParams) (keystore.Claim, error) {
			if r, ok := f.stored(p.ID); ok && p.Takeover && r.LeaseLeft > 0 {
				_ = f.release(f.owner(p.ID), keystore.ReleaseParams{How: keystore.Abandon})
			}
			return sound(p)
		}
	}},
	{"token does not rise", "dead-not-begun-claimable", onAnswer(func(_ *faulty, _ keystore.ClaimParams, c *keystore.Claim) {
		if c.Status == keystore.Acquired {
			c.Owner.Token, c.Record.Token = 1, 1
		}
	})},
	{"begun mark lost on take-over", "takeover", onAnswer(func(_ *faulty, p keystore.ClaimParams, c *keystore.Claim) {
		if p.Takeover {
			c.Record.Begun = p.Begun
		}
	})},
	{"age restarts on take-over", "takeover", onAnswer(func(_ *faulty, _ keystore.ClaimParams, c *keystore.Claim) {
		if c.Status == keystore.Acquired {
			c.Record.Age = 0
		}
	})},
	{"age does not restart on a free record", "age-restarts", onAnswer(func(_ *faulty, _ keystore.ClaimParams, c *keystore.Claim) {
		c.Record.Age += time.Second
	})},
	{"generation lost on a free record", "claim-free", onAnswer(func(_ *faulty, _ keystore.ClaimParams, c *keystore.Claim) {
		c.Record.Generation = 0
	})},
	{"generation kept over the retention", "claim-expired", onAnswer(func(_ *faulty, p keystore.ClaimParams, c *keystore.Claim) {
		if p.Fingerprint == fingerprintB {
			c.Record.Generation = 1
		}
	})},
	{"meta lost on take-over", "meta-survives-takeover", func(f *faulty) {
		sound := f.claim
		f.claim = func(p keystore.ClaimParams) (keystore.Claim, error) {
			before, ok := f.stored(p.ID)
			c, err := sound(p)
			if ok && c.Status == keystore.Acquired && before.State == keystore.Running {
				err = f.renew(c.Owner, keystore.RenewParams{Lease: p.Lease, Meta: p.Meta})
				c.Record.Meta = p.Meta
			}
			return c, err
		}
	}},

	{"lease never dies", "lease-ends", func(f *faulty) {
		sound := f.claim
		f.claim = func(p keystore.ClaimParams) (keystore.Claim, error) {
			p.Lease += time.Hour
			return sound(p)
		}
	}},
	{"long lease overflows", "durations-huge", func(f *faulty) {
		sound := f.claim
		f.claim = func(p keystore.ClaimParams) (keystore.Claim, error) {
			if p.Lease == math.MaxInt64 {
				p.Lease = 1
			}
			return sound(p)
		}
	}},
	{"keep not kept", "purge-keeps-needed", func(f *faulty) {
		sound := f.claim
		f.claim = func(p keystore.ClaimParams) (keystore.Claim, error) {
			p.Keep = 0
			return sound(p)
		}
	}},
}

// blind is a claim that does not compare fingerprints where that holds of it
// and the record.
func blind(where func(keystore.ClaimParams, keystore.Record) bool) func(*faulty) {
	return func(f *faulty) {
		sound := f.claim
		f.claim = func(p keystore.ClaimParams) (keystore.Claim, error) {
			if r, ok := f.stored(p.ID); ok && where(p, r) {
				p.Fingerprint = r.Fingerprint
			}
			return sound(p)
		}
	}
}

// onAnswer is a claim whose answer is spoilt.
func onAnswer(spoil func(*faulty, keystore.ClaimParams, *keystore.Claim)) func(*faulty) {
	return func(f *faulty) {
		sound := f.claim
		f.claim = func(p keystore.ClaimParams) (keystore.Claim, error) {
			c, err := sound(p)
			if err == nil {
				spoil(f, p, &c)
			}
			return c, err
		}
	}
}

// pairs returns a function whose channel for an ID is closed when it has been
// asked for it twice.
func pairs() func(id [32]byte) <-chan struct{} {
	var mu sync.Mutex
	asked := map[[32]byte]int{}
	channels := map[[32]byte]chan struct{}{}
	return func(id [32]byte) <-chan struct{} {
		mu.Lock()
		defer mu.Unlock()
		if channels[id] == nil {
			channels[id] = make(chan struct{})
		}
		if asked[id]++; asked[id] == 2 {
			close(channels[id])
		}
		return channels[id]
	}
}
