package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/await"
	"github.com/idem-go/idem/internal/lease"
	"github.com/idem-go/idem/internal/watch"
	"github.com/idem-go/idem/keystore"
)

var (
	// ErrRecoveryRequired: the record is unresolved. It was begun, its owner
	// is gone, and nobody knows whether the effect happened.
	ErrRecoveryRequired = errors.New("idem: recovery required: nobody knows whether it was executed")
	// ErrMaxRun is the cause with which the context of a handler or function
	// ends that ran longer than MaxRun.
	ErrMaxRun = errors.New("idem: ran longer than MaxRun")
)

// NoWait as a wait means that a duplicate of a running request is answered at
// once.
const NoWait time.Duration = -1

// Config configures a Server. Store, Effects and Scope have no default.
type Config struct {
	// Store holds the records. Replicas that serve the same keys share it.
	Store keystore.Store
	// Effects declares what may be run again after a failure.
	Effects Effects
	// Scope returns who asks: a tenant, a user, an account. Keys of two scopes
	// never meet. It is called after authentication, with the whole body to
	// read. An error or an empty scope refuses the request. SingleTenant is
	// for servers that have one tenant only.
	Scope func(*http.Request) (string, error)
	// Key returns the request's key, or "" if it has none. It may read the
	// body, which is why MaxRequest then bounds requests without a key too.
	// Nil reads the header Idempotency-Key, as idem.ParseKey does; two such
	// lines are refused.
	Key func(*http.Request) (idem.Key, error)
	// Fingerprint returns what stands for the request's body when a duplicate
	// is compared with the first request, such as the validated input; it goes
	// through idem.Fingerprint. Method, path and query are compared in any
	// case. Nil compares media type and body, JSON by its value.
	Fingerprint func(r *http.Request, body []byte) (any, error)
	// Authorize is asked before a stored answer is replayed, also after a
	// wait: the caller may have lost its right since. Nil allows all replays.
	Authorize func(*http.Request) error
	// Recover is asked what became of an unresolved record: by the next
	// duplicate that meets it, and by Reconcile. It looks where the effect
	// would be: in the books, at the provider. OutcomeExecuted and
	// OutcomeRejected settle the record with the reply or value given, and a
	// duplicate gets that as a replay; after OutcomeNotExecuted the duplicate
	// runs; anything else, an error and a panic leave the record unresolved,
	// and it is not asked again before a second, then twice as long, up to
	// five minutes. One process at a time asks about a record; its former
	// owner, should it still be at work, has lost its claim by then.
	//
	// The context does not end with the duplicate's request; it ends after
	// MaxRun, with idem.ErrLeaseLost and with idem.ErrShutdown. Nil leaves
	// records unresolved until they are resolved by hand. A Transaction route
	// leaves no unresolved records, and asks about none.
	Recover func(context.Context, Pending) (Resolution, error)

	// Optional lets requests without a key through, unprotected. By default
	// they are refused, except for GET, HEAD, OPTIONS and TRACE.
	Optional bool

	// Wait is how long a duplicate waits for the running request; 0 means 2 s,
	// NoWait not at all.
	Wait time.Duration
	// MaxRun is how long a handler may run; 0 means 5 min. After it its
	// context is cancelled and its lease is no longer renewed.
	MaxRun time.Duration
	// Lease is how long a claim outlives a dead process; 0 means 30 s. It is
	// renewed while the handler runs. The least is 10 ms.
	Lease time.Duration
	// Retention is how long an answer is replayed, from its completion on; 0
	// means 24 h. It must exceed Wait, and should exceed the time for which
	// clients retry: after it a retry is a new operation.
	Retention time.Duration

	// MaxRequest is the largest request body in bytes; 0 means 10 MiB.
	MaxRequest int64
	// MaxResponse is the largest answer in bytes that is stored; 0 means
	// 1 MiB. It is bounded by what every store accepts, keystore.MaxResult
	// less 64 KiB for headers.
	MaxResponse int

	// TooEarly answers 425 instead of 409 while another attempt runs.
	TooEarly bool
	// FailOpen runs the handler unprotected if the store fails at the claim.
	// Then a retry can have a second effect. By default such a request is
	// answered 503 and the handler does not run. A Transaction route never
	// runs so: there is no transaction to run it in.
	FailOpen bool
	// Observer is told of every operation. Nil watches none.
	Observer idem.Observer
	// Describe is the URI of a page that explains keys to the API's clients.
	// Problems link to it, and their types are its fragments. Empty means this
	// package's documentation.
	Describe string
}

const (
	defaultWait        = 2 * time.Second
	defaultMaxRun      = 5 * time.Minute
	defaultLease       = 30 * time.Second
	minLease           = 10 * time.Millisecond
	defaultRetention   = 24 * time.Hour
	defaultMaxRequest  = 10 << 20
	defaultMaxResponse = 1 << 20
	maxMaxResponse     = keystore.MaxResult - 64<<10
	defaultDescribe    = "https://pkg.go.dev/github.com/idem-go/idem/server"
)

// SingleTenant is the Config.Scope of a server whose callers all belong
// together: whoever has a key gets its answer.
func SingleTenant(*http.Request) (string, error) { return "single-tenant", nil }

// Server claims keys, runs what they name, and replays the answers. It is safe
// for concurrent use. End it with Shutdown.
type Server struct {
	cfg     Config
	route   route // defaults of every route
	waiters *await.Waiters
	leases  *lease.Keepers
	turns   turns
	watch   *watch.Watch[idem.Event, idem.Attempt]

	// stopping ends when Shutdown's patience does.
	stopping context.Context
	stop     context.CancelFunc
	// background counts the goroutines that settle records later.
	background sync.WaitGroup
	undos      chan struct{}

	mu      sync.Mutex
	active  int // operations and background settlements
	running map[*execution]struct{}
	closed  bool // no new work
	stopped bool // no work at all
	idle    chan struct{}
}

// New returns a Server. The error is idem.ErrConfig and names the field, its
// rule, and what to do.
func New(cfg Config) (*Server, error) {
	if cfg.Store == nil {
		return nil, badConfig("Store", "is nil; set the store that all replicas share, or a memstore.New for one process")
	}
	if cfg.Scope == nil {
		return nil, badConfig("Scope", "is nil; return the tenant or user that asks, or set server.SingleTenant if there is only one")
	}
	if cfg.Lease == 0 {
		cfg.Lease = defaultLease
	}
	if cfg.MaxRequest == 0 {
		cfg.MaxRequest = defaultMaxRequest
	}
	if cfg.MaxResponse == 0 {
		cfg.MaxResponse = defaultMaxResponse
	}
	if cfg.Describe == "" {
		cfg.Describe = defaultDescribe
	}
	switch {
	case cfg.Lease < minLease:
		return nil, badConfig("Lease", fmt.Sprintf("is %v; use 0 for %v, or at least %v, so that it can be renewed in time", cfg.Lease, defaultLease, minLease))
	case cfg.MaxRequest < 0:
		return nil, badConfig("MaxRequest", fmt.Sprintf("is %d; use 0 for %d, or a positive number of bytes", cfg.MaxRequest, defaultMaxRequest))
	case cfg.MaxResponse < 0 || cfg.MaxResponse > maxMaxResponse:
		return nil, badConfig("MaxResponse", fmt.Sprintf("is %d; use 0 for %d, or up to %d bytes: larger answers don't fit into every store", cfg.MaxResponse, defaultMaxResponse, maxMaxResponse))
	}
	if u, err := url.Parse(cfg.Describe); err != nil || !u.IsAbs() || u.Fragment != "" || strings.ContainsAny(cfg.Describe, "<> ") {
		return nil, badConfig("Describe", fmt.Sprintf("is %q; set an absolute URI without a fragment", cfg.Describe))
	}
	s := &Server{
		cfg:     cfg,
		waiters: await.New(cfg.Store),
		leases:  lease.New(cfg.Store, cfg.Lease),
		watch:   watch.New[idem.Event, idem.Attempt](cfg.Observer),
		undos:   make(chan struct{}, maxUndos),
		running: map[*execution]struct{}{},
		idle:    make(chan struct{}),
	}
	rt := route{effects: cfg.Effects, optional: cfg.Optional, wait: cfg.Wait, maxRun: cfg.MaxRun, retention: cfg.Retention}
	if err := rt.settle(cfg.Store); err != nil {
		return nil, err
	}
	s.route = rt
	s.stopping, s.stop = context.WithCancel(context.Background())
	return s, nil
}

func badConfig(field, rule string) error {
	return fmt.Errorf("%w: %s %s", idem.ErrConfig, field, rule)
}
