package txtest

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/server"
)

// An effect and its record are committed together. What fails leaves neither,
// and the next attempt runs; a refusal leaves its record alone.
func TestHandlerOutcomes(t *testing.T) {
	onEach(t, func(t *testing.T, b *backend) {
		for _, tt := range []struct {
			name string
			// first does not return where it panics.
			first func(http.ResponseWriter, *http.Request)
			// answer is what the first request gets, "" if none; next what a
			// retry does.
			answer, next string
			effects      int
		}{
			{"201", status(201), "201 first", "201 replayed", 1},
			{"no answer", func(http.ResponseWriter, *http.Request) {}, "200 first", "200 replayed", 1},
			{"303", status(303), "303 first", "303 replayed", 1},
			{"422", status(422), "422 first", "422 replayed", 0},
			{"429", status(429), "429", "201 first", 0},
			{"500", status(500), "500", "201 first", 0},
			{"panic", func(http.ResponseWriter, *http.Request) { panic("boom") }, "", "201 first", 0},
			{"MaxRun", func(w http.ResponseWriter, r *http.Request) {
				<-r.Context().Done()
				w.WriteHeader(201)
			}, "503 rolled-back", "201 first", 0},
			{"MarkNotExecuted", func(w http.ResponseWriter, r *http.Request) {
				server.MarkNotExecuted(r.Context())
				w.WriteHeader(201)
			}, "201", "201 first", 0},
			{"answer too large", func(w http.ResponseWriter, _ *http.Request) {
				_, _ = w.Write(make([]byte, 2000))
			}, "500 answer-too-large", "201 first", 0},
		} {
			t.Run(tt.name, func(t *testing.T) {
				db, _ := b.open(t)
				var runs atomic.Int64
				h := newServer(t, db.store, func(cfg *server.Config) { cfg.MaxResponse = 1000 }).Handler(
					http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						if err := b.effect(r.Context(), "k"); err != nil {
							t.Errorf("the effect: %v", err)
						}
						if runs.Add(1) > 1 {
							status(201)(w, r)
							return
						}
						tt.first(w, r)
					}), maxRun(tt.name))
				func() {
					defer func() {
						if p := recover(); (p != nil) != (tt.answer == "") {
							t.Errorf("recovered %v", p)
						}
					}()
					want(t, post(h, "k", "{}"), tt.answer)
				}()
				again := tt.next == "201 first"
				records := 1
				if again {
					records = 0
				}
				db.state(t, tt.effects, records)
				want(t, post(h, "k", "{}"), tt.next)
				if again {
					db.state(t, 1, 1)
					want(t, post(h, "k", "{}"), "201 replayed")
				}
				db.state(t, map[bool]int{true: 1, false: tt.effects}[again], 1)
			})
		}
	})
}

func status(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(code)
		_, _ = io.WriteString(w, "made")
	}
}

// maxRun is short where a test waits for it, but longer than all else takes.
func maxRun(name string) server.RouteOption {
	if name == "MaxRun" {
		return server.WithMaxRun(2 * time.Second)
	}
	return server.WithMaxRun(time.Minute)
}

func TestRunOutcomes(t *testing.T) {
	errFailed := errors.New("it failed")
	onEach(t, func(t *testing.T, b *backend) {
		for _, tt := range []struct {
			name    string
			first   func(context.Context) error
			outcome idem.Outcome
			// kept: the record stands, effects: with what it stands for.
			kept    bool
			effects int
		}{
			{"done", func(context.Context) error { return nil }, idem.OutcomeExecuted, true, 1},
			{"error", func(context.Context) error { return errFailed }, idem.OutcomeNotExecuted, false, 0},
			{"NotExecuted", func(context.Context) error { return idem.NotExecuted(errFailed) }, idem.OutcomeNotExecuted, false, 0},
			{"Unknown", func(context.Context) error { return idem.Unknown(errFailed) }, idem.OutcomeUnknown, false, 0},
			{"Rejected", func(context.Context) error { return idem.Rejected(errFailed) }, idem.OutcomeRejected, true, 0},
			{"panic", func(context.Context) error { panic("boom") }, 0, false, 0},
			{"MarkNotExecuted", func(ctx context.Context) error { server.MarkNotExecuted(ctx); return nil }, idem.OutcomeNotExecuted, false, 0},
			{"MaxRun", func(ctx context.Context) error { <-ctx.Done(); return nil }, idem.OutcomeNotExecuted, false, 0},
		} {
			t.Run(tt.name, func(t *testing.T) {
				db, _ := b.open(t)
				s := newServer(t, db.store)
				runs := 0
				run := func() (res idem.Result[int], err error) {
					defer func() {
						if p := recover(); (p != nil) != (tt.name == "panic" && runs == 1) {
							t.Errorf("recovered %v", p)
						}
					}()
					return server.RunResult(t.Context(), s, idem.Intent{Scope: "orders", ID: "1"}, func(ctx context.Context) (int, error) {
						if err := b.effect(ctx, "1"); err != nil {
							t.Errorf("the effect: %v", err)
						}
						if runs++; runs > 1 {
							return runs, nil
						}
						return runs, tt.first(ctx)
					}, maxRun(tt.name))
				}
				if res, err := run(); res.Outcome != tt.outcome || (err == nil) != (tt.outcome == idem.OutcomeExecuted || tt.name == "panic") {
					t.Errorf("got %v, %v; want %v", res.Outcome, err, tt.outcome)
				}
				records := 0
				if tt.kept {
					records = 1
				}
				db.state(t, tt.effects, records)
				res, err := run()
				switch {
				case !tt.kept && (err != nil || res.Value != 2 || res.Source != idem.SourceExecuted):
					t.Errorf("the next run: %+v, %v", res, err)
				case tt.kept && (res.Outcome != tt.outcome || res.Source != idem.SourceReplayed || runs != 1):
					t.Errorf("the replay: %+v, %v", res, err)
				}
				if !tt.kept {
					tt.effects = 1
				}
				db.state(t, tt.effects, 1)
			})
		}
	})
}
