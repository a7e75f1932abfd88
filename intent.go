package idem

import (
	"context"
	"fmt"
	"net/http"
	"sync"

	"github.com/idem-go/idem/internal/keyctx"
)

// Intent is what a caller wants to happen once. It is named by its ID within a
// scope, or by a Key; without either it is named by a random key that lives as
// long as the call.
type Intent struct {
	// Scope separates tenants, principals and kinds of operation: one ID in
	// two scopes names two intents. Empty means Config.Scope. An ID needs a
	// scope.
	Scope string
	// ID names the intent in the application's own words, such as an order
	// number. The same ID gives the same key in every process and after every
	// restart.
	ID string
	// Key names the intent if the application already has a key for it. It is
	// sent as it is. An intent has an ID or a Key, not both.
	Key Key
	// Payload is what is asked for. An intent that comes again with another
	// payload is refused. Nil means that the request itself is the payload:
	// Wrap takes the function's argument, Transport the HTTP request; Do has
	// nothing else, so there nil is the payload of an intent without any.
	Payload any
	// Match limits an intent in a context to the requests that it is for: an
	// SDK may send others under the same context, for a token, say. Nil means
	// every request but GET, HEAD, OPTIONS and TRACE. Only Transport reads it.
	Match func(*http.Request) bool
}

// validate reports the first rule that the intent breaks. scope is the one in
// force.
func (in Intent) validate(scope string) error {
	switch {
	case in.ID != "" && in.Key != "":
		return fmt.Errorf("%w: Intent.ID and Intent.Key are both set; name it by one of them", ErrInvalidIntent)
	case in.ID != "" && scope == "":
		return fmt.Errorf("%w: Intent.ID is set without a scope; set Intent.Scope or Config.Scope, so that equal IDs of two tenants stay apart", ErrInvalidIntent)
	case in.Key != "":
		return in.Key.Validate()
	}
	return nil
}

// binding ties a name to the first fingerprint that it is used with.
type binding struct {
	mu    sync.Mutex // guards the rest
	bound bool
	sum   [32]byte
}

// bind binds, or tells whether it was bound to the same fingerprint.
func (b *binding) bind(sum [32]byte) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.bound {
		b.bound, b.sum = true, sum
	}
	return b.sum == sum
}

// release unbinds, after a definite refusal: another payload may follow.
func (b *binding) release() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.bound = false
}

// boundIntent is an intent in a context.
type boundIntent struct {
	Intent
	binding
	within *attempt // set inside a decorated function
}

type intentKey struct{}

// WithIntent returns a context whose HTTP requests, sent through
// Client.Transport, carry out the intent. It binds to the first request that
// it fits: another one under the same intent is refused, since one key can't
// name two operations.
func WithIntent(ctx context.Context, in Intent) context.Context {
	return context.WithValue(ctx, intentKey{}, &boundIntent{Intent: in, within: attemptFrom(ctx)})
}

// intentFrom returns the intent in ctx, or nil.
func intentFrom(ctx context.Context) *boundIntent {
	b, _ := ctx.Value(intentKey{}).(*boundIntent)
	return b
}

// KeyFrom returns the key under which the code that runs with ctx is being
// executed: in a function called by Do or Wrap, and in a handler or function
// behind the server half. Use it with Key.Child to name the steps of a flow.
func KeyFrom(ctx context.Context) (Key, bool) {
	key := Key(keyctx.From(ctx))
	return key, key != ""
}
