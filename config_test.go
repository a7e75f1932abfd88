package idem_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/keystore"
	"github.com/idem-go/idem/keystore/memstore"
)

func TestNewRefuses(t *testing.T) {
	type config = idem.Config
	policy := func(p idem.Policy) config { return config{Policy: p} }
	contract := func(c idem.Contract) config { return config{Contract: c} }
	for _, tt := range []struct {
		field string // which the error begins with
		cfg   config
	}{
		{"Policy.Attempts", policy(idem.Policy{Attempts: -1})},
		{"Policy.AttemptTimeout", policy(idem.Policy{AttemptTimeout: -1})},
		{"Policy.Overall", policy(idem.Policy{Overall: -1})},
		{"Policy.Overall", policy(idem.Policy{Overall: 24 * time.Hour})}, // no shorter than the contract's retention
		{"Policy.BaseDelay", policy(idem.Policy{BaseDelay: -1})},
		{"Policy.MaxDelay", policy(idem.Policy{MaxDelay: -1})},
		{"Policy.Multiplier", policy(idem.Policy{Multiplier: math.NaN()})},
		{"Policy.Multiplier", policy(idem.Policy{Multiplier: math.Inf(1)})},
		{"Policy.Multiplier", policy(idem.Policy{Multiplier: math.Inf(-1)})},
		{"Policy.Multiplier", policy(idem.Policy{Multiplier: -2})},
		{"Policy.Multiplier", policy(idem.Policy{Multiplier: 0.5})},
		{"Policy.RetryAfterCap", policy(idem.Policy{RetryAfterCap: -1})},
		{"Policy.InFlightWait", policy(idem.Policy{InFlightWait: -1})},
		{"Policy.RetryBudget", policy(idem.Policy{RetryBudget: -1})},
		{"Contract.MaxKeyLen", contract(idem.Contract{MaxKeyLen: -1})},
		{"Contract.MaxKeyLen", contract(idem.Contract{MaxKeyLen: 256})},
		{"Contract.KeyChars", contract(idem.Contract{KeyChars: "0123456789abcdef"})},
		{"Contract.KeyChars", contract(idem.Contract{KeyChars: "ABCDEF-0123456789"})},
		{"Contract.Retention", contract(idem.Contract{Retention: -1})},
		{"Policy.Overall", contract(idem.Contract{Retention: 30 * time.Second})},
		{"Policy.Overall", contract(idem.Contract{Retention: 35 * time.Second})}, // the margin is 5.35 s
		{"Contract.Answers[1].Means", contract(idem.Contract{Answers: []idem.Answer{{Means: idem.MeansRejected}, {}}})},
		{"Contract.Answers[0].Status", contract(idem.Contract{Answers: []idem.Answer{{Status: 99, Means: idem.MeansRejected}}})},
		{"Config.Store", config{Store: (*memstore.Store)(nil)}},
		{"Config.Observer", config{Observer: (*events)(nil)}},
		{"Config.RandomKeys", config{RandomKeys: true}},
		{"Config.MaxPayload", config{MaxPayload: -1}},
		{"Config.MaxPayload", config{MaxPayload: 32<<10 + 1}},
		{"Config.MaxPayload", config{MaxPayload: 1}}, // needs a store
		{"Config.FailOpen", config{FailOpen: true, RandomKeys: true, Store: new(memstore.Store)}},
		{"Config.MaxRequest", config{MaxRequest: -1}},
		{"Config.MaxResult", config{MaxResult: -1}},
		{"Config.MaxResult", config{MaxResult: keystore.MaxResult}}, // not every store would take it
		{"Config.Lease", config{Lease: -1}},
		{"Config.Retention", config{Retention: -1}},
		{"Config.Retention", config{Retention: 30 * time.Second}}, // no longer than Policy.Overall
		{"Config.FlightGrace", config{FlightGrace: -1}},
		{"Config.Encode", config{Encode: func(any) ([]byte, error) { return nil, nil }}},
		{"Config.Encode", config{Decode: func([]byte, any) error { return nil }}},
	} {
		c, err := idem.New(tt.cfg)
		if c != nil || !errors.Is(err, idem.ErrConfig) || !strings.HasPrefix(err.Error(), "idem: invalid config: "+tt.field+" ") {
			t.Errorf("New: %v, %v; want ErrConfig about %s", c, err, tt.field)
		}
	}
}

// TestZeroConfig pins what each zero value means, by what it does.
func TestZeroConfig(t *testing.T) {
	inBubble := func(name string, test func(t *testing.T)) {
		t.Run(name, func(t *testing.T) { synctest.Test(t, test) })
	}
	inBubble("B041 B042 Attempts", func(t *testing.T) {
		s := answers(idem.Unknown(errBoom))
		res, err := idem.Do(t.Context(), newClient(t, idem.Config{}), intent, s.call)
		wantOutcome(t, err, idem.OutcomeUnknown, idem.ErrOutcomeUnknown, errBoom)
		if s.calls() != 4 || res.Attempts != 4 {
			t.Errorf("%d calls, %d attempts; want 4", s.calls(), res.Attempts)
		}
	})
	inBubble("B042 partly filled policies end", func(t *testing.T) {
		for _, p := range []idem.Policy{{Attempts: 1 << 30}, {Overall: 23 * time.Hour}, {BaseDelay: 1}, {MaxDelay: 1}, {Multiplier: 1}} {
			s := answers(idem.Unknown(errBoom))
			_, err := idem.Do(t.Context(), newClient(t, idem.Config{Policy: p}), intent, s.call)
			wantOutcome(t, err, idem.OutcomeUnknown)
		}
	})
	inBubble("AttemptTimeout", func(t *testing.T) {
		began := time.Now()
		_, err := idem.Do(t.Context(), newClient(t, idem.Config{Policy: idem.Policy{Attempts: 1}}), intent, untilDone)
		if e := wantOutcome(t, err, idem.OutcomeUnknown); time.Since(began) != 5*time.Second || !e.Timeout() {
			t.Errorf("ended after %v, Timeout %v; want 5s, true", time.Since(began), e.Timeout())
		}
	})
	inBubble("Overall", func(t *testing.T) {
		began := time.Now()
		_, err := idem.Do(t.Context(), newClient(t, idem.Config{Policy: idem.Policy{Attempts: 1 << 30}}), intent, untilDone)
		wantOutcome(t, err, idem.OutcomeUnknown, context.DeadlineExceeded)
		if d := time.Since(began); d > 30*time.Second || d <= 20*time.Second {
			t.Errorf("ended after %v; want 30s, less one wait", d)
		}
	})
	inBubble("RetryBudget", func(t *testing.T) {
		c := newClient(t, idem.Config{Policy: idem.Policy{Attempts: 2}})
		for range 100 {
			_, err := idem.Do(t.Context(), c, idem.Intent{}, answers(idem.NotExecuted(errBoom)).call)
			if errors.Is(err, idem.ErrRetryBudget) {
				t.Fatal("spent too early")
			}
		}
		_, err := idem.Do(t.Context(), c, idem.Intent{}, answers(idem.NotExecuted(errBoom)).call)
		wantOutcome(t, err, idem.OutcomeNotExecuted, idem.ErrRetryBudget)
	})
	inBubble("Lease, InFlightWait", func(t *testing.T) {
		store := newStore(t)
		gate := make(chan struct{})
		c := newClient(t, idem.Config{Store: store, Policy: idem.Policy{AttemptTimeout: time.Minute, Overall: time.Minute}})
		go idem.Do(t.Context(), c, intent, func(context.Context, idem.Key) (receipt, error) {
			<-gate
			return receipt{}, nil
		})
		synctest.Wait()
		if left := record(t, store).LeaseLeft; left != 30*time.Second {
			t.Errorf("lease %v, want 30s", left)
		}
		began := time.Now()
		s := answers(nil)
		_, err := idem.Do(t.Context(), newClient(t, idem.Config{Store: store}), intent, s.call)
		wantOutcome(t, err, idem.OutcomeInFlight, idem.ErrInFlight)
		if time.Since(began) != 30*time.Second || s.calls() != 0 {
			t.Errorf("waited %v, called %d times; want 30s, 0", time.Since(began), s.calls())
		}
		close(gate)
		synctest.Wait()
	})
	inBubble("Retention", func(t *testing.T) {
		c := newClient(t, idem.Config{Store: newStore(t)})
		s := answers(nil)
		do := func() idem.Source {
			res, err := idem.Do(t.Context(), c, intent, s.call)
			if err != nil {
				t.Fatal(err)
			}
			return res.Source
		}
		if got := do(); got != idem.SourceExecuted {
			t.Fatal(got)
		}
		time.Sleep(24*time.Hour - 1)
		if got := do(); got != idem.SourceReplayed {
			t.Fatalf("just before 24h: %v", got)
		}
		time.Sleep(time.Nanosecond)
		if got := do(); got != idem.SourceExecuted || s.calls() != 2 {
			t.Fatalf("after 24h: %v, %d calls", got, s.calls())
		}
	})
	inBubble("FlightGrace", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan time.Duration, 1)
		go func() {
			time.Sleep(time.Second)
			cancel()
		}()
		_, err := idem.Do(ctx, newClient(t, idem.Config{}), intent, func(ctx context.Context, _ idem.Key) (receipt, error) {
			began := time.Now()
			<-ctx.Done()
			ended <- time.Since(began)
			return receipt{}, ctx.Err()
		})
		wantOutcome(t, err, idem.OutcomeUnknown, context.Canceled)
		if d := <-ended; d != 2*time.Second {
			t.Errorf("the call ended after %v, its only caller left after 1s; want 1s more", d)
		}
	})
	inBubble("MaxResult", func(t *testing.T) {
		for size, want := range map[int]error{1<<20 - 2: nil, 1<<20 - 1: idem.ErrResultNotRetained} { // JSON adds two quotes
			c := newClient(t, idem.Config{Store: newStore(t)})
			call := func(context.Context, idem.Key) (string, error) { return strings.Repeat("x", size), nil }
			if res, err := idem.Do(t.Context(), c, intent, call); err != nil || len(res.Value) != size {
				t.Fatal("the caller must have the whole result:", err)
			}
			if _, err := idem.Do(t.Context(), c, intent, call); !errors.Is(err, want) {
				t.Errorf("replay of %d bytes: %v, want %v", size, err, want)
			}
		}
	})
}

// untilDone is a decorated function that ends with its context.
func untilDone(ctx context.Context, _ idem.Key) (receipt, error) {
	<-ctx.Done()
	return receipt{}, ctx.Err()
}
