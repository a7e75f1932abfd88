package server_test

import (
	"context"
	"errors"
	"math"
	"net/http"
	"runtime"
	"strings"
	"testing"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/server"
)

type receipt struct {
	ID    string
	Cents int64
	Tags  map[string]string
}

func TestRunResultIsWhole(t *testing.T) {
	s := newServer(t, server.Config{})
	first := receipt{"r1", 9007199254740993, map[string]string{"a": "b"}}
	for i := range 2 {
		got, err := server.Run(t.Context(), s, idem.Intent{Scope: "q", ID: "1"}, func(context.Context) (receipt, error) { return first, nil })
		if err != nil || got.ID != first.ID || got.Cents != first.Cents || got.Tags["a"] != "b" {
			t.Errorf("call %d: got %+v, %v", i+1, got, err)
		}
	}
}

func TestRunRefusesBeforeTheClaim(t *testing.T) {
	store := newStore(t)
	seen := &events{}
	s := newServer(t, server.Config{Store: store, Observer: seen})
	ok := idem.Intent{Scope: "q", ID: "1"}
	done, cancel := context.WithCancel(t.Context())
	cancel()
	number := func(context.Context) (int, error) { t.Error("it ran"); return 0, nil }
	tests := []struct {
		name string
		call func() error
		is   error
		o    idem.Outcome
	}{
		{"no scope", func() error { _, err := server.Run(t.Context(), s, idem.Intent{ID: "1"}, number); return err }, idem.ErrInvalidIntent, idem.OutcomeRejected},
		{"no name", func() error { _, err := server.Run(t.Context(), s, idem.Intent{Scope: "q"}, number); return err }, idem.ErrInvalidIntent, idem.OutcomeRejected},
		{"two names", func() error {
			_, err := server.Run(t.Context(), s, idem.Intent{Scope: "q", ID: "1", Key: "k"}, number)
			return err
		}, idem.ErrInvalidIntent, idem.OutcomeRejected},
		{"long ID", func() error {
			_, err := server.Run(t.Context(), s, idem.Intent{Scope: "q", ID: strings.Repeat("1", 5000)}, number)
			return err
		}, idem.ErrInvalidIntent, idem.OutcomeRejected},
		{"invalid key", func() error {
			_, err := server.Run(t.Context(), s, idem.Intent{Scope: "q", Key: "a\nb"}, number)
			return err
		}, idem.ErrInvalidKey, idem.OutcomeRejected},
		{"payload", func() error {
			_, err := server.Run(t.Context(), s, idem.Intent{Scope: "q", ID: "1", Payload: func() {}}, number)
			return err
		}, idem.ErrInvalidIntent, idem.OutcomeRejected},
		{"result type", func() error {
			_, err := server.Run(t.Context(), s, ok, func(context.Context) (struct{ hidden int }, error) { panic("it ran") })
			return err
		}, idem.ErrResultType, idem.OutcomeRejected},
		{"option", func() error { _, err := server.Run(t.Context(), s, ok, number, server.WithMaxRun(-1)); return err }, idem.ErrConfig, idem.OutcomeRejected},
		{"context", func() error { _, err := server.Run(done, s, ok, number); return err }, context.Canceled, idem.OutcomeNotExecuted},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := tt.call()
			var e *idem.Error
			if !errors.As(err, &e) || !errors.Is(err, tt.is) || e.Outcome != tt.o {
				t.Errorf("got %v", err)
			}
			if got := seen.names(); got != idem.EventRefused {
				t.Errorf("events %q", got)
			}
		})
	}
	for name, call := range map[string]func() error{
		"no server":   func() error { _, err := server.Run(t.Context(), nil, ok, number); return err },
		"no function": func() error { _, err := server.Run[int](t.Context(), s, ok, nil); return err },
	} {
		if err := call(); !errors.Is(err, idem.ErrInvalidIntent) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if v, err := server.Run(t.Context(), s, ok, func(context.Context) (int, error) { return 5, nil }); v != 5 || err != nil {
		t.Errorf("something was claimed: %d, %v", v, err)
	}
}

func TestRunNamesAndKeys(t *testing.T) {
	s := newServer(t, server.Config{})
	keys := map[idem.Key]bool{}
	for _, in := range []idem.Intent{{Scope: "a", ID: "1"}, {Scope: "a", ID: "2"}, {Scope: "b", ID: "1"}, {Scope: "a", Key: "1"}} {
		for i := range 2 {
			res, err := server.RunResult(t.Context(), s, in, func(ctx context.Context) (idem.Key, error) {
				key, _ := idem.KeyFrom(ctx)
				return key, nil
			})
			if err != nil || res.Value == "" || res.Value != res.Key || keys[res.Value] != (i == 1) {
				t.Errorf("%+v: got %+v, %v", in, res, err)
			}
			keys[res.Value] = true
		}
	}
}

func TestRunTombstones(t *testing.T) {
	tests := []struct {
		name string
		cfg  server.Config
		opts []server.RouteOption
		v    float64
	}{
		{"too large", server.Config{MaxResponse: 3}, nil, 12345},
		{"not encodable", server.Config{}, nil, math.NaN()},
		{"B138 by choice", server.Config{}, []server.RouteOption{server.WithoutStoredAnswer()}, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newServer(t, tt.cfg)
			run := func() (float64, error) {
				return server.Run(t.Context(), s, idem.Intent{Scope: "q", ID: "1"}, func(context.Context) (float64, error) { return tt.v, nil }, tt.opts...)
			}
			if v, err := run(); err != nil || v != tt.v && !math.IsNaN(v) {
				t.Errorf("got %v, %v", v, err)
			}
			var e *idem.Error
			if v, err := run(); v != 0 || !errors.Is(err, idem.ErrResultNotRetained) || !errors.As(err, &e) || e.Outcome != idem.OutcomeExecuted {
				t.Errorf("got %v, %v", v, err)
			}
		})
	}
}

func TestRunRefusal(t *testing.T) {
	for _, tt := range []struct {
		text, again string
		opts        []server.RouteOption
	}{
		{"card declined", "card declined", nil},
		{strings.Repeat("ä", 4000), strings.Repeat("ä", 2048), nil},
		{"secret", "the route stores no answers", []server.RouteOption{server.WithoutStoredAnswer()}},
	} {
		s := newServer(t, server.Config{})
		run := func() error {
			_, err := server.Run(t.Context(), s, idem.Intent{Scope: "q", ID: "1"}, func(context.Context) (int, error) {
				return 0, idem.Rejected(errors.New(tt.text))
			}, tt.opts...)
			return err
		}
		for _, text := range []string{tt.text, tt.again} {
			var e *idem.Error
			if err := run(); !errors.As(err, &e) || e.Outcome != idem.OutcomeRejected || e.Last.Error() != text {
				t.Errorf("got %v, want %s", err, text)
			}
		}
	}
}

func TestRunMarkNotExecuted(t *testing.T) {
	s := newServer(t, server.Config{})
	runs := 0
	for i := range 2 {
		_, err := server.Run(t.Context(), s, idem.Intent{Scope: "q", ID: "1"}, func(ctx context.Context) (int, error) {
			runs++
			server.MarkNotExecuted(ctx)
			return 1, nil
		})
		if !errors.Is(err, idem.ErrNotExecuted) || runs != i+1 {
			t.Errorf("got %v after %d runs", err, runs)
		}
	}
}

func TestRunReentrant(t *testing.T) {
	s := newServer(t, server.Config{})
	in := idem.Intent{Scope: "q", ID: "1"}
	_, err := server.Run(t.Context(), s, in, func(ctx context.Context) (int, error) {
		_, err := server.Run(ctx, s, in, func(context.Context) (int, error) { return 0, nil })
		if !errors.Is(err, idem.ErrReentrant) {
			t.Errorf("the inner call: %v", err)
		}
		// A step of its own is fine.
		key, _ := idem.KeyFrom(ctx)
		return server.Run(ctx, s, idem.Intent{Scope: "q", Key: key.Child("capture")}, func(context.Context) (int, error) { return 9, nil })
	})
	if err != nil {
		t.Error(err)
	}
}

func TestMountedTwice(t *testing.T) {
	c := &counter{}
	seen := &events{}
	s := newServer(t, server.Config{Observer: seen})
	h := s.Handler(s.Handler(c))
	wantFirst(t, post(h, "k", "{}"), 201, "made")
	wantReplay(t, post(h, "k", "{}"), 201, "made")
	c.want(t, 1)
	if got := seen.names(); got != "executed replayed" {
		t.Errorf("events %q", got)
	}
}

// The caller's context reaches the function, and its end does not touch the
// settling.
func TestRunCancelled(t *testing.T) {
	s := newServer(t, server.Config{})
	type valueKey struct{}
	ctx, cancel := context.WithCancel(context.WithValue(t.Context(), valueKey{}, "v"))
	defer cancel()
	in := idem.Intent{Scope: "q", ID: "1"}
	if v, err := server.Run(ctx, s, in, func(ctx context.Context) (seenBy, error) {
		cancel()
		return seenBy{ctx.Value(valueKey{}).(string), ctx.Err() != nil}, nil
	}); err != nil || v != (seenBy{"v", true}) {
		t.Errorf("got %+v, %v", v, err)
	}
	if v, err := server.Run(t.Context(), s, in, func(context.Context) (seenBy, error) { return seenBy{}, nil }); err != nil || v.V != "v" {
		t.Errorf("replay: %+v, %v", v, err)
	}
}

type seenBy struct {
	V         string
	Cancelled bool
}

func TestRunGoexit(t *testing.T) {
	s := newServer(t, server.Config{})
	in := idem.Intent{Scope: "q", ID: "1"}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = server.Run(t.Context(), s, in, func(context.Context) (int, error) { runtime.Goexit(); return 0, nil })
	}()
	<-done
	if _, err := server.Run(t.Context(), s, in, func(context.Context) (int, error) { return 0, nil }); !errors.Is(err, server.ErrRecoveryRequired) {
		t.Error(err)
	}
}

// watcher panics, which must not touch what it watches.
type watcher struct{}

func (watcher) Observe(context.Context, idem.Event) { panic("watcher") }

func TestObserverPanics(t *testing.T) {
	c := &counter{}
	h := newServer(t, server.Config{Observer: watcher{}}).Handler(c)
	wantFirst(t, post(h, "k", "{}"), 201, "made")
	wantReplay(t, post(h, "k", "{}"), 201, "made")
	want(t, post(h, "", "{}"), http.StatusBadRequest, "key-missing")
}
