package keyctx_test

import (
	"context"
	"testing"

	"go.uber.org/goleak"

	"github.com/idem-go/idem/internal/keyctx"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestKeyInContext(t *testing.T) {
	if key := keyctx.From(t.Context()); key != "" {
		t.Errorf("a fresh context has key %q", key)
	}
	outer := keyctx.With(t.Context(), "outer")
	inner := keyctx.With(context.WithoutCancel(outer), "inner")
	if got := keyctx.From(outer) + " " + keyctx.From(inner); got != "outer inner" {
		t.Errorf("got %q", got)
	}
}
