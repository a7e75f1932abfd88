package idem_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"testing"
	"testing/synctest"

	"github.com/idem-go/idem"
)

// sdkError is an error as an SDK makes it: with the status in a field.
type sdkError struct{ StatusCode int }

func (e *sdkError) Error() string { return fmt.Sprint("sdk: status ", e.StatusCode) }

// methodError has it in a method.
type methodError int

func (e methodError) Error() string       { return "sdk" }
func (e methodError) HTTPStatusCode() int { return int(e) }

type netError struct{}

func (netError) Error() string   { return "net" }
func (netError) Timeout() bool   { return false }
func (netError) Temporary() bool { return false }

// judged is a call's surroundings: what a decorated function can reach.
type judged struct {
	t      *testing.T
	client *idem.Client
	cancel context.CancelFunc // of the caller
	ctx    context.Context    // of the attempt
}

// send sends a POST through the client's Transport to a server that answers
// with the status.
func (j judged) send(status int) error {
	req, _ := http.NewRequestWithContext(j.ctx, "POST", "http://shop.test/charges", nil)
	resp, err := (&http.Client{Transport: j.client.Transport(replies(status))}).Do(req)
	if err == nil {
		resp.Body.Close()
	}
	return err
}

// get sends a GET, which is not the intent's request.
func (j judged) get(status int) {
	req, _ := http.NewRequestWithContext(j.ctx, "GET", "http://shop.test/token", nil)
	resp, err := j.client.Transport(replies(status)).RoundTrip(req)
	if err != nil {
		j.t.Fatal(err)
	}
	resp.Body.Close()
}

// TestJudge is what a decorated function's error proves, and whether the call
// is repeated.
func TestJudge(t *testing.T) {
	as := func(o idem.Outcome) idem.Config {
		return idem.Config{Classify: func(err error) (idem.Outcome, bool) { return o, errors.Is(err, errBoom) }}
	}
	const all = 4 // attempts of a call that is repeated to its end
	for _, tt := range []struct {
		name     string
		cfg      idem.Config
		call     func(j judged) error
		outcome  idem.Outcome
		attempts int
		is       error
	}{
		{"no error", idem.Config{}, func(j judged) error { return nil }, idem.OutcomeExecuted, 1, nil},

		{"marked NotExecuted", idem.Config{}, func(j judged) error { return idem.NotExecuted(errBoom) }, idem.OutcomeNotExecuted, all, errBoom},
		{"marked Rejected", idem.Config{}, func(j judged) error { return idem.Rejected(errBoom) }, idem.OutcomeRejected, 1, errBoom},
		{"marked Unknown", idem.Config{}, func(j judged) error { return idem.Unknown(errBoom) }, idem.OutcomeUnknown, all, errBoom},
		{"marked nil", idem.Config{}, func(j judged) error { return idem.Rejected(nil) }, idem.OutcomeRejected, 1, idem.ErrRejected},
		{"wrapped mark", idem.Config{}, func(j judged) error { return fmt.Errorf("charge: %w", idem.Rejected(errBoom)) }, idem.OutcomeRejected, 1, errBoom},
		{"joined mark", idem.Config{}, func(j judged) error { return errors.Join(errBoom, idem.Rejected(io.EOF)) }, idem.OutcomeRejected, 1, errBoom},
		{"the outermost mark", idem.Config{}, func(j judged) error { return idem.Unknown(idem.Rejected(errBoom)) }, idem.OutcomeUnknown, all, errBoom},
		{"a mark over a status", idem.Config{}, func(j judged) error { return idem.Rejected(&sdkError{503}) }, idem.OutcomeRejected, 1, nil},
		{"a mark inside another call's error", idem.Config{}, func(j judged) error {
			_, err := idem.Do(j.ctx, j.client, idem.Intent{Scope: "mail", ID: "m1"}, answers(idem.Rejected(errBoom)).call)
			return err
		}, idem.OutcomeUnknown, 1, errBoom},

		{"Classify: NotExecuted", as(idem.OutcomeNotExecuted), func(j judged) error { return errBoom }, idem.OutcomeNotExecuted, all, errBoom},
		{"Classify: Rejected", as(idem.OutcomeRejected), func(j judged) error { return errBoom }, idem.OutcomeRejected, 1, errBoom},
		{"Classify: Unknown", as(idem.OutcomeUnknown), func(j judged) error { return errBoom }, idem.OutcomeUnknown, all, errBoom},
		{"Classify: Executed, without a result", as(idem.OutcomeExecuted), func(j judged) error { return errBoom }, idem.OutcomeExecuted, 1, idem.ErrResultNotRetained},
		{"Classify: InFlight is no failed attempt", as(idem.OutcomeInFlight), func(j judged) error { return errBoom }, idem.OutcomeInFlight, 1, idem.ErrInFlight},
		{"Classify does not know it", as(idem.OutcomeRejected), func(j judged) error { return io.ErrClosedPipe }, idem.OutcomeUnknown, 1, io.ErrClosedPipe},
		{"a mark over Classify", as(idem.OutcomeNotExecuted), func(j judged) error { return idem.Rejected(errBoom) }, idem.OutcomeRejected, 1, nil},
		{"Classify over a status", as(idem.OutcomeNotExecuted), func(j judged) error { return errors.Join(errBoom, &sdkError{400}) }, idem.OutcomeNotExecuted, all, nil},

		{"net error", idem.Config{}, func(j judged) error { return &net.OpError{Op: "read", Err: netError{}} }, idem.OutcomeUnknown, all, nil},
		{"io.ErrUnexpectedEOF", idem.Config{}, func(j judged) error { return fmt.Errorf("decode: %w", io.ErrUnexpectedEOF) }, idem.OutcomeUnknown, all, io.ErrUnexpectedEOF},
		{"B027 attempt timeout", idem.Config{}, func(j judged) error { <-j.ctx.Done(); return errBoom }, idem.OutcomeUnknown, all, errBoom},
		{"any other error", idem.Config{}, func(j judged) error { return errBoom }, idem.OutcomeUnknown, 1, errBoom},
		{"B026 a cancellation that is not the caller's", idem.Config{}, func(j judged) error { return context.Canceled }, idem.OutcomeUnknown, 1, context.Canceled},
		{"B026 a timeout that is not the caller's", idem.Config{}, func(j judged) error { return context.DeadlineExceeded }, idem.OutcomeUnknown, all, context.DeadlineExceeded},
		{"B027 the caller's cancellation", idem.Config{}, func(j judged) error { j.cancel(); <-j.ctx.Done(); return netError{} }, idem.OutcomeUnknown, 1, context.Canceled},

		{"a status without an exchange", idem.Config{}, func(j judged) error { return &sdkError{503} }, idem.OutcomeUnknown, 1, nil},
		{"… 400, too", idem.Config{}, func(j judged) error { return methodError(400) }, idem.OutcomeUnknown, 1, nil},
		{"… of a net error", idem.Config{}, func(j judged) error { return errors.Join(&sdkError{503}, netError{}) }, idem.OutcomeUnknown, 1, nil},
		{"no status in it", idem.Config{}, func(j judged) error { return errors.Join(methodError(0), netError{}) }, idem.OutcomeUnknown, all, nil},
		{"the exchange's 404", idem.Config{}, func(j judged) error { j.send(404); return &sdkError{404} }, idem.OutcomeRejected, 1, nil},
		{"the exchange's 404 in a method", idem.Config{}, func(j judged) error { j.send(404); return methodError(404) }, idem.OutcomeRejected, 1, nil},
		{"the exchange's 429", idem.Config{}, func(j judged) error { j.send(429); return &sdkError{429} }, idem.OutcomeNotExecuted, all, nil},
		{"the exchange's 503", idem.Config{}, func(j judged) error { j.send(503); return &sdkError{503} }, idem.OutcomeUnknown, all, nil},
		{"the exchange's 401", idem.Config{}, func(j judged) error { j.send(401); return &sdkError{401} }, idem.OutcomeNotExecuted, 1, nil},
		{"another status than the exchange's", idem.Config{}, func(j judged) error { j.send(200); return &sdkError{429} }, idem.OutcomeUnknown, 1, nil},
		{"the status of the last of two exchanges", idem.Config{}, func(j judged) error { j.get(200); j.send(429); return &sdkError{429} }, idem.OutcomeUnknown, 1, nil},
		{"the status of the first of two exchanges", idem.Config{}, func(j judged) error { j.send(429); j.get(200); return &sdkError{429} }, idem.OutcomeUnknown, 1, nil},
		{"an error after the exchange's 200", idem.Config{}, func(j judged) error { j.send(200); return errBoom }, idem.OutcomeUnknown, 1, errBoom},

		{"B072 panic", idem.Config{}, func(j judged) error { panic(errBoom) }, idem.OutcomeUnknown, 1, errBoom},
		{"panic with a mark", idem.Config{}, func(j judged) error { panic(idem.Rejected(errBoom)) }, idem.OutcomeUnknown, 1, errBoom},
		{"B073 Goexit", idem.Config{}, func(j judged) error { runtime.Goexit(); return nil }, idem.OutcomeUnknown, 1, idem.ErrGoexit},

		{"keyless, NotExecuted", idem.Config{Contract: idem.Keyless}, func(j judged) error { return idem.NotExecuted(errBoom) }, idem.OutcomeNotExecuted, all, errBoom},
		{"keyless, Unknown", idem.Config{Contract: idem.Keyless}, func(j judged) error { return idem.Unknown(errBoom) }, idem.OutcomeUnknown, 1, errBoom},
		{"keyless, attempt timeout", idem.Config{Contract: idem.Keyless}, func(j judged) error { <-j.ctx.Done(); return errBoom }, idem.OutcomeUnknown, 1, errBoom},
	} {
		for _, door := range []string{"Do", "Wrap", "Do with a store"} {
			t.Run(tt.name+"/"+door, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					cfg := tt.cfg
					if door == "Do with a store" {
						cfg.Store = newStore(t)
					}
					c := newClient(t, cfg)
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					calls := 0
					call := func(ctx context.Context, key idem.Key) (receipt, error) {
						calls++
						return receipt{"ch_1"}, tt.call(judged{t, c, cancel, ctx})
					}
					var res idem.Result[receipt]
					var err error
					if door == "Wrap" {
						res, err = idem.WrapResult(c, func(order) idem.Intent { return idem.Intent{Scope: "shop", ID: "o1"} },
							func(ctx context.Context, key idem.Key, _ order) (receipt, error) { return call(ctx, key) })(ctx, order{"o1", 42})
					} else {
						res, err = idem.Do(ctx, c, intent, call)
					}
					graceOver()
					if res.Outcome != tt.outcome {
						t.Errorf("outcome %v, want %v: %v", res.Outcome, tt.outcome, err)
					}
					if tt.outcome != idem.OutcomeInFlight && calls != tt.attempts {
						t.Errorf("%d attempts, want %d: %v", calls, tt.attempts, err)
					}
					if ctx.Err() == nil && res.Attempts != tt.attempts {
						t.Errorf("%d attempts reported, want %d", res.Attempts, tt.attempts)
					}
					if (err == nil) != (tt.outcome == idem.OutcomeExecuted && tt.is == nil) || tt.is != nil && !errors.Is(err, tt.is) {
						t.Errorf("error %v, want %v", err, tt.is)
					}
					if err == nil && res.Value.Charge != "ch_1" {
						t.Errorf("value %v", res.Value)
					}
				})
			})
		}
	}
}

// What was panicked with, and where, reaches the caller; so it does without a
// name, where the function runs on the caller's goroutine.
func TestPanicError(t *testing.T) {
	for _, in := range []idem.Intent{intent, {}} {
		_, err := idem.Do(t.Context(), newClient(t, idem.Config{}), in, func(context.Context, idem.Key) (int, error) { panic(errBoom) })
		wantOutcome(t, err, idem.OutcomeUnknown, errBoom)
		var p *idem.PanicError
		if !errors.As(err, &p) || p.Value != errBoom || len(p.Stack) == 0 {
			t.Errorf("%v", p)
		}
	}
}
