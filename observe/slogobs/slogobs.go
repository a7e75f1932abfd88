// Package slogobs writes a log line for each of idem's operations, by log/slog.
//
// A line has the event's name as its message, after "idem: ", and in the group
// "idem" what idem.Event says: half, scope, key (a digest, the same on both
// halves, so that the lines of a client and of its server can be joined),
// outcome, source, attempts, sends, duration, waited, age, lost, error. What is
// zero is left out. The key itself is never in a line.
package slogobs

import (
	"context"
	"log/slog"

	"github.com/idem-go/idem"
)

// Config configures New. Every zero value is usable.
type Config struct {
	// Logger gets the lines. Nil means slog.Default, as it is at each event.
	Logger *slog.Logger
	// Level says how a line is logged. Nil means Level.
	Level func(idem.Event) slog.Level
}

// Level is the default level of an event: Error for what somebody has to look
// after (unresolved, fenced), Warn for what failed or points to a fault
// (failed, store-error, mismatch), Info for refused, in-flight and recovered,
// Debug for the rest.
func Level(e idem.Event) slog.Level {
	switch e.Name {
	case idem.EventUnresolved, idem.EventFenced:
		return slog.LevelError
	case idem.EventFailed, idem.EventStoreError, idem.EventMismatch:
		return slog.LevelWarn
	case idem.EventRefused, idem.EventInFlight, idem.EventRecovered:
		return slog.LevelInfo
	}
	return slog.LevelDebug
}

// New returns an Observer that logs. It is safe for concurrent use, as far as
// the logger's handler is.
func New(cfg Config) idem.Observer {
	if cfg.Level == nil {
		cfg.Level = Level
	}
	return &observer{cfg}
}

type observer struct{ cfg Config }

// Observe implements idem.Observer.
func (o *observer) Observe(ctx context.Context, e idem.Event) {
	logger := o.cfg.Logger
	if logger == nil {
		logger = slog.Default()
	}
	level := o.cfg.Level(e)
	if !logger.Enabled(ctx, level) {
		return
	}
	logger.LogAttrs(ctx, level, "idem: "+e.Name, slog.Attr{Key: "idem", Value: slog.GroupValue(attributes(e)...)})
}

func attributes(e idem.Event) []slog.Attr {
	attrs := make([]slog.Attr, 0, 16)
	add := func(set bool, attr slog.Attr) {
		if set {
			attrs = append(attrs, attr)
		}
	}
	add(true, slog.String("event", e.Name))
	add(true, slog.String("half", e.Half))
	add(e.Scope != "", slog.String("scope", e.Scope))
	add(e.KeyDigest != "", slog.String("key", e.KeyDigest))
	add(true, slog.String("outcome", e.Outcome.String()))
	add(e.Source != 0, slog.String("source", e.Source.String()))
	add(len(e.Attempts) > 0, slog.Int("attempts", len(e.Attempts)))
	add(e.WireSends > 0, slog.Int("sends", e.WireSends))
	add(true, slog.Duration("duration", e.Duration))
	add(e.Waited > 0, slog.Duration("waited", e.Waited))
	add(e.Age > 0, slog.Duration("age", e.Age))
	if n := len(e.Attempts); n > 0 && e.Attempts[n-1].Status > 0 {
		add(true, slog.Int("status", e.Attempts[n-1].Status))
	}
	add(e.Origin != "", slog.String("origin", e.Origin))
	add(e.Lost > 0, slog.Int("lost", e.Lost))
	if e.Err != nil {
		add(true, slog.String("error", e.Err.Error()))
	}
	return attrs
}
