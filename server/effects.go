package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/keystore"
)

// Effects declares what may be run again when a handler or function has
// failed: by a status that is not definitive, an error, a panic, or the death
// of its process. No status proves that nothing happened, so it has no default.
type Effects uint8

const (
	// Opaque: nothing is known of the inside. A failure leaves the record
	// unresolved, unless MarkNotExecuted or an idem.NotExecuted error says
	// that nothing happened. An owner that stalls before its effect is stopped
	// by its context only; where Config.Recover may free its record meanwhile,
	// call BeginEffect before the effect here too, which looks at the claim.
	Opaque Effects = iota + 1
	// Marked: the code calls BeginEffect right before its effect. A failure
	// before that frees the key for the next attempt, one after it leaves the
	// record unresolved.
	Marked
	// Idempotent: the code may be run again, even while an earlier run still
	// goes on, since its effects are idempotent themselves: it hands a key
	// made from idem.KeyFrom downstream, and refuses what an earlier run may
	// have done only as repeatably as it would do it. Two tenants may choose one key: where
	// they share an account downstream, make theirs of the scope too, as by
	// idem.DeriveKey(tenant, string(key)). A failure frees the key.
	Idempotent
	// Transaction: effect and record are committed in one transaction of a
	// store that implements keystore.Transactor. A failure rolls both back.
	// See the package documentation.
	Transaction
)

// String returns the mode's name.
func (e Effects) String() string {
	names := [...]string{"none", "opaque", "marked", "idempotent", "transaction"}
	if int(e) < len(names) {
		return names[e]
	}
	return "Effects(" + strconv.Itoa(int(e)) + ")"
}

func (e Effects) check(store keystore.Store) error {
	switch e {
	case Opaque, Marked, Idempotent:
		return nil
	case Transaction:
		if _, ok := store.(keystore.Transactor); !ok {
			return badConfig("Effects", fmt.Sprintf("is Transaction, but the store has no transactions: %T does not implement keystore.Transactor; use another store or another mode", store))
		}
		return nil
	}
	is := "is not set"
	if e != 0 {
		is = "is " + e.String()
	}
	return badConfig("Effects", is+`; declare what may be run again after a failure:
	server.Opaque       nothing, unless the code says that nothing happened
	server.Marked       what failed before it called server.BeginEffect
	server.Idempotent   everything; the code hands a derived key downstream
	server.Transaction  everything; effect and record share a transaction`)
}

// definitive tells whether an answer with this status is final: success or a
// refusal that would come again. All else is a failure and never stored.
func definitive(status int) bool {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusProxyAuthRequired,
		http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests:
		return false
	}
	return status >= 200 && status < 500
}

// outcomeOf is the outcome of an answer that is definitive.
func outcomeOf(status int) idem.Outcome {
	if status >= 400 {
		return idem.OutcomeRejected
	}
	return idem.OutcomeExecuted
}

var errUnprotected = errors.New("server: BeginEffect was called outside a Handler or Run; pass on the context that they give")

// BeginEffect announces that the effect starts now. In Marked mode it writes
// that into the record, if the claim still stands: from here on a failure is
// never run again. In the other modes it only checks the claim. Call it right
// before the effect, and leave the effect undone if it returns an error:
// idem.ErrLeaseLost (the claim has another owner, or the context has ended),
// idem.ErrStore, or another one for a context without a protected call.
// Repeated calls cost nothing.
//
// In a request that runs unprotected, as routes with an optional key allow, it
// returns nil.
func BeginEffect(ctx context.Context) error {
	switch ex := executionFrom(ctx); {
	case ex == nil:
		return errUnprotected
	case ex == unprotected:
		return nil
	default:
		return ex.beginEffect(ctx)
	}
}

// MarkNotExecuted says that nothing happened and nothing will: whatever the
// code answers, the key is freed for the next attempt, and the answer is not
// stored. Outside a protected call it does nothing.
func MarkNotExecuted(ctx context.Context) {
	if ex := executionFrom(ctx); ex != nil && ex != unprotected {
		ex.markNotExecuted()
	}
}

func (ex *execution) beginEffect(ctx context.Context) error {
	ex.mu.Lock()
	defer ex.mu.Unlock()
	// ctx may be shorter than the call's own, or detached from it.
	for _, c := range []context.Context{ex.ctx, ctx} {
		if c.Err() != nil {
			return leaseLost(context.Cause(c))
		}
	}
	if ex.op.route.effects != Marked || ex.begun {
		if ex.keeper != nil && !ex.keeper.Alive() {
			return fmt.Errorf("%w: it could not be renewed in time", idem.ErrLeaseLost)
		}
		return nil
	}
	switch err := ex.keeper.Renew(ctx, keystore.RenewParams{Begun: true}); {
	case err == nil:
		ex.begun = true
		return nil
	case errors.Is(err, keystore.ErrFenced):
		ex.end(idem.ErrLeaseLost)
		return leaseLost(err)
	default:
		return fmt.Errorf("%w: BeginEffect: %w", idem.ErrStore, err)
	}
}

func leaseLost(cause error) error {
	if errors.Is(cause, idem.ErrLeaseLost) {
		return cause
	}
	return fmt.Errorf("%w: %w", idem.ErrLeaseLost, cause)
}

func (ex *execution) markNotExecuted() {
	ex.mu.Lock()
	defer ex.mu.Unlock()
	ex.notExecuted = true
}
