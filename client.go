package idem

import (
	"context"
	"fmt"
	"net/http"
	"reflect"
	"time"

	"github.com/idem-go/idem/internal/await"
	"github.com/idem-go/idem/internal/lease"
	"github.com/idem-go/idem/internal/watch"
	"github.com/idem-go/idem/keystore"
)

// Config configures a Client. Every zero value is usable and finite; New
// refuses negative ones.
type Config struct {
	// Store keeps the key of an intent before its first attempt and its
	// outcome afterwards. Nil keeps nothing: then an intent's ID still gives
	// the same key after a restart, but another payload under it, and an
	// outcome that was unknown, are forgotten.
	Store keystore.Store
	// Scope is the scope of intents that name none.
	Scope string
	// ScopeOf returns the scope of an HTTP request whose intent names none,
	// where one client acts for several tenants. It is asked before Scope; an
	// error, or an empty scope, refuses the request.
	ScopeOf func(*http.Request) (string, error)
	// Contract says how the server takes keys; zero means IETF.
	Contract Contract
	// Policy says how often and how long is tried; see there for its zero
	// values.
	Policy Policy
	// RandomKeys makes an ID's key random and keeps it in the store, for
	// servers that ask for unpredictable keys. It needs a Store. The zero
	// value derives keys from scope, ID and generation.
	RandomKeys bool
	// Sign is called with each attempt's request before it is sent, for servers
	// that want it signed: after the key is in it, and outside the fingerprint.
	// It may read the body, which is put back, and set headers; a context, a
	// body or a URL that it sets do not count, and a changed key header is
	// refused. Its context ends with the attempt's time. Its error ends the
	// call: nothing was sent by that attempt. A request that a redirect has led
	// to another origin is not signed. It must be safe for concurrent use.
	Sign func(*http.Request) error
	// MaxRequest is the largest request body that is kept for further
	// attempts, in bytes. 0 means 10 MiB.
	MaxRequest int64
	// MaxResult is the largest response or encoded result that is kept, in
	// bytes. 0 means 1 MiB.
	MaxResult int
	// Lease is how long a claim in the store stands without being renewed. 0
	// means 30 s.
	Lease time.Duration
	// Retention is how long a settled record is replayed. 0 means 24 h. It
	// must exceed Policy.Overall.
	Retention time.Duration
	// FlightGrace is how long a call goes on after its last caller has left.
	// 0 means 1 s.
	FlightGrace time.Duration
	// MaxPayload is the largest JSON of a call's payload that is kept in its
	// record, in bytes, so that Resume can make the call again after the
	// process died. 0 keeps none; at most 32 KiB. Payloads are kept as they
	// are: leave it 0 if they hold what must not be stored.
	MaxPayload int
	// FailOpen sends although the store has failed at the claim, with the key
	// that is derived for an intent's first generation. Then nothing is known
	// of earlier calls: another payload goes out under the same key, and what
	// an earlier call left unknown is forgotten. By default nothing is sent.
	FailOpen bool
	// Recover is asked what became of an unresolved intent that must not be
	// sent again: the server may have forgotten its key (ErrKeyExpired), or
	// does not honour keys. The next call with the intent asks, under a claim
	// that keeps every other process from it; the context ends after
	// Policy.Overall, and when the claim is lost. An error or a panic is no
	// answer: the intent stays unresolved. Nil leaves it so in any case.
	Recover func(context.Context, Pending) (Resolution, error)
	// Encode and Decode turn results into bytes for the store and back. Both
	// or none; none means JSON. Decode gets a pointer to the result.
	Encode func(any) ([]byte, error)
	Decode func([]byte, any) error
	// Classify says what an error of a decorated function proves; false if it
	// does not know it. It must be safe for concurrent use.
	Classify func(error) (Outcome, bool)
	// Observer is told of every operation. Nil tells nobody.
	Observer Observer
}

// maxMaxPayload leaves room in a record's note for the intent's names.
const maxMaxPayload = keystore.MaxMeta / 2

// Client is the client half. It is safe for concurrent use and meant to be
// shared: calls are merged, and retry budgets kept, per Client.
type Client struct {
	cfg     Config
	flights flights
	budgets budgets
	waiters *await.Waiters
	keepers *lease.Keepers
	watch   *watch.Watch[Event, Attempt]
	// credentials are the headers that tell who asks.
	credentials []string
}

// New returns a client. It opens nothing and starts nothing. The error is
// ErrConfig and names the field.
func New(cfg Config) (*Client, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	cfg.Contract = cfg.Contract.withDefaults()
	cfg.Policy = cfg.Policy.withDefaults()
	orElse(&cfg.MaxRequest, 10<<20)
	orElse(&cfg.MaxResult, 1<<20)
	orElse(&cfg.Lease, 30*time.Second)
	orElse(&cfg.Retention, 24*time.Hour)
	orElse(&cfg.FlightGrace, time.Second)
	c := &Client{cfg: cfg}
	if longest := cfg.Contract.Retention - c.margin(); cfg.Policy.Overall >= longest {
		return nil, badConfig("Policy.Overall", fmt.Sprintf("is %v; it must be shorter than %v, the contract's retention of %v without a margin, or a late attempt is a new operation", cfg.Policy.Overall, longest, cfg.Contract.Retention))
	}
	if cfg.Policy.Overall >= cfg.Retention {
		return nil, badConfig("Config.Retention", fmt.Sprintf("is %v; it must exceed Policy.Overall of %v", cfg.Retention, cfg.Policy.Overall))
	}
	c.flights.grace = cfg.FlightGrace
	c.flights.running = make(map[[32]byte]*flight)
	c.flights.quit = make(chan struct{})
	c.budgets.size = cfg.Policy.RetryBudget
	if cfg.Store != nil {
		c.waiters = await.New(cfg.Store)
		c.keepers = lease.New(cfg.Store, cfg.Lease)
	}
	c.credentials = append([]string{"Authorization", "Cookie"}, cfg.Contract.Credentials...)
	c.watch = watch.New[Event, Attempt](cfg.Observer)
	return c, nil
}

func (cfg Config) validate() error {
	if err := cfg.Contract.validate(); err != nil {
		return err
	}
	if err := cfg.Policy.validate(); err != nil {
		return err
	}
	for _, d := range []struct {
		field string
		value time.Duration
	}{{"Config.Lease", cfg.Lease}, {"Config.Retention", cfg.Retention}, {"Config.FlightGrace", cfg.FlightGrace}} {
		if d.value < 0 {
			return badConfig(d.field, fmt.Sprintf("is %v; use 0 for the default, or a positive duration", d.value))
		}
	}
	switch {
	case cfg.MaxRequest < 0:
		return badConfig("Config.MaxRequest", fmt.Sprintf("is %d; use 0 for 10 MiB, or a positive number of bytes", cfg.MaxRequest))
	case cfg.MaxResult < 0 || cfg.MaxResult > keystore.MaxResult/2:
		return badConfig("Config.MaxResult", fmt.Sprintf("is %d; use 0 for 1 MiB, or 1 to %d bytes, which every store accepts", cfg.MaxResult, keystore.MaxResult/2))
	case cfg.MaxPayload < 0 || cfg.MaxPayload > maxMaxPayload:
		return badConfig("Config.MaxPayload", fmt.Sprintf("is %d; use 0 to keep none, or 1 to %d bytes, which fit into a record's note", cfg.MaxPayload, maxMaxPayload))
	case cfg.MaxPayload > 0 && cfg.Store == nil:
		return badConfig("Config.MaxPayload", "needs Config.Store: there is nowhere to keep a payload")
	case cfg.FailOpen && cfg.RandomKeys:
		return badConfig("Config.FailOpen", "can't be combined with Config.RandomKeys: without the store a second key would be drawn for an intent that was sent under another")
	case isNilPointer(cfg.Store):
		return badConfig("Config.Store", "is a nil pointer; leave it nil to keep nothing, or pass a store")
	case isNilPointer(cfg.Observer):
		return badConfig("Config.Observer", "is a nil pointer; leave it nil to tell nobody")
	case cfg.RandomKeys && cfg.Store == nil:
		return badConfig("Config.RandomKeys", "needs Config.Store: a random key that is not kept is another one after a restart")
	case (cfg.Encode == nil) != (cfg.Decode == nil):
		return badConfig("Config.Encode", "and Config.Decode go together; set both or none")
	}
	return nil
}

// isNilPointer finds a nil pointer in a non-nil interface, a mistake that
// would otherwise panic at the first call.
func isNilPointer(v any) bool {
	rv := reflect.ValueOf(v)
	return rv.Kind() == reflect.Pointer && rv.IsNil()
}

// orElse sets a zero value to its default.
func orElse[T comparable](v *T, def T) {
	var zero T
	if *v == zero {
		*v = def
	}
}

// Shutdown refuses new calls with ErrShutdown and waits for the running
// flights to settle. When ctx is done before they have, it cancels them, so
// that their records stay unresolved, and returns ctx's error: those intents
// are not lost, the next call with the same intent takes them up. It may be
// called more than once.
func (c *Client) Shutdown(ctx context.Context) error {
	idle := c.flights.close()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
	}
	select {
	case <-idle: // both
		return nil
	default:
		c.flights.cancelAll()
		return ctx.Err()
	}
}
