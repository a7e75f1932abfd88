package server_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/server"
)

// stateTable is what the next request meets: {not seen, running, completed,
// expired} × {same payload, other payload}.
var stateTable = []struct {
	state string
	other bool // payload
	meets string
}{
	{"not seen", false, "run"},
	{"not seen", true, "run"},
	{"running", false, "in-flight"},
	{"running, then done", false, "replay"},
	{"running", true, "mismatch"},
	{"running, then done", true, "mismatch"},
	{"completed", false, "replay"},
	{"completed", true, "mismatch"},
	{"expired", false, "run"},
	{"expired", true, "run"},
}

// bring brings the intent into a state. first is its first run, which ends
// when finish is closed.
func bring(state string, finish chan struct{}, first func()) {
	if state == "not seen" {
		return
	}
	go first()
	synctest.Wait()
	switch state {
	case "running":
	case "running, then done":
		time.AfterFunc(time.Second, func() { close(finish) })
	case "completed":
		close(finish)
		synctest.Wait()
	case "expired":
		close(finish)
		synctest.Wait()
		time.Sleep(24*time.Hour + time.Second)
	}
}

func end(state string, finish chan struct{}) {
	if state == "running" {
		close(finish)
	}
	synctest.Wait()
}

func payload(other bool) string {
	if other {
		return `{"amount":2}`
	}
	return `{"amount":1}`
}

func TestStateTableHandler(t *testing.T) {
	for _, tt := range stateTable {
		t.Run(tt.state+"/"+payload(tt.other), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				finish := make(chan struct{})
				seen := &events{}
				c := &counter{do: func(w http.ResponseWriter, r *http.Request, run int) {
					if run == 1 && tt.state != "not seen" {
						<-finish
					}
					body, _ := io.ReadAll(r.Body)
					w.WriteHeader(http.StatusCreated)
					_, _ = w.Write(body)
				}}
				h := newServer(t, server.Config{Observer: seen}).Handler(c)
				bring(tt.state, finish, func() { post(h, "k", payload(false)) })
				runs := c.runs()
				seen.take()

				w := post(h, "k", payload(tt.other))
				switch tt.meets {
				case "run":
					wantFirst(t, w, 201, payload(tt.other))
					runs++
				case "replay":
					wantReplay(t, w, 201, payload(false))
				case "mismatch":
					want(t, w, 422, "key-reused")
				case "in-flight":
					want(t, w, 409, "in-flight")
				}
				c.want(t, runs)
				name := map[string]string{"run": idem.EventExecuted, "replay": idem.EventReplayed, "mismatch": idem.EventMismatch, "in-flight": idem.EventInFlight}[tt.meets]
				all := seen.take() // the first run's may be among them
				if !slices.ContainsFunc(all, func(ev idem.Event) bool {
					return ev.Name == name && ev.Half == "server" && ev.KeyDigest == idem.Key("k").Digest() && ev.Scope == "single-tenant"
				}) {
					t.Errorf("events %+v, want %s", all, name)
				}
				end(tt.state, finish)
			})
		})
	}
}

func TestStateTableRun(t *testing.T) {
	for _, tt := range stateTable {
		t.Run(tt.state+"/"+payload(tt.other), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				finish := make(chan struct{})
				s := newServer(t, server.Config{})
				runs := 0
				run := func(other bool) (idem.Result[string], error) {
					in := idem.Intent{Scope: "queue", ID: "m1", Payload: payload(other)}
					return server.RunResult(t.Context(), s, in, func(context.Context) (string, error) {
						runs++
						if runs == 1 && tt.state != "not seen" {
							<-finish
						}
						return payload(other), nil
					})
				}
				bring(tt.state, finish, func() { _, _ = run(false) })
				before := runs

				res, err := run(tt.other)
				var e *idem.Error
				errors.As(err, &e)
				switch tt.meets {
				case "run":
					if err != nil || res.Value != payload(tt.other) || res.Source != idem.SourceExecuted || res.Outcome != idem.OutcomeExecuted || res.Attempts != 1 {
						t.Errorf("got %+v, %v", res, err)
					}
					before++
				case "replay":
					if err != nil || res.Value != payload(false) || res.Source != idem.SourceReplayed || res.Outcome != idem.OutcomeExecuted || res.Attempts != 0 {
						t.Errorf("got %+v, %v", res, err)
					}
				case "mismatch":
					if !errors.Is(err, idem.ErrPayloadMismatch) || e.Outcome != idem.OutcomeRejected || res.Value != "" {
						t.Errorf("got %+v, %v", res, err)
					}
				case "in-flight":
					if !errors.Is(err, idem.ErrInFlight) || e.Outcome != idem.OutcomeInFlight || res.Outcome != e.Outcome {
						t.Errorf("got %+v, %v", res, err)
					}
				}
				if runs != before {
					t.Errorf("ran %d times, want %d", runs, before)
				}
				end(tt.state, finish)
			})
		})
	}
}
