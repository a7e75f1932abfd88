// Package keyctx carries the key of the intent that is being executed in a
// context, for both halves, so that idem.KeyFrom reads it in a decorated
// function as in an HTTP handler. Nothing sends a key because it is here.
package keyctx

import "context"

// Key is what a context's Value is asked for; contexts that hold the key
// themselves answer with a string.
type Key struct{}

// With returns a context in which key is the key being executed.
func With(ctx context.Context, key string) context.Context {
	return context.WithValue(ctx, Key{}, key)
}

// From returns the key that With put there, or "".
func From(ctx context.Context) string {
	key, _ := ctx.Value(Key{}).(string)
	return key
}
