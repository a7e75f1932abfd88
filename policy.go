package idem

import (
	"fmt"
	"math"
	"net/url"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v4"
)

// Policy says how often, how long and how fast is tried. It is a plain value
// and never changes; what a call counts belongs to the call. Every zero value
// is usable and finite; New refuses negative, infinite and NaN ones.
type Policy struct {
	// Attempts is how many attempts a call makes at most. 0 means 4; 1 means
	// no retry. Waiting for another owner is not counted.
	Attempts int
	// AttemptTimeout bounds the wait of an attempt for the reply's header,
	// and then every gap in its body; a decorated function has to end within
	// it. 0 means 5 s.
	AttemptTimeout time.Duration
	// Overall bounds a call's attempts, from the first one on: none starts
	// later, and none waits for its header longer. What comes before, the
	// claim and the wait for another owner, has InFlightWait. 0 means 30 s.
	Overall time.Duration
	// BaseDelay is the longest wait before the first retry. Each wait is
	// drawn at random between 1 ms and a limit that starts here and grows by
	// Multiplier ("full jitter"). 0 means 200 ms.
	BaseDelay time.Duration
	// MaxDelay caps the limit. 0 means 5 s.
	MaxDelay time.Duration
	// Multiplier is at least 1. 0 means 2.
	Multiplier float64
	// RetryAfterCap is the longest wait asked for by a server that is
	// honoured. Above it the call ends with ErrRetryAfterTooLong. 0 means
	// 30 s.
	RetryAfterCap time.Duration
	// InFlightWait is how long a call waits, in sum, for another owner of the
	// same intent. 0 means 30 s.
	InFlightWait time.Duration
	// RetryBudget is how many retries an origin may have open, a server or, for
	// decorated functions, the client: each retry
	// takes one, each definite answer gives one back. When it is spent, calls
	// end with ErrRetryBudget instead of loading a server that is down. 0
	// means 100.
	RetryBudget int
}

func (p Policy) withDefaults() Policy {
	orElse(&p.Attempts, 4)
	orElse(&p.AttemptTimeout, 5*time.Second)
	orElse(&p.Overall, 30*time.Second)
	orElse(&p.BaseDelay, 200*time.Millisecond)
	orElse(&p.MaxDelay, 5*time.Second)
	orElse(&p.Multiplier, 2)
	orElse(&p.RetryAfterCap, 30*time.Second)
	orElse(&p.InFlightWait, 30*time.Second)
	orElse(&p.RetryBudget, 100)
	return p
}

func (p Policy) validate() error {
	for _, n := range []struct {
		field string
		value int
	}{{"Policy.Attempts", p.Attempts}, {"Policy.RetryBudget", p.RetryBudget}} {
		if n.value < 0 {
			return badConfig(n.field, fmt.Sprintf("is %d; use 0 for the default, or a positive number", n.value))
		}
	}
	for _, d := range []struct {
		field string
		value time.Duration
	}{
		{"Policy.AttemptTimeout", p.AttemptTimeout}, {"Policy.Overall", p.Overall},
		{"Policy.BaseDelay", p.BaseDelay}, {"Policy.MaxDelay", p.MaxDelay},
		{"Policy.RetryAfterCap", p.RetryAfterCap}, {"Policy.InFlightWait", p.InFlightWait},
	} {
		if d.value < 0 {
			return badConfig(d.field, fmt.Sprintf("is %v; use 0 for the default, or a positive duration", d.value))
		}
	}
	if m := p.Multiplier; m != 0 && (math.IsNaN(m) || math.IsInf(m, 0) || m < 1) {
		return badConfig("Policy.Multiplier", fmt.Sprintf("is %v; use 0 for 2, or a finite number of at least 1", m))
	}
	return nil
}

// delays returns a source of waits for one call.
func (p Policy) delays() func() time.Duration {
	limit := max(p.MaxDelay, time.Millisecond)
	b := &backoff.ExponentialBackOff{
		// With a factor of 1 backoff draws between 0 and twice its interval,
		// so half the limits give full jitter.
		RandomizationFactor: 1,
		InitialInterval:     max(min(p.BaseDelay, limit)/2, 1),
		MaxInterval:         max(limit/2, 1),
		Multiplier:          p.Multiplier,
		MaxElapsedTime:      0, // no end: the loop has its own
		Stop:                backoff.Stop,
		Clock:               backoff.SystemClock,
	}
	b.Reset()
	return func() time.Duration { return min(max(b.NextBackOff(), time.Millisecond), limit) }
}

// budgets are the retry budgets of a client, by origin. A full budget is not
// kept.
type budgets struct {
	size int

	mu   sync.Mutex // guards open
	open map[string]int
}

// take takes a retry, if there is one left.
func (b *budgets) take(of *url.URL) bool {
	origin := budgetOf(of)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.open[origin] >= b.size {
		return false
	}
	if b.open == nil {
		b.open = make(map[string]int)
	}
	b.open[origin]++
	return true
}

// refund gives one back.
func (b *budgets) refund(of *url.URL) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.open) == 0 {
		return
	}
	origin := budgetOf(of)
	if b.open[origin] > 1 {
		b.open[origin]--
	} else {
		delete(b.open, origin)
	}
}

// budgetOf is the name of a budget: that of an origin, or that of all functions.
func budgetOf(u *url.URL) string {
	if u == nil {
		return ""
	}
	return originOf(u)
}
