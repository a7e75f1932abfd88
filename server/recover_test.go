package server_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/keystore"
	"github.com/idem-go/idem/server"
)

// lookup is a Recover hook that answers res and err, and what it was asked.
type lookup struct {
	res server.Resolution
	err error
	// do, if set, runs before it answers.
	do func(context.Context)

	mu    sync.Mutex
	asked []server.Pending
}

func (l *lookup) recover(ctx context.Context, p server.Pending) (server.Resolution, error) {
	l.mu.Lock()
	l.asked = append(l.asked, p)
	l.mu.Unlock()
	if l.do != nil {
		l.do(ctx)
	}
	return l.res, l.err
}

func (l *lookup) times() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.asked)
}

// breakOff leaves the key k unresolved.
func breakOff(t *testing.T, store keystore.Store, effects server.Effects) {
	t.Helper()
	h := newServer(t, server.Config{Store: store, Effects: effects}).Handler(&counter{do: func(w http.ResponseWriter, r *http.Request, _ int) {
		_ = server.BeginEffect(r.Context())
		w.WriteHeader(500)
	}})
	want(t, post(h, "k", "{}"), 500, "")
	want(t, post(h, "k", "{}"), 409, "recovery-required")
}

// resolutions are what the hook may answer, and what the duplicate that asked
// gets then.
var resolutions = []struct {
	name   string
	res    server.Resolution
	err    error
	status int
	code   string
	body   string
	runs   int
	event  string
	says   string // the record stays unresolved, for this reason
}{
	{name: "executed", res: server.Resolution{Outcome: idem.OutcomeExecuted, Status: 201, Header: http.Header{"X-A": {"b"}, "Set-Cookie": {"c"}}, Body: []byte("found")}, status: 201, body: "found", event: idem.EventRecovered},
	{name: "refused", res: server.Resolution{Outcome: idem.OutcomeRejected, Status: 402, Body: []byte("declined")}, status: 402, body: "declined", event: idem.EventRecovered},
	{name: "executed, result unknown", res: server.Resolution{Outcome: idem.OutcomeExecuted}, status: 409, code: "response-not-retained", event: idem.EventRecovered},
	{name: "executed, too large", res: server.Resolution{Outcome: idem.OutcomeExecuted, Status: 200, Body: make([]byte, 2<<20)}, status: 409, code: "response-not-retained", event: idem.EventRecovered},
	{name: "not executed", res: server.Resolution{Outcome: idem.OutcomeNotExecuted}, status: 201, body: "made", runs: 1, event: idem.EventExecuted},
	{name: "unknown", status: 409, code: "recovery-required", event: idem.EventUnresolved},
	{name: "error", res: server.Resolution{Outcome: idem.OutcomeNotExecuted}, err: errDown, status: 409, code: "recovery-required", event: idem.EventUnresolved, says: errDown.Error()},
	{name: "in flight", res: server.Resolution{Outcome: idem.OutcomeInFlight}, status: 409, code: "recovery-required", event: idem.EventUnresolved, says: "in-flight"},
	{name: "a failure as an answer", res: server.Resolution{Outcome: idem.OutcomeExecuted, Status: 503}, status: 409, code: "recovery-required", event: idem.EventUnresolved, says: "503"},
	{name: "a refusal as an execution", res: server.Resolution{Outcome: idem.OutcomeExecuted, Status: 404}, status: 409, code: "recovery-required", event: idem.EventUnresolved, says: "404"},
	{name: "a value for a request", res: server.Resolution{Outcome: idem.OutcomeExecuted, Value: 1}, status: 409, code: "recovery-required", event: idem.EventUnresolved, says: "Value"},
}

// TestRecover: the next duplicate has it found out what became of the request.
func TestRecover(t *testing.T) {
	for _, effects := range []server.Effects{server.Opaque, server.Marked} {
		for _, tt := range resolutions {
			t.Run(effects.String()+"/"+tt.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					store := newStore(t)
					breakOff(t, store, effects)
					time.Sleep(time.Hour)
					l := &lookup{res: tt.res, err: tt.err}
					seen := &events{}
					c := &counter{}
					h := newServer(t, server.Config{Store: store, Effects: effects, Recover: l.recover, Observer: seen}).Handler(c)
					w := post(h, "k", "{}")
					want(t, w, tt.status, tt.code)
					c.want(t, tt.runs)
					p := l.asked[0]
					if p.Half != "server" || p.Key != "k" || p.Scope != "single-tenant" || p.Method != "POST" || p.Path != "/charges" || p.Age < time.Hour || p.Tries != 0 {
						t.Errorf("asked %+v", p)
					}
					all := seen.take()
					if len(all) != 1 || all[0].Name != tt.event {
						t.Fatalf("events %+v, want one %s", all, tt.event)
					}
					if tt.event == idem.EventUnresolved {
						if tt.says != "" && !strings.Contains(all[0].Err.Error(), tt.says) {
							t.Errorf("told %v, want something of %s", all[0].Err, tt.says)
						}
						if w.Header().Get("Retry-After") != "1" {
							t.Errorf("Retry-After %q", w.Header().Get("Retry-After"))
						}
						return
					}
					if tt.code == "" {
						wantAnswer(t, w, tt.status, tt.body, map[bool]string{true: "false", false: "true"}[tt.runs > 0])
						if tt.name == "executed" && (w.Header().Get("X-A") != "b" || w.Header().Get("Set-Cookie") != "") {
							t.Errorf("header %v", w.Header())
						}
					}
					// It is settled: nobody is asked again.
					again := post(h, "k", "{}")
					want(t, again, tt.status, tt.code)
					if tt.code == "" {
						wantReplay(t, again, tt.status, tt.body)
					}
					if l.times() != 1 {
						t.Errorf("asked %d times", l.times())
					}
					c.want(t, tt.runs)
				})
			})
		}
	}
}

// The same for calls of Run.
func TestRecoverRun(t *testing.T) {
	for _, tt := range []struct {
		name    string
		res     server.Resolution
		outcome idem.Outcome
		value   int
		is      error
		runs    int
	}{
		{"executed", server.Resolution{Outcome: idem.OutcomeExecuted, Value: 7}, idem.OutcomeExecuted, 7, nil, 0},
		{"result unknown", server.Resolution{Outcome: idem.OutcomeExecuted}, idem.OutcomeExecuted, 0, idem.ErrResultNotRetained, 0},
		{"of another type", server.Resolution{Outcome: idem.OutcomeExecuted, Value: "seven"}, idem.OutcomeExecuted, 0, idem.ErrResultLost, 0},
		{"refused", server.Resolution{Outcome: idem.OutcomeRejected}, idem.OutcomeRejected, 0, idem.ErrRejected, 0},
		{"not executed", server.Resolution{Outcome: idem.OutcomeNotExecuted}, idem.OutcomeExecuted, 5, nil, 1},
		{"unknown", server.Resolution{}, idem.OutcomeUnknown, 0, server.ErrRecoveryRequired, 0},
		{"a reply for a function", server.Resolution{Outcome: idem.OutcomeExecuted, Status: 200}, idem.OutcomeUnknown, 0, idem.ErrConfig, 0},
		{"not to be encoded", server.Resolution{Outcome: idem.OutcomeExecuted, Value: func() {}}, idem.OutcomeUnknown, 0, idem.ErrConfig, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			store := newStore(t)
			in := idem.Intent{Scope: "q", ID: "1"}
			_, err := server.Run(t.Context(), newServer(t, server.Config{Store: store}), in, func(context.Context) (int, error) { return 0, errDown })
			if !errors.Is(err, idem.ErrOutcomeUnknown) {
				t.Fatal(err)
			}
			l := &lookup{res: tt.res}
			s := newServer(t, server.Config{Store: store, Recover: l.recover})
			runs := 0
			res, err := server.RunResult(t.Context(), s, in, func(context.Context) (int, error) { runs++; return 5, nil })
			if res.Outcome != tt.outcome || res.Value != tt.value || (err == nil) != (tt.is == nil) || tt.is != nil && !errors.Is(err, tt.is) || runs != tt.runs {
				t.Errorf("%+v, %v, %d runs", res, err, runs)
			}
			if p := l.asked[0]; p.ID != "1" || p.Key != idem.DeriveKey("server", "q", "1") || p.Scope != "q" || p.Method != "" {
				t.Errorf("asked %+v", p)
			}
		})
	}
}

// A hundred duplicates, at two servers, have it asked once.
func TestRecoverOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t)
		breakOff(t, store, server.Opaque)
		l := &lookup{res: server.Resolution{Outcome: idem.OutcomeExecuted, Status: 201, Body: []byte("found")},
			do: func(context.Context) { time.Sleep(90 * time.Second) }} // three leases
		var all sync.WaitGroup
		for range 2 {
			h := newServer(t, server.Config{Store: store, Recover: l.recover, Wait: time.Hour}).Handler(&counter{})
			for range 50 {
				all.Go(func() { wantReplay(t, post(h, "k", "{}"), 201, "found") })
			}
		}
		all.Wait()
		if l.times() != 1 {
			t.Errorf("asked %d times", l.times())
		}
	})
}

// Between two questions in vain lies a second, then twice as much, up to five
// minutes; for every process, since the record tells.
func TestRecoverBackOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t)
		breakOff(t, store, server.Opaque)
		l := &lookup{}
		var waits []time.Duration
		last := time.Now()
		for len(waits) < 12 {
			before := l.times()
			h := newServer(t, server.Config{Store: store, Recover: l.recover}).Handler(&counter{})
			w := post(h, "k", "{}")
			want(t, w, 409, "recovery-required")
			if l.times() > before {
				waits = append(waits, time.Since(last).Truncate(500*time.Millisecond))
				last = time.Now()
				if l.asked[before].Tries != before {
					t.Errorf("asked %+v", l.asked[before])
				}
			}
			time.Sleep(500 * time.Millisecond)
		}
		for i, wait := range waits[1:] {
			if least := min(time.Second<<i, 5*time.Minute); wait < least || wait > least+time.Second {
				t.Errorf("wait %d is %v, want %v", i+1, wait, least)
			}
		}
	})
}

// A hook that hangs is left after MaxRun, one that panics has not answered.
func TestRecoverFaults(t *testing.T) {
	for name, do := range map[string]func(context.Context){
		"hangs":  func(ctx context.Context) { <-ctx.Done() },
		"panics": func(context.Context) { panic("boom") },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := newStore(t)
				breakOff(t, store, server.Opaque)
				l := &lookup{res: server.Resolution{Outcome: idem.OutcomeNotExecuted}, do: do}
				c := &counter{}
				h := newServer(t, server.Config{Store: store, Recover: l.recover, MaxRun: time.Minute}).Handler(c)
				began := time.Now()
				want(t, post(h, "k", "{}"), 409, "recovery-required")
				if d := time.Since(began); d > time.Minute {
					t.Errorf("after %v", d)
				}
				c.want(t, 0)
				time.Sleep(time.Second)
				l.do = nil
				want(t, post(h, "k", "{}"), 201, "")
			})
		})
	}
}

// The claim that a recovery takes over is never given back unasked, even if
// the answer to it is lost.
func TestRecoverClaimLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &hooked{Store: newStore(t)}
		breakOff(t, store, server.Opaque)
		var down bool
		store.claim = func(p keystore.ClaimParams, next func() (keystore.Claim, error)) (keystore.Claim, error) {
			c, err := next()
			if p.Takeover && down {
				return keystore.Claim{}, errDown
			}
			return c, err
		}
		down = true
		l := &lookup{res: server.Resolution{Outcome: idem.OutcomeExecuted, Status: 201}}
		c := &counter{}
		h := newServer(t, server.Config{Store: store, Recover: l.recover, Wait: server.NoWait}).Handler(c)
		want(t, post(h, "k", "{}"), 409, "recovery-required")
		want(t, post(h, "k", "{}"), 409, "in-flight")
		time.Sleep(time.Minute)
		down = false
		want(t, post(h, "k", "{}"), 201, "")
		if c.want(t, 0); l.times() != 1 {
			t.Errorf("asked %d times", l.times())
		}
	})
}

// Somebody else has found out, between the look at the record and the claim,
// that it did not happen: nobody is asked again.
func TestRecoverFreedMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := newStore(t)
		breakOff(t, mem, server.Opaque)
		time.Sleep(time.Minute)
		store := &hooked{Store: mem, claim: func(p keystore.ClaimParams, next func() (keystore.Claim, error)) (keystore.Claim, error) {
			if p.Takeover {
				other := p
				other.Nonce[0]++
				c, err := mem.Claim(t.Context(), other)
				if err != nil || c.Status != keystore.Acquired {
					t.Errorf("%v, %v", c.Status, err)
				}
				if err := mem.Release(t.Context(), c.Owner, keystore.ReleaseParams{How: keystore.Forget}); err != nil {
					t.Error(err)
				}
			}
			return next()
		}}
		l := &lookup{}
		want(t, post(newServer(t, server.Config{Store: store, Recover: l.recover}).Handler(&counter{}), "k", "{}"), 201, "")
		if l.times() != 0 {
			t.Error("asked")
		}
	})
}

// B092: the store fails when what was found out is to be settled. It stays
// true, and is settled when the store is back.
func TestRecoverStoreDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &hooked{Store: newStore(t)}
		breakOff(t, store, server.Opaque)
		var down atomic.Bool
		down.Store(true)
		fail := func(next func() error) error {
			if down.Load() {
				return errDown
			}
			return next()
		}
		store.complete = func(_ keystore.CompleteParams, next func() error) error { return fail(next) }
		l := &lookup{res: server.Resolution{Outcome: idem.OutcomeExecuted, Status: 201, Body: []byte("found")}}
		h := newServer(t, server.Config{Store: store, Recover: l.recover, Wait: server.NoWait}).Handler(&counter{})
		wantReplay(t, post(h, "k", "{}"), 201, "found")
		want(t, post(h, "k", "{}"), 409, "in-flight")
		down.Store(false)
		time.Sleep(10 * time.Second)
		wantReplay(t, post(h, "k", "{}"), 201, "found")
		if l.times() != 1 {
			t.Errorf("asked %d times", l.times())
		}
	})
}

// B143: an owner that only stalled comes back after its record was recovered.
// Its answer is refused, and its caller gets the one that was found.
func TestRecoverFencesOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t)
		stalled := &hooked{Store: store, renew: func(keystore.RenewParams, func() error) error { return errDown }}
		finish := make(chan struct{})
		first := make(chan *httptest.ResponseRecorder, 1)
		h := newServer(t, server.Config{Store: stalled}).Handler(&counter{do: func(w http.ResponseWriter, _ *http.Request, _ int) {
			<-finish
			_, _ = w.Write([]byte("late"))
		}})
		go func() { first <- post(h, "k", "{}") }()
		time.Sleep(time.Minute)
		l := &lookup{res: server.Resolution{Outcome: idem.OutcomeExecuted, Status: 201, Body: []byte("found")}}
		other := newServer(t, server.Config{Store: store, Recover: l.recover}).Handler(&counter{})
		wantReplay(t, post(other, "k", "{}"), 201, "found")
		close(finish)
		wantReplay(t, <-first, 201, "found")
		wantReplay(t, post(other, "k", "{}"), 201, "found")
	})
}

// A replay of what was found goes by Authorize as well.
func TestRecoverAuthorizes(t *testing.T) {
	store := newStore(t)
	breakOff(t, store, server.Opaque)
	l := &lookup{res: server.Resolution{Outcome: idem.OutcomeExecuted, Status: 201, Body: []byte("secret")}}
	h := newServer(t, server.Config{Store: store, Recover: l.recover, Authorize: func(*http.Request) error { return errDown }}).Handler(&counter{})
	w := post(h, "k", "{}")
	want(t, w, 403, "replay-refused")
	if strings.Contains(w.Body.String(), "secret") {
		t.Error("it leaks")
	}
}

// Another payload is refused before anybody is asked.
func TestRecoverMismatch(t *testing.T) {
	store := newStore(t)
	breakOff(t, store, server.Opaque)
	l := &lookup{}
	h := newServer(t, server.Config{Store: store, Recover: l.recover}).Handler(&counter{})
	want(t, post(h, "k", "[]"), 422, "key-reused")
	if l.times() != 0 {
		t.Error("asked")
	}
}

// Shutdown cuts a hook off when its patience ends; the record is not lost.
func TestRecoverShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t)
		breakOff(t, store, server.Opaque)
		var cause error
		l := &lookup{do: func(ctx context.Context) { <-ctx.Done(); cause = context.Cause(ctx) }}
		s := newServer(t, server.Config{Store: store, Recover: l.recover, MaxRun: time.Hour})
		answered := make(chan *httptest.ResponseRecorder, 1)
		go func() { answered <- post(s.Handler(&counter{}), "k", "{}") }()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := s.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		want(t, <-answered, 409, "recovery-required")
		if !errors.Is(cause, idem.ErrShutdown) {
			t.Errorf("cause %v", cause)
		}
		recs, err := store.Records(t.Context(), keystore.Query{Unresolved: true})
		if err != nil || len(recs) != 1 {
			t.Errorf("%d unresolved, %v", len(recs), err)
		}
	})
}
