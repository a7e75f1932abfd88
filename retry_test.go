package idem_test

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idem-go/idem"
)

func TestAttemptTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t, idem.Config{Policy: idem.Policy{AttemptTimeout: 50 * time.Millisecond, Overall: time.Second, MaxDelay: time.Millisecond}})
		calls := 0
		res, err := idem.Do(t.Context(), c, intent, func(ctx context.Context, _ idem.Key) (int, error) {
			if calls++; calls == 1 {
				<-ctx.Done()
				return 0, ctx.Err()
			}
			return calls, nil
		})
		wantSource(t, res, err, idem.SourceExecuted)
		if res.Value != 2 {
			t.Errorf("B027: %d attempts", res.Value)
		}
	})
}

// A function that ignores its context and succeeds late has succeeded.
func TestLateSuccess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t, idem.Config{Policy: idem.Policy{AttemptTimeout: time.Millisecond}})
		res, err := idem.Do(t.Context(), c, intent, func(context.Context, idem.Key) (int, error) {
			time.Sleep(time.Second)
			return 1, nil
		})
		wantSource(t, res, err, idem.SourceExecuted)
	})
}

func TestDeadlines(t *testing.T) {
	long := idem.Policy{BaseDelay: time.Hour, MaxDelay: time.Hour, Overall: 23 * time.Hour, RetryBudget: 1 << 20}
	t.Run("B045 no wait towards the impossible", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			for _, in := range []idem.Intent{intent, {}} {
				began := time.Now()
				s := answers(notExecuted)
				_, err := idem.Do(after(t, time.Millisecond), newClient(t, idem.Config{Policy: long}), in, s.call)
				e := wantOutcome(t, err, idem.OutcomeNotExecuted, context.DeadlineExceeded)
				if s.calls() != 1 || time.Since(began) != 0 || !e.Timeout() {
					t.Errorf("%d attempts in %v, Timeout %v", s.calls(), time.Since(began), e.Timeout())
				}
			}
		})
	})
	t.Run("spent attempts are no timeout", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p := long
			p.Attempts = 1
			_, err := idem.Do(after(t, time.Millisecond), newClient(t, idem.Config{Policy: p}), intent, answers(notExecuted).call)
			if e := wantOutcome(t, err, idem.OutcomeNotExecuted); e.Cause != nil || e.Timeout() {
				t.Errorf("cause %v", e.Cause)
			}
		})
	})
	t.Run("B046 overall", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := newClient(t, idem.Config{Policy: idem.Policy{Attempts: 1000, AttemptTimeout: 3 * time.Second, Overall: 10 * time.Second, BaseDelay: 1, MaxDelay: 1}})
			began := time.Now()
			s := answers(unknown)
			_, err := idem.Do(t.Context(), c, intent, func(ctx context.Context, key idem.Key) (receipt, error) {
				<-ctx.Done()
				return s.call(ctx, key)
			})
			wantOutcome(t, err, idem.OutcomeUnknown, context.DeadlineExceeded)
			// 3 s, 1 ms, 3 s, 1 ms, 3 s, 1 ms and what is left.
			if s.calls() != 4 || time.Since(began) != 10*time.Second {
				t.Errorf("%d attempts in %v", s.calls(), time.Since(began))
			}
		})
	})
	t.Run("B045 B046 10,000 waits cancelled", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := newClient(t, idem.Config{Policy: long})
			ctx, cancel := context.WithCancel(t.Context())
			began := time.Now()
			var calls sync.WaitGroup
			for range 10_000 {
				calls.Go(func() {
					s := answers(notExecuted)
					_, err := idem.Do(ctx, c, idem.Intent{}, s.call)
					var e *idem.Error
					if !errors.As(err, &e) || e.Outcome != idem.OutcomeNotExecuted || !errors.Is(err, context.Canceled) || s.calls() != 1 {
						t.Error(s.calls(), err)
					}
				})
			}
			synctest.Wait()
			cancel()
			calls.Wait()
			if d := time.Since(began); d != 0 {
				t.Errorf("returned %v after the cancellation", d)
			}
		})
	})
	t.Run("a named call's wait, cancelled", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			s := answers(notExecuted)
			began := time.Now()
			go func() {
				synctest.Wait()
				cancel()
			}()
			_, err := idem.Do(ctx, newClient(t, idem.Config{Policy: long}), intent, s.call)
			wantOutcome(t, err, idem.OutcomeUnknown, context.Canceled)
			if d := time.Since(began); d != 0 || s.calls() != 1 {
				t.Errorf("after %v, %d attempts", d, s.calls())
			}
			graceOver()
		})
	})
}

func TestRetryAfterHonoured(t *testing.T) {
	post := func(t *testing.T, ctx context.Context, p idem.Policy, base http.RoundTripper) (*http.Response, error) {
		req, _ := http.NewRequestWithContext(ctx, "POST", "http://shop.test/charges", nil)
		return newClient(t, idem.Config{Policy: p}).Transport(base).RoundTrip(req)
	}
	t.Run("upwards only", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var at []time.Time
			began := time.Now()
			resp, err := post(t, t.Context(), idem.Policy{}, roundTripper(func(req *http.Request) (*http.Response, error) {
				if at = append(at, time.Now()); len(at) == 1 {
					return replies(429, "Retry-After", "20")(req)
				}
				return replies(201)(req)
			}))
			if err != nil || resp.StatusCode != 201 {
				t.Fatal(err)
			}
			if d := at[1].Sub(began); d < 20*time.Second || d > 21*time.Second {
				t.Errorf("waited %v, the server asked for 20s", d)
			}
		})
	})
	for _, tt := range []struct {
		name   string
		wait   string
		policy idem.Policy
		limit  time.Duration // of the caller
	}{
		{"B043 over the cap", "1800", idem.Policy{}, time.Hour},
		{"B043 over the overall deadline", "1800", idem.Policy{RetryAfterCap: time.Hour, Overall: 15 * time.Minute}, time.Hour},
		{"B043 over the caller's deadline", "1800", idem.Policy{RetryAfterCap: time.Hour, Overall: 2 * time.Hour}, time.Minute},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				_, err := post(t, after(t, tt.limit), tt.policy, replies(503, "Retry-After", tt.wait))
				e := wantOutcome(t, err, idem.OutcomeUnknown, idem.ErrRetryAfterTooLong)
				var last *idem.ResponseError
				if time.Since(began) != 0 || e.RetryAfter != 30*time.Minute || e.Key == "" || e.Attempts != 1 ||
					!errors.As(err, &last) || last.StatusCode != 503 || last.Header.Get("Retry-After") != tt.wait {
					t.Errorf("after %v: %+v", time.Since(began), e)
				}
			})
		})
	}
}

func TestRetryBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t, idem.Config{Scope: "shop", Policy: idem.Policy{Attempts: 4, RetryBudget: 5}})
		try := func(scope string, errs ...error) (attempts int, err error) {
			s := answers(errs...)
			_, err = idem.Do(t.Context(), c, idem.Intent{Scope: scope}, s.call)
			return s.calls(), err
		}
		if n, _ := try("", notExecuted); n != 4 {
			t.Fatalf("%d attempts", n)
		}
		n, err := try("", notExecuted) // 2 retries are left
		wantOutcome(t, err, idem.OutcomeNotExecuted, idem.ErrRetryBudget, errBoom)
		if n != 3 {
			t.Errorf("%d attempts, want 3", n)
		}
		n, err = try("", unknown)
		if e := wantOutcome(t, err, idem.OutcomeUnknown, idem.ErrRetryBudget); n != 1 || e.Key == "" {
			t.Errorf("%d attempts, want 1", n)
		}
		if n, _ := try("mail", notExecuted); n != 1 {
			t.Errorf("another scope: %d attempts, want 1: for functions the client is the origin", n)
		}
		// Definite answers give back.
		for _, definite := range []error{nil, rejected} {
			if n, _ := try("", definite); n != 1 {
				t.Error(n)
			}
		}
		if n, _ := try("", notExecuted); n != 3 {
			t.Errorf("after two definite answers: %d attempts, want 3", n)
		}
	})
}

// Waiting for another owner has a budget of its own.
func TestInFlightWait(t *testing.T) {
	errBusy := errors.New("busy")
	cfg := idem.Config{
		Policy: idem.Policy{Attempts: 2, BaseDelay: time.Second, MaxDelay: time.Second, InFlightWait: 20 * time.Second, RetryBudget: 1},
		Classify: func(err error) (idem.Outcome, bool) {
			return idem.OutcomeInFlight, errors.Is(err, errBusy)
		},
	}
	synctest.Test(t, func(t *testing.T) {
		// Neither attempts nor the retry budget are charged.
		s := answers(errBusy, errBusy, errBusy, errBusy, errBusy, notExecuted, nil)
		res, err := idem.Do(t.Context(), newClient(t, cfg), intent, s.call)
		wantSource(t, res, err, idem.SourceExecuted)
		if s.calls() != 7 || res.Attempts != 2 {
			t.Errorf("B033: %d calls, %d attempts; want 7, 2", s.calls(), res.Attempts)
		}

		began := time.Now()
		s = answers(errBusy)
		_, err = idem.Do(t.Context(), newClient(t, cfg), intent, s.call)
		wantOutcome(t, err, idem.OutcomeInFlight, idem.ErrInFlight, errBusy)
		if d := time.Since(began); d > 20*time.Second || d < 19*time.Second {
			t.Errorf("B034: gave up after %v, want 20s less one wait", d)
		}

		s = answers(unknown, errBusy)
		_, err = idem.Do(t.Context(), newClient(t, cfg), intent, s.call)
		wantOutcome(t, err, idem.OutcomeUnknown, errBusy)
	})
}

// A policy is a value: calls that share it do not share what they count.
func TestPolicyIsShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := idem.Policy{Attempts: 3}
		a, b := newClient(t, idem.Config{Policy: p}), newClient(t, idem.Config{Policy: p})
		var calls sync.WaitGroup
		for i := range 30 {
			calls.Go(func() {
				c := a
				if i%2 == 0 {
					c = b
				}
				s := answers(unknown)
				if idem.Do(t.Context(), c, idem.Intent{}, s.call); s.calls() != 3 {
					t.Errorf("%d attempts, want 3", s.calls())
				}
			})
		}
		calls.Wait()
	})
}
