package slogobs_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/observe/slogobs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func logger(b *bytes.Buffer, level slog.Level) *slog.Logger {
	return slog.New(slog.NewTextHandler(b, &slog.HandlerOptions{Level: level, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
}

func TestLine(t *testing.T) {
	for name, tt := range map[string]struct {
		event idem.Event
		want  string
	}{
		"least": {
			idem.Event{Name: idem.EventRefused, Half: "server", Outcome: idem.OutcomeRejected, Duration: time.Millisecond},
			`level=INFO msg="idem: refused" idem.event=refused idem.half=server idem.outcome=rejected idem.duration=1ms`,
		},
		"most": {
			idem.Event{
				Name: idem.EventUnresolved, Half: "client", Scope: "acme/charge", KeyDigest: "3ef1832d5d4e", Outcome: idem.OutcomeUnknown,
				Source: idem.SourceExecuted, Attempts: make([]idem.Attempt, 1, 2), WireSends: 3, Duration: time.Second,
				Waited: time.Minute, Age: time.Hour, Origin: "00-1", Lost: 4, Err: errors.New("no reply"),
			},
			`level=ERROR msg="idem: unresolved" idem.event=unresolved idem.half=client idem.scope=acme/charge idem.key=3ef1832d5d4e ` +
				`idem.outcome=unknown idem.source=executed idem.attempts=1 idem.sends=3 idem.duration=1s idem.waited=1m0s idem.age=1h0m0s ` +
				`idem.origin=00-1 idem.lost=4 idem.error="no reply"`,
		},
		"status": {
			idem.Event{Name: idem.EventExecuted, Half: "server", Outcome: idem.OutcomeExecuted, Attempts: []idem.Attempt{{Status: 503}, {Status: 201}}},
			`level=DEBUG msg="idem: executed" idem.event=executed idem.half=server idem.outcome=executed idem.attempts=2 idem.duration=0s idem.status=201`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			var b bytes.Buffer
			slogobs.New(slogobs.Config{Logger: logger(&b, slog.LevelDebug)}).Observe(t.Context(), tt.event)
			if got := strings.TrimSpace(b.String()); got != tt.want {
				t.Errorf("got\n%s\nwant\n%s", got, tt.want)
			}
		})
	}
}

// Each event has a level, and what nobody knows the outcome of has the highest.
func TestLevel(t *testing.T) {
	for event, want := range map[string]slog.Level{
		idem.EventExecuted: slog.LevelDebug, idem.EventReplayed: slog.LevelDebug, idem.EventJoined: slog.LevelDebug, idem.EventRedirected: slog.LevelDebug,
		idem.EventInFlight: slog.LevelInfo, idem.EventRefused: slog.LevelInfo, idem.EventRecovered: slog.LevelInfo,
		idem.EventFailed: slog.LevelWarn, idem.EventMismatch: slog.LevelWarn, idem.EventStoreError: slog.LevelWarn,
		idem.EventUnresolved: slog.LevelError, idem.EventFenced: slog.LevelError,
	} {
		if got := slogobs.Level(idem.Event{Name: event}); got != want {
			t.Errorf("%s: %v, want %v", event, got, want)
		}
	}
	var b bytes.Buffer
	o := slogobs.New(slogobs.Config{Logger: logger(&b, slog.LevelInfo)})
	o.Observe(t.Context(), idem.Event{Name: idem.EventExecuted})
	if b.Len() > 0 {
		t.Errorf("a line below the logger's level: %s", &b)
	}
	o = slogobs.New(slogobs.Config{Logger: logger(&b, slog.LevelInfo), Level: func(idem.Event) slog.Level { return slog.LevelInfo }})
	if o.Observe(t.Context(), idem.Event{Name: idem.EventExecuted}); b.Len() == 0 {
		t.Error("Config.Level is not asked")
	}
}

func TestDefaultLogger(t *testing.T) {
	old := slog.Default()
	defer slog.SetDefault(old)
	var b bytes.Buffer
	o := slogobs.New(slogobs.Config{})
	slog.SetDefault(logger(&b, slog.LevelDebug))
	if o.Observe(t.Context(), idem.Event{Name: idem.EventExecuted}); b.Len() == 0 {
		t.Error("nothing is logged to the default logger")
	}
}

// A client writes a line for each call. The key is in it as a digest only.
func ExampleNew() {
	handler := slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{Level: slog.LevelDebug, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey || a.Key == "duration" {
			return slog.Attr{} // another one each time
		}
		return a
	}})
	client, err := idem.New(idem.Config{Scope: "acme/charge", Observer: slogobs.New(slogobs.Config{Logger: slog.New(handler)})})
	if err != nil {
		panic(err)
	}
	charge := func(context.Context, idem.Key) (string, error) { return "ch_1", nil }
	_, _ = idem.Do(context.Background(), client, idem.Intent{ID: "order-1"}, charge)
	_, _ = idem.Do(context.Background(), client, idem.Intent{Key: "a key with a\nline break"}, charge)
	// Output:
	// level=DEBUG msg="idem: executed" idem.event=executed idem.half=client idem.scope=acme/charge idem.key=c46ec6f0e441 idem.outcome=executed idem.source=executed idem.attempts=1
	// level=INFO msg="idem: refused" idem.event=refused idem.half=client idem.scope=acme/charge idem.key=15adf3612bbb idem.outcome=rejected idem.error="idem: rejected (key digest 15adf3612bbb): invalid key: it has the byte 0x0a at 12; only printable ASCII is allowed"
}
