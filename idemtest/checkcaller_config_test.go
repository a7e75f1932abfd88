package idemtest_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemtest"
)

func TestCheckCallerConfig(t *testing.T) {
	for name, wrong := range map[string]idemtest.CallerCheck{
		"Call is nil":                {},
		"Contract.Unkeyed":           {Call: noKey, Contract: idem.Keyless},
		"Contract.Field":             {Call: noKey, Contract: idem.Contract{Field: "a..b"}},
		"MaxSends is -1":             {Call: noKey, MaxSends: -1},
		"Slow is -1s":                {Call: noKey, Slow: -time.Second},
		`Except names "no key"`:      {Call: noKey, Except: []string{"no key"}},
		"the rules are nothing-sent": {Call: noKey, Except: []string{""}},
	} {
		r := checkCaller(t, wrong)
		if wantRules := r.rules(); len(r.reports) != 1 || wantRules[0] != "config" || !strings.Contains(r.reports[0], name) {
			t.Errorf("%s: got %q", name, r.reports)
		}
	}
}

func TestCheckCallerExcept(t *testing.T) {
	wantRules(t, checkCaller(t, idemtest.CallerCheck{Call: noKey, Except: []string{"no-key"}}))
	wantRules(t, checkCaller(t, idemtest.CallerCheck{Call: nestedLoops, MaxSends: 16}))
}

// TestCheckCallerScenarios looks at what a caller meets: the first call of each
// intent meets one kind of fault, the others none.
func TestCheckCallerScenarios(t *testing.T) {
	got := make(map[int][]string)
	r := checkCaller(t, idemtest.CallerCheck{Slow: time.Minute, Call: func(ctx context.Context, hc *http.Client, url string, n int) error {
		began := time.Now()
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(orderBody(n)))
		if err != nil {
			return err
		}
		req.Header.Set("Idempotency-Key", orderName(n))
		resp, err := hc.Do(req)
		if err != nil {
			got[n] = append(got[n], errors.Unwrap(err).Error())
			return err
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		saw := resp.Status[:3] + " " + strings.SplitN(string(body), "\n", 2)[0]
		if err != nil {
			saw += " " + err.Error()
		}
		if d := time.Since(began); d > 0 {
			saw += " after " + d.String()
		}
		got[n] = append(got[n], saw)
		if err == nil && resp.StatusCode >= 300 {
			err = errors.New(resp.Status)
		}
		return err
	}})
	wantRules(t, r)
	for i, want := range []string{
		`201 {"id":"op_1"}; 201 {"id":"op_1"}`,
		`EOF; 201 {"id":"op_2"}`,
		`503 <html><body><h1>503 Service Unavailable</h1></body></html>; 201 {"id":"op_3"}`,
		`500 <html><body><h1>500 Internal Server Error</h1></body></html>; 201 {"id":"op_4"}`,
		`201 { unexpected EOF; 201 {"id":"op_5"}`,
		`201 {"id":"op_6"} after 1m0s; 201 {"id":"op_6"}`,
		`dial tcp: connect: connection refused; 201 {"id":"op_7"}`,
		`409 <html><body><h1>409 Conflict</h1></body></html>; 201 {"id":"op_8"}`,
	} {
		if all := strings.Join(got[i+1], "; "); all != want {
			t.Errorf("intent %d met %s, want %s", i+1, all, want)
		}
		delete(got, i+1)
	}
	if len(got) > 0 {
		t.Errorf("more was met: %v", got)
	}
}

// TestCheckCallerTimeout: a slow answer ends with the caller's own timeout, and
// the work is done all the same.
func TestCheckCallerTimeout(t *testing.T) {
	ended := 0
	r := checkCaller(t, idemtest.CallerCheck{Call: func(ctx context.Context, hc *http.Client, url string, n int) error {
		hc.Timeout = time.Second
		began := time.Now()
		err := sendOnce(ctx, hc, url, orderName(n), orderBody(n))
		if errors.Is(err, context.DeadlineExceeded) && time.Since(began) == hc.Timeout {
			ended++
		}
		return err
	}})
	wantRules(t, r)
	if ended != 1 {
		t.Errorf("%d sends ended with the caller's timeout, want 1", ended)
	}
}

// TestCheckCallerWithoutContext: requests that have lost the call's context
// belong to the call that runs.
func TestCheckCallerWithoutContext(t *testing.T) {
	var kept *http.Client // as an SDK keeps the one that it was made with
	call := func(_ context.Context, hc *http.Client, url string, n int) error {
		if kept == nil {
			kept = hc
		}
		return noKeyInRetries(context.Background(), kept, url, n)
	}
	r := checkCaller(t, idemtest.CallerCheck{Call: call})
	wantRules(t, r, "no-key")
	if want := "send 2 of call 1 for intent 2"; !strings.Contains(r.reports[0], want) {
		t.Errorf("no word of %s:\n%s", want, r.reports[0])
	}
}

// TestCheckCallerContext: where the test has a context, calls have it too.
func TestCheckCallerContext(t *testing.T) {
	type mark struct{}
	r := &contextReports{ctx: context.WithValue(t.Context(), mark{}, true)}
	marked := 0
	idemtest.CheckCaller(r, idemtest.CallerCheck{Slow: time.Millisecond, Call: func(ctx context.Context, hc *http.Client, url string, n int) error {
		if ctx.Value(mark{}) == true {
			marked++
		}
		return noRetries(ctx, hc, url, n)
	}})
	if marked == 0 || len(r.reports) > 0 {
		t.Errorf("%d calls had the test's context; reports: %q", marked, r.reports)
	}
}

type contextReports struct {
	callerReports
	ctx context.Context
}

func (r *contextReports) Context() context.Context { return r.ctx }
