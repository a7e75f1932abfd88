package idem

import (
	"fmt"
	"time"

	"github.com/idem-go/idem/keystore"
)

// margin is how long before the end of the contract's retention the last
// attempt may start: it takes AttemptTimeout to arrive at most, and the two
// clocks need not run equally fast.
func (c *Client) margin() time.Duration {
	return c.cfg.Policy.AttemptTimeout + c.cfg.Contract.Retention/100
}

// RetryHorizon is how long after its first send a key may still be sent: as
// long as the contract says that the server remembers it where a store keeps
// unresolved intents, and for one call, Policy.Overall, without a store. A
// server must remember keys for longer than that.
func (c *Client) RetryHorizon() time.Duration {
	if c.cfg.Store == nil {
		return c.cfg.Policy.Overall
	}
	return c.cfg.Contract.Retention
}

// expiry is until when attempts may start, for a key that was first sent age
// before now; zero if the server has no key to forget.
func (op *operation) expiry(now time.Time, age time.Duration) time.Time {
	if !op.sendsKey || !op.repeatable {
		return time.Time{}
	}
	c := op.client
	return now.Add(c.cfg.Contract.Retention - c.margin() - age)
}

// expired tells whether an attempt that is sent by then may find its key
// forgotten.
func (h *holding) expired(by time.Time) bool {
	return !h.expires.IsZero() && !by.Before(h.expires)
}

func errExpires(c *Client) error {
	return fmt.Errorf("%w: the next attempt would come too close to the end of the %v for which it is remembered", ErrKeyExpired, c.cfg.Contract.Retention)
}

// blocked tells why an unresolved intent must not be sent again.
func (op *operation) blocked(rec keystore.Record) error {
	c := op.client
	switch keep := c.cfg.Contract.Retention; {
	case !op.repeatable:
		return errNotRepeatable
	case rec.Age >= keep-c.margin():
		return fmt.Errorf("%w: first sent %v ago, remembered for %v", ErrKeyExpired, rec.Age.Round(time.Second), keep)
	}
	return nil
}
