package server

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/await"
	"github.com/idem-go/idem/internal/lazyctx"
	"github.com/idem-go/idem/keystore"
)

// maxName bounds scopes and IDs, so that both fit into a record's Meta, even
// escaped.
const maxName = 4 << 10

// operation is one request, or one call of Run, from its claim to its event.
type operation struct {
	server  *Server
	route   route
	started time.Time // see Server.now

	scope, id    string
	key          idem.Key
	record       [32]byte
	fingerprint  [32]byte
	method, path string // of a request

	// fenced: another owner settles the record that this operation executed
	// under.
	fenced bool
	// firstClaim is when the first claim was sent.
	firstClaim time.Time
	// asked: Recover was asked about the record; recovered: it was settled by
	// the answer.
	asked, recovered bool
	// attempts, waited, age and origin are what the observer is told, see
	// idem.Event. The only attempt is in attempted.
	attempts    []idem.Attempt
	attempted   [1]idem.Attempt
	waited, age time.Duration
	origin      string
	// begun tells that a tracer knows of the operation, observed that it knows
	// of the end; trace is what the record keeps of that.
	begun, observed bool
	trace           string
	// base is for detached, claiming the context of the first claim.
	base     context.Context
	claiming lazyctx.Context
}

// detached is the operation's context without its end, for the store: what is
// cut off when a client hangs up may have been done.
func (op *operation) detached(ctx context.Context) context.Context {
	if op.base == nil {
		op.base = context.WithoutCancel(ctx)
	}
	return op.base
}

// byKey and byID set the record's identity.
func (op *operation) byKey(scope string, key idem.Key) {
	op.scope, op.key = scope, key
	op.record = keystore.RecordID(keystore.Server, scope, "key", string(key))
}

func (op *operation) byID(scope, id string) {
	op.scope, op.id = scope, id
	op.key = idem.DeriveKey("server", scope, id)
	op.record = keystore.RecordID(keystore.Server, scope, "id", id)
}

// granted is a store's answer to a claim.
type granted struct {
	keystore.Claim
	sent time.Time // when the claim went out; its lease counts from here at least
	// retryAfter is in how long Recover is asked about an unresolved record,
	// why what went wrong the last time.
	retryAfter time.Duration
	why        error
}

// claim claims the record. It waits, as long as the route says, while another
// owner runs.
func (op *operation) claim(ctx context.Context) (granted, error) {
	s := op.server
	p := op.claimParams()
	var giveUp time.Time
	var patience context.Context // once there is something to wait for
	var seen granted             // another owner at work
	for {
		c, err := op.claimOnce(ctx, p)
		if giveUp.IsZero() {
			giveUp = op.firstClaim.Add(max(op.route.wait, 0))
		}
		if err != nil && seen.Status != 0 && !errors.Is(err, keystore.ErrCorrupt) && !errors.Is(err, keystore.ErrFormat) {
			// Nobody may run beside it, or say that nothing was executed.
			return seen, nil
		}
		if err == nil && c.Status == keystore.Unresolved && s.cfg.Recover != nil && !op.asked {
			again := false
			if c, again = op.recover(ctx, c); again {
				p, seen = op.claimParams(), granted{}
				continue
			}
		}
		if err != nil || c.Status != keystore.InFlight {
			return c, err
		}
		if patience == nil {
			var stop context.CancelFunc
			patience, stop = context.WithDeadline(ctx, giveUp)
			defer stop()
		}
		if patience.Err() != nil {
			return c, nil
		}
		seen = c
		began := time.Now()
		err = s.waiters.Change(patience, c.Record)
		op.waited += time.Since(began)
		switch {
		case patience.Err() != nil, errors.Is(err, await.ErrGone):
			// Whoever has seen another owner at work must not take its record
			// for free because it has vanished.
			return c, nil
		case errors.Is(err, await.ErrStopped):
			return c, nil
		}
		// Another store error: the claim will meet it too, or is answered.
	}
}

func (op *operation) claimParams() keystore.ClaimParams {
	p := keystore.ClaimParams{
		ID: op.record, Scope: keystore.ScopeDigest(keystore.Server, op.scope), Fingerprint: op.fingerprint,
		Lease: op.server.cfg.Lease, Keep: op.route.retention, Begun: op.route.effects == Opaque, Meta: op.meta(),
	}
	_, _ = rand.Read(p.Nonce[:]) // crypto/rand never fails
	return p
}

// claimTries is how often a claim is sent while the store fails. It is the
// same claim to the store, which knows it by its nonce.
const claimTries = 3

func (op *operation) claimOnce(ctx context.Context, p keystore.ClaimParams) (granted, error) {
	sent := time.Now()
	limited := &op.claiming
	if op.firstClaim.IsZero() {
		op.firstClaim = sent
	} else {
		limited = new(lazyctx.Context) // the store may still look at the first
	}
	limited.Start(op.detached(ctx), sent.Add(storeTimeout), nil)
	defer limited.Cancel(nil)
	for try, delay := 1, firstDelay/2; ; try, delay, sent = try+1, 2*delay, time.Now() {
		c, err := op.server.cfg.Store.Claim(limited, p)
		switch {
		case err == nil && (c.Status < keystore.Acquired || c.Status > keystore.Unresolved):
			return granted{}, fmt.Errorf("%w: it answered a claim with %v", idem.ErrStore, c.Status)
		case err == nil:
			return granted{Claim: c, sent: sent}, nil
		case keystore.Final(err):
			return granted{}, fmt.Errorf("%w: claim: %w", idem.ErrStore, err)
		case try == claimTries || !sleep(limited, delay):
			// What runs unprotected instead must not be freed for another run,
			// nor what was taken over: another owner may have executed it.
			if p.Begun && !p.Takeover && !op.server.cfg.FailOpen {
				op.undo(p)
			}
			return granted{}, fmt.Errorf("%w: claim: %w", idem.ErrStore, err)
		}
	}
}

// undo takes back, in the background, a claim of which nobody knows whether it
// was granted. Were it left, a record that begins at once would be unresolved
// although nothing has run.
func (op *operation) undo(p keystore.ClaimParams) {
	s := op.server
	select {
	case s.undos <- struct{}{}:
	default:
		return
	}
	done := func() { <-s.undos }
	if !s.later(func(ctx context.Context) error {
		c, err := s.cfg.Store.Claim(ctx, p)
		if err != nil || c.Status != keystore.Acquired {
			return err
		}
		return s.cfg.Store.Release(ctx, c.Owner, keystore.ReleaseParams{How: keystore.Forget})
	}, done) {
		done()
	}
}

// successor is who has the record that this operation was fenced from, as if a
// claim had told it.
func (op *operation) successor(ctx context.Context) granted {
	op.fenced = true
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
	defer cancel()
	recs, err := op.server.cfg.Store.Records(ctx, keystore.Query{ID: &op.record, Limit: 1})
	c := keystore.Claim{Status: keystore.Unresolved}
	if err != nil || len(recs) == 0 {
		return granted{Claim: c}
	}
	switch c.Record = recs[0]; {
	case c.Record.Fingerprint != op.fingerprint:
	case c.Record.State == keystore.Done:
		c.Status = keystore.Completed
	case c.Record.State == keystore.Running && c.Record.LeaseLeft > 0:
		c.Status = keystore.InFlight
	}
	return granted{Claim: c}
}

// now and since are the times that an observer is told. There are none without
// one.
func (s *Server) now() (t time.Time) {
	if s.watch != nil {
		t = time.Now()
	}
	return t
}

func (s *Server) since(t time.Time) (d time.Duration) {
	if s.watch != nil {
		d = time.Since(t)
	}
	return d
}

// begin tells a tracer of the operation. r is its request, if it has one.
func (op *operation) begin(ctx context.Context, r *http.Request) context.Context {
	op.begun = true
	if watch := op.server.watch; watch.Traces() {
		ctx, op.trace = watch.Start(ctx, idem.Event{Half: "server", Scope: op.scope, Started: op.started}, r)
	}
	return ctx
}

// unwound tells the observer of an operation that ends by a panic or a Goexit of
// the application's, in a hook, a store or a writer. It is to be deferred.
func (op *operation) unwound(ctx context.Context) {
	if op.begun && !op.observed {
		op.observe(ctx, idem.EventUnresolved, idem.OutcomeUnknown, 0, errNoReturn)
	}
}

// observe tells the observer how the operation has ended.
func (op *operation) observe(ctx context.Context, name string, o idem.Outcome, src idem.Source, err error) {
	op.observed = true
	if op.server.watch == nil {
		return
	}
	if own, ok := err.(*idem.Error); ok { // the caller may do with its own what it likes
		shared := *own
		err = &shared
	}
	if !op.begun {
		ctx = op.begin(ctx, nil)
	}
	switch {
	case op.fenced:
		name = idem.EventFenced
	case op.recovered && name == idem.EventReplayed:
		name = idem.EventRecovered
	}
	e := idem.Event{
		Name: name, Half: "server", Scope: op.scope, Outcome: o, Source: src, Attempts: slices.Clone(op.attempts),
		Started: op.started, Duration: time.Since(op.started), Err: err,
		Waited: op.waited, Age: op.age, Origin: op.origin,
	}
	if op.key != "" {
		e.KeyDigest = op.key.Digest()
	}
	op.server.watch.Observe(ctx, func(lost int) idem.Event {
		e.Lost = lost
		return e
	})
}

// sleep waits for d, or reports false as soon as ctx is done.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
