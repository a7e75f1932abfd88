package observe_test

import (
	"context"
	"net/http"
	"slices"
	"testing"

	"go.uber.org/goleak"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/observe"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// plain notes what it is told under its name.
type plain struct {
	name   string
	told   *[]string
	panics bool
}

func (p plain) Observe(_ context.Context, e idem.Event) {
	*p.told = append(*p.told, p.name+" "+e.Name)
	if p.panics {
		panic(p.name)
	}
}

// tracing is plain that traces: it adds its name to what the context carries.
type tracing struct{ plain }

type nameKey struct{}

func names(ctx context.Context) string { s, _ := ctx.Value(nameKey{}).(string); return s }

func (tr tracing) Start(ctx context.Context, _ idem.Event, _ *http.Request) (context.Context, string) {
	return context.WithValue(ctx, nameKey{}, names(ctx)+tr.name), tr.name
}

func (tr tracing) StartAttempt(ctx context.Context, _ idem.Attempt, _ *http.Request) context.Context {
	return context.WithValue(ctx, nameKey{}, names(ctx)+"/"+tr.name)
}

func (tr tracing) EndAttempt(ctx context.Context, _ idem.Attempt) {
	*tr.told = append(*tr.told, tr.name+" ends "+names(ctx))
	if tr.panics {
		panic(tr.name)
	}
}

func TestAll(t *testing.T) {
	var told []string
	a, b := plain{"a", &told, false}, plain{"b", &told, false}
	if observe.All() != nil || observe.All(nil, nil) != nil {
		t.Error("no observers are an observer")
	}
	if got := observe.All(nil, a); got != idem.Observer(a) {
		t.Errorf("one observer is %v", got)
	}
	both := observe.All(a, nil, b)
	if _, ok := both.(idem.Tracer); ok {
		t.Error("two observers that don't trace are a tracer")
	}
	both.Observe(t.Context(), idem.Event{Name: idem.EventExecuted})
	if want := []string{"a executed", "b executed"}; !slices.Equal(told, want) {
		t.Errorf("told %v, want %v", told, want)
	}
}

func TestAllTracers(t *testing.T) {
	var told []string
	o := observe.All(tracing{plain{"a", &told, false}}, plain{"b", &told, false}, tracing{plain{"c", &told, false}})
	tr, ok := o.(idem.Tracer)
	if !ok {
		t.Fatal("it does not trace")
	}
	ctx, origin := tr.Start(t.Context(), idem.Event{}, nil)
	at := tr.StartAttempt(ctx, idem.Attempt{}, nil)
	tr.EndAttempt(at, idem.Attempt{})
	tr.Observe(ctx, idem.Event{Name: idem.EventExecuted})
	if names(ctx) != "ac" || names(at) != "ac/a/c" || origin != "a" {
		t.Errorf("contexts %q and %q, origin %q", names(ctx), names(at), origin)
	}
	want := []string{"a ends ac/a/c", "c ends ac/a/c", "a executed", "b executed", "c executed"}
	if !slices.Equal(told, want) {
		t.Errorf("told %q, want %q", told, want)
	}
}

// A panic keeps no other observer from being told, and is not hidden: the core
// counts it.
func TestAllWithPanic(t *testing.T) {
	var told []string
	o := observe.All(tracing{plain{"a", &told, true}}, plain{"b", &told, false})
	for _, call := range []func(){
		func() { o.Observe(t.Context(), idem.Event{Name: idem.EventExecuted}) },
		func() { o.(idem.Tracer).EndAttempt(t.Context(), idem.Attempt{}) },
	} {
		func() {
			defer func() {
				if recover() != "a" {
					t.Error("the panic is gone")
				}
			}()
			call()
		}()
	}
	if want := []string{"a executed", "b executed", "a ends "}; !slices.Equal(told, want) {
		t.Errorf("told %q, want %q", told, want)
	}
}
