package idemtest_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemtest"
)

// TestFaults holds for each fault what reaches the server, what its caller
// sees, and what idem's client makes of it in one attempt.
func TestFaults(t *testing.T) {
	for _, tc := range []struct {
		fault   idemtest.Fault
		effects int   // at a server that knows nothing of keys
		answers []int // of that server
		status  int   // that the caller sees
		err     error // or the error
		outcome idem.Outcome
	}{
		{idemtest.Pass, 1, []int{201}, 201, nil, idem.OutcomeExecuted},
		{idemtest.Fault{}, 1, []int{201}, 201, nil, idem.OutcomeExecuted},
		{idemtest.Drop, 0, nil, 0, syscall.ECONNREFUSED, idem.OutcomeNotExecuted},
		{idemtest.LoseReply, 1, []int{201}, 0, io.EOF, idem.OutcomeUnknown},
		{idemtest.ResetAfterSend, 1, nil, 0, syscall.ECONNRESET, idem.OutcomeUnknown},
		{idemtest.HoldReply, 1, []int{201}, 0, nil, idem.OutcomeUnknown},
		{idemtest.Duplicate, 2, []int{201, 201}, 201, nil, idem.OutcomeExecuted},
		{idemtest.CutBody(0), 1, []int{201}, 201, io.ErrUnexpectedEOF, idem.OutcomeUnknown},
		{idemtest.CutBody(3), 1, []int{201}, 201, io.ErrUnexpectedEOF, idem.OutcomeUnknown},
		{idemtest.CutBody(1 << 20), 1, []int{201}, 201, io.ErrUnexpectedEOF, idem.OutcomeUnknown},
		{idemtest.StatusBefore(503), 0, nil, 503, nil, idem.OutcomeUnknown},
		{idemtest.StatusAfter(502), 1, []int{201}, 502, nil, idem.OutcomeUnknown},
		{idemtest.StatusAfter(504), 1, []int{201}, 504, nil, idem.OutcomeUnknown},
		{idemtest.TooManyRequests(time.Second), 0, nil, 429, nil, idem.OutcomeNotExecuted},
	} {
		t.Run(tc.fault.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var ledger idemtest.Ledger
				base := servePipes(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					body, err := io.ReadAll(r.Body)
					time.Sleep(time.Second) // ResetAfterSend does not wait for it
					ledger.Record(r.Header.Get("Idempotency-Key"), string(body), err)
					w.WriteHeader(http.StatusCreated)
					_, _ = io.WriteString(w, "charged")
				}))
				tr := idemtest.NewTransport(base, tc.fault)
				client, err := idem.New(idem.Config{Policy: idem.Policy{Attempts: 1}})
				if err != nil {
					t.Fatal(err)
				}
				resp, err := client.Transport(tr).RoundTrip(newPost(t, "http://provider.test/charges", "order-17", "12 EUR"))
				if _, readErr := bodyOf(resp, err); resp != nil && readErr != nil {
					t.Errorf("the reply's body: %v", readErr)
				}
				// The server ends what it was sent, whether or not anybody waits.
				time.Sleep(2 * time.Second)

				outcome := idem.OutcomeExecuted
				var failure *idem.Error
				if errors.As(err, &failure) {
					outcome = failure.Outcome
				}
				if outcome != tc.outcome {
					t.Errorf("outcome %v (%v), want %v", outcome, err, tc.outcome)
				}
				if tc.err != nil && !errors.Is(err, tc.err) {
					t.Errorf("error %v, want %v", err, tc.err)
				}
				if n := ledger.Count("order-17"); n != tc.effects {
					t.Errorf("%d effects, want %d", n, tc.effects)
				}
				for _, e := range ledger.Entries() {
					if e.Detail != "12 EUR <nil>" {
						t.Errorf("the server read %q", e.Detail)
					}
				}
				x := tr.Exchanges()[0]
				if x.Status != tc.status || !slices.Equal(x.Answers, tc.answers) {
					t.Errorf("the caller saw %d, the server answered %v, want %d and %v", x.Status, x.Answers, tc.status, tc.answers)
				}
			})
		})
	}
}

// A held reply ends with the attempt, not with the call.
func TestHoldReplyEndsWithTheAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := idemtest.NewTransport(answering, idemtest.HoldReply)
		client, err := idem.New(idem.Config{Policy: idem.Policy{AttemptTimeout: time.Second}})
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		resp, err := client.Transport(tr).RoundTrip(newPost(t, "http://provider.test/", "k", "x"))
		if body, err := bodyOf(resp, err); body != "x" || err != nil {
			t.Errorf("got %q, %v", body, err)
		}
		if x := tr.Exchanges(); len(x) != 2 || x[0].Err == nil || time.Since(start) < time.Second {
			t.Errorf("after %v: %+v", time.Since(start), x)
		}
	})
}

func TestHoldReplyNeedsAnEnd(t *testing.T) {
	req := newPost(t, "http://provider.test/", "k", "x").WithContext(context.Background())
	if _, err := idemtest.NewTransport(answering, idemtest.HoldReply).RoundTrip(req); err == nil {
		t.Error("a reply is held for ever")
	}
}

func TestHoldReplyTellsTheCause(t *testing.T) {
	cause := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	base := roundTripFunc(func(req *http.Request) (*http.Response, error) {
		cancel(cause)
		return answering(req)
	})
	req := newPost(t, "http://provider.test/", "k", "x").WithContext(ctx)
	if _, err := idemtest.NewTransport(base, idemtest.HoldReply).RoundTrip(req); err != cause {
		t.Errorf("got %v, want the context's cause", err)
	}
}

// What the server's side does wrong by itself is not hidden by a fault.
func TestFaultsKeepTheBasesError(t *testing.T) {
	broken := errors.New("no route")
	base := roundTripFunc(func(*http.Request) (*http.Response, error) { return nil, broken })
	for _, f := range []idemtest.Fault{idemtest.Pass, idemtest.LoseReply, idemtest.ResetAfterSend, idemtest.HoldReply,
		idemtest.Duplicate, idemtest.CutBody(1), idemtest.StatusAfter(502)} {
		if _, err := idemtest.NewTransport(base, f).RoundTrip(newPost(t, "http://provider.test/", "k", "x")); err != broken {
			t.Errorf("%v: got %v", f, err)
		}
	}
}

func TestTooManyRequestsAsksToWait(t *testing.T) {
	for wait, want := range map[time.Duration]http.Header{
		2 * time.Second:         {"Retry-After": {"2"}},
		1500 * time.Millisecond: {"Retry-After-Ms": {"1500"}},
	} {
		resp, err := idemtest.NewTransport(nil, idemtest.TooManyRequests(wait)).RoundTrip(newPost(t, "http://provider.test/", "", "x"))
		if _, err := bodyOf(resp, err); err != nil {
			t.Fatal(err)
		}
		for name, values := range want {
			if !slices.Equal(resp.Header[name], values) {
				t.Errorf("%v: %s is %v, want %v", wait, name, resp.Header[name], values)
			}
		}
	}
}

// The second delivery of a duplicate ends with the first one's context.
func TestDuplicateEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		base := roundTripFunc(func(req *http.Request) (*http.Response, error) {
			<-req.Context().Done()
			return nil, req.Context().Err()
		})
		req := newPost(t, "http://provider.test/", "k", "x").WithContext(ctx)
		if _, err := idemtest.NewTransport(base, idemtest.Duplicate).RoundTrip(req); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
	})
}
