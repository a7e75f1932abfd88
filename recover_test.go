package idem_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/keystore"
)

// hook is a Recover hook that answers res and err, and what it was asked.
type hook struct {
	res idem.Resolution
	err error

	mu    sync.Mutex
	asked []idem.Pending
}

func (h *hook) recover(_ context.Context, p idem.Pending) (idem.Resolution, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.asked = append(h.asked, p)
	return h.res, h.err
}

// short is a contract that forgets soon.
var short = idem.Contract{Retention: time.Hour}

// expired leaves the intent unresolved until its key has expired, and returns
// the key.
func expired(t *testing.T, store keystore.Store, cfg idem.Config) idem.Key {
	t.Helper()
	cfg.Store, cfg.Contract = store, short
	s := answers(unknown)
	_, err := idem.Do(t.Context(), newClient(t, cfg), intent, s.call)
	wantOutcome(t, err, idem.OutcomeUnknown)
	time.Sleep(time.Hour)
	return s.sent(t)
}

// TestRecover: what a call finds whose intent's key has expired, by what the
// hook has found out.
func TestRecover(t *testing.T) {
	value := receipt{"ch_0"}
	for _, tt := range []struct {
		name    string
		res     idem.Resolution
		err     error
		outcome idem.Outcome // of the call; Executed without an error is a result
		is      []error
		value   receipt
		sends   int
		then    keystore.State // of the record
		gen     uint32
	}{
		{name: "done", res: idem.Resolution{Outcome: idem.OutcomeExecuted, Value: value}, outcome: idem.OutcomeExecuted, value: value, then: keystore.Done},
		{name: "done, result unknown", res: idem.Resolution{Outcome: idem.OutcomeExecuted}, outcome: idem.OutcomeExecuted, is: []error{idem.ErrResultNotRetained}, then: keystore.Done},
		{name: "not done", res: idem.Resolution{Outcome: idem.OutcomeNotExecuted}, outcome: idem.OutcomeExecuted, value: receipt{"ch_1"}, sends: 1, then: keystore.Done},
		{name: "refused", res: idem.Resolution{Outcome: idem.OutcomeRejected, Status: 402}, outcome: idem.OutcomeRejected, is: []error{idem.ErrRejected}, then: keystore.Free, gen: 1},
		{name: "still unknown", outcome: idem.OutcomeUnknown, is: []error{idem.ErrKeyExpired}, then: keystore.Running},
		{name: "in flight is no answer", res: idem.Resolution{Outcome: idem.OutcomeInFlight}, outcome: idem.OutcomeUnknown, is: []error{idem.ErrKeyExpired}, then: keystore.Running},
		{name: "error", res: idem.Resolution{Outcome: idem.OutcomeNotExecuted}, err: errBoom, outcome: idem.OutcomeUnknown, is: []error{errBoom, idem.ErrKeyExpired}, then: keystore.Running},
		{name: "value of another type", res: idem.Resolution{Outcome: idem.OutcomeExecuted, Value: &value}, outcome: idem.OutcomeUnknown, is: []error{idem.ErrKeyExpired}, then: keystore.Running},
		{name: "a reply for a function", res: idem.Resolution{Outcome: idem.OutcomeExecuted, Status: 200}, outcome: idem.OutcomeUnknown, is: []error{idem.ErrKeyExpired}, then: keystore.Running},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := newStore(t)
				key := expired(t, store, idem.Config{})
				h := &hook{res: tt.res, err: tt.err}
				seen := &events{}
				c := newClient(t, idem.Config{Store: store, Contract: short, Recover: h.recover, Observer: seen})
				s := answers(nil)
				res, err := idem.Do(t.Context(), c, intent, s.call)
				if res.Outcome != tt.outcome || res.Value != tt.value || s.calls() != tt.sends {
					t.Errorf("%v %v %v, %d sends", res.Outcome, res.Value, err, s.calls())
				}
				for _, is := range tt.is {
					if !errors.Is(err, is) {
						t.Errorf("error %v, want %v", err, is)
					}
				}
				if res.Key != key {
					t.Errorf("key %s, sent under %s", res.Key, key)
				}
				rec := record(t, store)
				if rec.State != tt.then || rec.Generation != tt.gen || tt.then == keystore.Running && !rec.Unresolved() {
					t.Errorf("record: %v, generation %d, lease %v", rec.State, rec.Generation, rec.LeaseLeft)
				}
				if len(h.asked) != 1 || h.asked[0].Key != key || h.asked[0].ID != intent.ID || h.asked[0].Scope != intent.Scope ||
					h.asked[0].Half != "client" || h.asked[0].Age < time.Hour || h.asked[0].Tries != 0 {
					t.Errorf("asked %+v", h.asked)
				}
				wantName := map[keystore.State]string{keystore.Running: idem.EventUnresolved, keystore.Done: idem.EventRecovered, keystore.Free: idem.EventRecovered}[tt.then]
				if tt.sends > 0 {
					wantName = idem.EventExecuted
				}
				if got := seen.take(); len(got) != 1 || got[0].Name != wantName {
					t.Errorf("events %+v, want one %s", got, wantName)
				}
				if tt.then != keystore.Running {
					return
				}
				// It was counted, and asking again can help.
				h.res, h.err = idem.Resolution{Outcome: idem.OutcomeExecuted, Value: value}, nil
				res, err = idem.Do(t.Context(), c, intent, never[receipt](t))
				wantSource(t, res, err, idem.SourceReplayed)
				if h.asked[1].Tries != 1 {
					t.Errorf("asked %+v", h.asked[1])
				}
			})
		})
	}
}

// A definite refusal that Recover tells of closes the generation: the next key
// is another one, and so may be the payload.
func TestRecoverRotates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t)
		key := expired(t, store, idem.Config{})
		h := &hook{res: idem.Resolution{Outcome: idem.OutcomeRejected}}
		c := newClient(t, idem.Config{Store: store, Contract: short, Recover: h.recover})
		_, err := idem.Do(t.Context(), c, intent, never[receipt](t))
		wantOutcome(t, err, idem.OutcomeRejected)
		other := intent
		other.Payload = order{"o1", 43}
		s := answers(nil)
		res, err := idem.Do(t.Context(), c, other, s.call)
		wantSource(t, res, err, idem.SourceExecuted)
		if want := idem.DeriveKey("intent", intent.Scope, intent.ID, "1"); res.Key != want || res.Key == key {
			t.Errorf("key %s, want %s", res.Key, want)
		}
	})
}

// One process asks, the others wait for what it finds out. A lease that would
// be over meanwhile is renewed.
func TestRecoverOnce(t *testing.T) {
	eachStore(t, func(t *testing.T, store keystore.Store) {
		expired(t, store, idem.Config{})
		var asked atomic.Int64
		ask := func(ctx context.Context, _ idem.Pending) (idem.Resolution, error) {
			asked.Add(1)
			select {
			case <-time.After(20 * time.Second):
			case <-ctx.Done():
			}
			return idem.Resolution{Outcome: idem.OutcomeExecuted, Value: receipt{"ch_0"}}, nil
		}
		var all sync.WaitGroup
		for range 10 {
			c := newClient(t, idem.Config{Store: store, Contract: short, Lease: 3 * time.Second, Recover: ask, Policy: idem.Policy{InFlightWait: time.Minute}})
			for range 10 {
				all.Go(func() {
					res, err := idem.Do(t.Context(), c, intent, never[receipt](t))
					if err != nil || res.Value.Charge != "ch_0" {
						t.Error(res, err)
					}
				})
			}
		}
		all.Wait()
		if asked.Load() != 1 {
			t.Errorf("asked %d times", asked.Load())
		}
	})
}

// A hook that hangs is left after Policy.Overall, one that panics has not
// answered; a store that fails afterwards loses nothing.
func TestRecoverFaults(t *testing.T) {
	for name, ask := range map[string]func(context.Context, idem.Pending) (idem.Resolution, error){
		"hangs": func(ctx context.Context, _ idem.Pending) (idem.Resolution, error) {
			<-ctx.Done()
			return idem.Resolution{Outcome: idem.OutcomeNotExecuted}, nil
		},
		"panics": func(context.Context, idem.Pending) (idem.Resolution, error) { panic("boom") },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := newStore(t)
				expired(t, store, idem.Config{})
				c := newClient(t, idem.Config{Store: store, Contract: short, Recover: ask, Policy: idem.Policy{Overall: 7 * time.Second}})
				began := time.Now()
				_, err := idem.Do(t.Context(), c, intent, never[receipt](t))
				e := wantOutcome(t, err, idem.OutcomeUnknown, idem.ErrKeyExpired)
				if d := time.Since(began); d > 7*time.Second {
					t.Errorf("after %v", d)
				}
				var p *idem.PanicError
				if name == "panics" && !errors.As(e, &p) {
					t.Errorf("error %v", err)
				}
				if rec := record(t, store); !rec.Unresolved() {
					t.Errorf("record %+v", rec)
				}
			})
		})
	}
	t.Run("store down", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			store, mend := broken(t, "complete")
			expired(t, store, idem.Config{})
			h := &hook{res: idem.Resolution{Outcome: idem.OutcomeExecuted, Value: receipt{"ch_0"}}}
			c := newClient(t, idem.Config{Store: store, Contract: short, Recover: h.recover, Policy: idem.Policy{InFlightWait: time.Minute}})
			_, err := idem.Do(t.Context(), c, intent, never[receipt](t))
			wantOutcome(t, err, idem.OutcomeUnknown, idem.ErrStore, errBoom)
			mend()
			res, err := idem.Do(t.Context(), c, intent, never[receipt](t))
			wantSource(t, res, err, idem.SourceReplayed)
		})
	})
}

// A server that does not honour keys gets nothing a second time; Recover is
// the way on.
func TestRecoverKeyless(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t)
		s := answers(unknown)
		cfg := idem.Config{Store: store, Contract: idem.Keyless}
		_, err := idem.Do(t.Context(), newClient(t, cfg), intent, s.call)
		wantOutcome(t, err, idem.OutcomeUnknown)
		_, err = idem.Do(t.Context(), newClient(t, cfg), intent, never[receipt](t))
		wantOutcome(t, err, idem.OutcomeUnknown)
		h := &hook{res: idem.Resolution{Outcome: idem.OutcomeNotExecuted}}
		cfg.Recover = h.recover
		again := answers(nil)
		res, err := idem.Do(t.Context(), newClient(t, cfg), intent, again.call)
		wantSource(t, res, err, idem.SourceExecuted)
		if s.calls() != 1 || again.calls() != 1 {
			t.Errorf("%d and %d sends", s.calls(), again.calls())
		}
	})
}

// A request's answer is recovered whole.
func TestRecoverHTTP(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t)
		cfg := idem.Config{Store: store, Contract: short, Policy: idem.Policy{Attempts: 1}}
		send := func(base roundTripper) (*http.Response, error) {
			ctx := idem.WithIntent(t.Context(), idem.Intent{Scope: "shop", ID: "o1"})
			req, err := http.NewRequestWithContext(ctx, "POST", "http://example.com/", strings.NewReader("body"))
			if err != nil {
				t.Fatal(err)
			}
			return newClient(t, cfg).Transport(base).RoundTrip(req)
		}
		_, err := send(replies(500))
		wantOutcome(t, err, idem.OutcomeUnknown)
		time.Sleep(time.Hour)
		h := &hook{res: idem.Resolution{Outcome: idem.OutcomeExecuted, Status: 700}}
		cfg.Recover = h.recover
		none := roundTripper(func(*http.Request) (*http.Response, error) {
			t.Error("sent")
			return nil, errBoom
		})
		_, err = send(none)
		if wantOutcome(t, err, idem.OutcomeUnknown, idem.ErrKeyExpired); !strings.Contains(err.Error(), "700") {
			t.Errorf("error %v", err)
		}
		h.res.Status, h.res.Header, h.res.Body = 201, http.Header{"Location": {"/1"}}, []byte("created")
		for range 2 {
			resp, err := send(none)
			if err != nil {
				t.Fatal(err)
			}
			body, _ := io.ReadAll(resp.Body)
			if r := idem.ReportOf(resp); resp.StatusCode != 201 || resp.Header.Get("Location") != "/1" || string(body) != "created" || r.Source != idem.SourceReplayed {
				t.Errorf("%v %q %+v", resp, body, r)
			}
		}
		if len(h.asked) != 2 {
			t.Errorf("asked %d times", len(h.asked))
		}
	})
}

// B130: a form is edited after a timeout. The refusal of another payload says
// what to do while the first one's outcome is unknown.
func TestMismatchOfUnresolved(t *testing.T) {
	store := newStore(t)
	c := newClient(t, idem.Config{Store: store, Policy: idem.Policy{Attempts: 1}})
	_, err := idem.Do(t.Context(), c, intent, answers(unknown).call)
	key := wantOutcome(t, err, idem.OutcomeUnknown).Key
	other := intent
	other.Payload = order{"o1", 43}
	_, err = idem.Do(t.Context(), c, other, never[receipt](t))
	e := wantOutcome(t, err, idem.OutcomeRejected, idem.ErrPayloadMismatch)
	if !strings.Contains(err.Error(), "first payload") || e.Key != key {
		t.Errorf("error %v, key %s", err, e.Key)
	}
}

// The record's note stays readable as JSON, for people and tools.
func TestNote(t *testing.T) {
	store := newStore(t)
	c := newClient(t, idem.Config{Store: store, MaxPayload: 100})
	_, err := idem.Do(t.Context(), c, intent, answers(nil).call)
	if err != nil {
		t.Fatal(err)
	}
	var m map[string]any
	if err := json.Unmarshal(record(t, store).Meta, &m); err != nil || m["i"] != "o1" || m["s"] != "shop" || m["h"] != nil {
		t.Errorf("%v %v", m, err)
	}
}
