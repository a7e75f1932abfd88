package idem_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"

	"github.com/idem-go/idem"
)

// wireStatusError is how SDKs report a status.
type wireStatusError struct{ StatusCode int }

func (e *wireStatusError) Error() string { return fmt.Sprintf("the gateway said %d", e.StatusCode) }

// wireCharge is a function as applications write it: it sends one POST, and
// returns the body of a 2xx.
func wireCharge(hc *http.Client, url string) func(context.Context, idem.Key) (string, error) {
	return func(ctx context.Context, _ idem.Key) (string, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(wireBody))
		if err != nil {
			return "", err
		}
		resp, err := hc.Do(req)
		if err != nil {
			return "", err
		}
		defer resp.Body.Close()
		if resp.StatusCode >= 300 {
			return "", &wireStatusError{resp.StatusCode}
		}
		body, err := io.ReadAll(resp.Body)
		return string(body), err
	}
}

// wireDo is a client, an http.Client over its Transport, and what it reports.
type wireDo struct {
	*idem.Client
	hc   *http.Client
	seen *wireObserver
}

func wireDoClient(t *testing.T, cfg idem.Config, base http.RoundTripper) wireDo {
	t.Helper()
	o := &wireObserver{}
	cfg.Observer, cfg.Scope = o, "s"
	if cfg.Policy == (idem.Policy{}) {
		cfg.Policy = wirePolicy
	}
	c, err := idem.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return wireDo{c, &http.Client{Transport: c.Transport(base)}, o}
}

// Within Do a request is one keyed attempt: what repeats it is Do.
func TestWireWithinDo(t *testing.T) {
	in := idem.Intent{ID: "order-1"}
	key := idem.DeriveKey("intent", "s", "order-1")
	for _, row := range []struct {
		name     string
		steps    []wireStep
		contract idem.Contract
		outcome  idem.Outcome
		requests int
		is       error
	}{
		{name: "B051 attempts do not multiply", steps: []wireStep{wireReply(503, "")}, outcome: idem.OutcomeUnknown, requests: wireTries, is: idem.ErrOutcomeUnknown},
		{name: "B051 nor without an answer", steps: []wireStep{wireReset}, outcome: idem.OutcomeUnknown, requests: wireTries, is: idem.ErrOutcomeUnknown},
		{name: "unknown, then done", steps: []wireStep{wireEOF, wireReply(502, ""), wireReply(200, "charged")}, outcome: idem.OutcomeExecuted, requests: 3},
		{name: "not executed, then done", steps: []wireStep{wireReply(429, ""), wireReply(200, "charged")}, outcome: idem.OutcomeExecuted, requests: 2},
		{name: "in flight, then done", steps: []wireStep{wireProblem(409, "in-flight"), wireReply(200, "charged")}, outcome: idem.OutcomeExecuted, requests: 2},
		{name: "rejected", steps: []wireStep{wireReply(422, "")}, outcome: idem.OutcomeRejected, requests: 1, is: idem.ErrRejected},
		{name: "a guard", steps: []wireStep{wireReply(403, "")}, outcome: idem.OutcomeNotExecuted, requests: 1, is: idem.ErrNotExecuted},
		{name: "mismatch", steps: []wireStep{wireProblem(422, "key-reused")}, outcome: idem.OutcomeUnknown, requests: 1, is: idem.ErrPayloadMismatch},
		{name: "not retained", steps: []wireStep{wireProblem(409, "response-not-retained")}, outcome: idem.OutcomeExecuted, requests: 1, is: idem.ErrResultNotRetained},
		{name: "executed, and the function takes it for an error", outcome: idem.OutcomeExecuted, requests: 1, is: idem.ErrResultNotRetained,
			steps: []wireStep{wireReply(409, `{"code":"paid"}`)}, contract: idem.Contract{Answers: []idem.Answer{{Code: "paid", Means: idem.MeansExecuted}}}},
		{name: "B031 a body that breaks off", steps: []wireStep{wireRaw("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nchar"), wireReply(200, "charged")}, outcome: idem.OutcomeExecuted, requests: 2},
		{name: "redirected", steps: []wireStep{wireReply(307, "", "Location: /moved"), wireReply(200, "charged")}, outcome: idem.OutcomeExecuted, requests: 2},
		{name: "refused behind a redirect", steps: []wireStep{wireReply(307, "", "Location: /moved"), wireReply(422, "")}, outcome: idem.OutcomeRejected, requests: 2, is: idem.ErrRejected},
	} {
		t.Run(row.name, func(t *testing.T) {
			srv := wireServe(t, row.steps...)
			d := wireDoClient(t, idem.Config{Contract: row.contract}, wireBase(t))
			res, err := idem.Do(t.Context(), d.Client, in, wireCharge(d.hc, srv.URL))
			if res.Outcome != row.outcome || (row.is == nil) != (err == nil) || !errors.Is(err, row.is) || len(srv.requests()) != row.requests {
				t.Fatalf("%v after %d requests: %v; want %v after %d: %v", res.Outcome, len(srv.requests()), err, row.outcome, row.requests, row.is)
			}
			if got := srv.sameKey(t, row.requests, wireBody); got != key || res.Key != key || res.WireSends != row.requests {
				t.Errorf("key %q on the wire, %q and %d sends in the result, want %q", got, res.Key, res.WireSends, key)
			}
			if err == nil && res.Value != "charged" {
				t.Errorf("value %q", res.Value)
			}
			if n := len(d.seen.events); n != 1 {
				t.Errorf("%d events, want that of Do alone", n)
			}
		})
	}
	post := func(ctx context.Context, hc *http.Client, url, body string) (int, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
		if err != nil {
			return 0, err
		}
		resp, err := hc.Do(req)
		if err != nil {
			return 0, err
		}
		return resp.StatusCode, resp.Body.Close()
	}
	t.Run("another request under the key is refused", func(t *testing.T) {
		srv := wireServe(t, wireReply(200, ""))
		d := wireDoClient(t, idem.Config{}, wireBase(t))
		_, err := idem.Do(t.Context(), d.Client, in, func(ctx context.Context, _ idem.Key) (int, error) {
			if _, err := post(ctx, d.hc, srv.URL+"/charges", wireBody); err != nil {
				return 0, err
			}
			return post(ctx, d.hc, srv.URL+"/receipts", wireBody)
		})
		if !errors.Is(err, idem.ErrPayloadMismatch) || !errors.Is(err, idem.ErrOutcomeUnknown) {
			t.Errorf("%v", err)
		}
		for _, r := range srv.requests() {
			if r.URL.Path != "/charges" || r.Keys[0] != string(key) {
				t.Errorf("%s was sent with the keys %q", r.URL, r.Keys)
			}
		}
	})
	t.Run("another request in the next attempt is refused", func(t *testing.T) {
		srv := wireServe(t, wireReply(503, ""))
		d := wireDoClient(t, idem.Config{}, wireBase(t))
		n := 0
		_, err := idem.Do(t.Context(), d.Client, in, func(ctx context.Context, _ idem.Key) (int, error) {
			n++
			status, err := post(ctx, d.hc, srv.URL, fmt.Sprintf(`{"try":%d}`, n))
			if err == nil && status != 200 {
				err = &wireStatusError{status}
			}
			return status, err
		})
		if !errors.Is(err, idem.ErrPayloadMismatch) || !errors.Is(err, idem.ErrOutcomeUnknown) || len(srv.requests()) != 1 {
			t.Errorf("%v after %d requests", err, len(srv.requests()))
		}
	})
	t.Run("side requests go out once, as they are", func(t *testing.T) {
		ok := wireReply(200, "charged")
		srv := wireServe(t, ok, ok, wireReply(503, ""), ok)
		d := wireDoClient(t, idem.Config{}, wireBase(t))
		side := in
		side.Match = func(r *http.Request) bool { return r.URL.Path == "/charges" }
		res, err := idem.Do(t.Context(), d.Client, side, func(ctx context.Context, _ idem.Key) (string, error) {
			if _, err := post(ctx, d.hc, srv.URL+"/token", fmt.Sprint(len(srv.requests()))); err != nil {
				return "", err
			}
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, srv.URL+"/rates", nil)
			if err != nil {
				return "", err
			}
			resp, err := d.hc.Do(req)
			if err != nil {
				return "", err
			}
			resp.Body.Close()
			text, err := wireCharge(d.hc, srv.URL+"/charges")(ctx, "")
			if err != nil {
				err = idem.Unknown(err) // of three exchanges only we know whose it is
			}
			return text, err
		})
		if err != nil || res.Value != "charged" || res.Attempts != 2 {
			t.Fatalf("%q after %d attempts: %v", res.Value, res.Attempts, err)
		}
		for i, r := range srv.requests() {
			path, keys := []string{"/token", "/rates", "/charges"}[i%3], []int{0, 0, 1}[i%3]
			if r.URL.Path != path || len(r.Keys) != keys {
				t.Errorf("request %d went to %s with the keys %q", i+1, r.URL, r.Keys)
			}
		}
	})
	t.Run("a side request that finds nobody", func(t *testing.T) {
		srv := wireServe(t, wireReply(200, "charged"))
		base := wireBase(t)
		n := 0
		d := wireDoClient(t, idem.Config{}, wireFunc(func(req *http.Request) (*http.Response, error) {
			if n++; n < 3 {
				return nil, wireOpError(syscall.ECONNREFUSED)
			}
			return base.RoundTrip(req)
		}))
		side := in
		side.Match = func(r *http.Request) bool { return r.URL.Path == "/charges" }
		res, err := idem.Do(t.Context(), d.Client, side, func(ctx context.Context, _ idem.Key) (string, error) {
			if _, err := post(ctx, d.hc, srv.URL+"/token", ""); err != nil {
				return "", err
			}
			return wireCharge(d.hc, srv.URL+"/charges")(ctx, "")
		})
		if err != nil || res.Attempts != 3 {
			t.Errorf("%v after %d attempts: %v", res.Outcome, res.Attempts, err)
		}
	})
	t.Run("what a side request was answered is not the intent's result", func(t *testing.T) {
		srv := wireServe(t, wireReply(200, "nonsense"))
		d := wireDoClient(t, idem.Config{}, wireBase(t))
		side := in
		side.Match = func(r *http.Request) bool { return false }
		res, err := idem.Do(t.Context(), d.Client, side, func(ctx context.Context, _ idem.Key) (string, error) {
			if _, err := post(ctx, d.hc, srv.URL+"/quote", ""); err != nil {
				return "", err
			}
			return "", &wireStatusError{200} // it could not be decoded
		})
		if err == nil || res.Outcome != idem.OutcomeUnknown {
			t.Errorf("%v: %v", res.Outcome, err)
		}
	})
	t.Run("the status of a second service proves nothing", func(t *testing.T) {
		srv := wireServe(t, wireReply(200, "charged"), wireReply(429, ""))
		d := wireDoClient(t, idem.Config{}, wireBase(t))
		side := in
		side.Match = func(r *http.Request) bool { return r.URL.Path == "/charges" }
		res, err := idem.Do(t.Context(), d.Client, side, func(ctx context.Context, _ idem.Key) (string, error) {
			if _, err := wireCharge(d.hc, srv.URL+"/charges")(ctx, ""); err != nil {
				return "", err
			}
			return wireCharge(d.hc, srv.URL+"/mails")(ctx, "")
		})
		if res.Outcome != idem.OutcomeUnknown || len(srv.requests()) != 2 {
			t.Errorf("%v after %d requests, want unknown and no retry: %v", res.Outcome, len(srv.requests()), err)
		}
	})
	t.Run("steps with intents of their own", func(t *testing.T) {
		srv := wireServe(t, wireReply(200, "reserved"), wireReply(503, ""), wireReply(200, "reserved"), wireReply(200, "captured"))
		d := wireDoClient(t, idem.Config{}, wireBase(t))
		res, err := idem.Do(t.Context(), d.Client, in, func(ctx context.Context, key idem.Key) (string, error) {
			var text string
			for _, step := range []string{"reserve", "capture"} {
				ctx := idem.WithIntent(ctx, idem.Intent{Key: key.Child(step)})
				var err error
				if text, err = wireCharge(d.hc, srv.URL+"/"+step)(ctx, ""); err != nil {
					return "", idem.Unknown(err)
				}
			}
			return text, nil
		})
		if err != nil || res.Value != "captured" || res.Attempts != 2 || res.WireSends != 4 {
			t.Fatalf("%q after %d attempts and %d sends: %v", res.Value, res.Attempts, res.WireSends, err)
		}
		for i, r := range srv.requests() {
			if want := key.Child([]string{"reserve", "capture"}[i%2]); len(r.Keys) != 1 || r.Keys[0] != string(want) {
				t.Errorf("request %d has the keys %q, want %q", i+1, r.Keys, want)
			}
		}
	})
	t.Run("a step of its own is an exchange of the attempt", func(t *testing.T) {
		for _, row := range []struct {
			steps   []wireStep
			outcome idem.Outcome
			n       int
		}{
			{[]wireStep{wireReply(503, ""), wireReply(200, "charged")}, idem.OutcomeExecuted, 2}, // repeated by Do
			{[]wireStep{wireReply(422, "")}, idem.OutcomeRejected, 1},
			{[]wireStep{wireReply(429, "")}, idem.OutcomeNotExecuted, wireTries},
		} {
			srv := wireServe(t, row.steps...)
			d := wireDoClient(t, idem.Config{}, wireBase(t))
			res, err := idem.Do(t.Context(), d.Client, in, func(ctx context.Context, key idem.Key) (string, error) {
				return wireCharge(d.hc, srv.URL)(idem.WithIntent(ctx, idem.Intent{Key: key.Child("x")}), "")
			})
			if res.Outcome != row.outcome || len(srv.requests()) != row.n {
				t.Errorf("%v after %d requests, want %v after %d: %v", res.Outcome, len(srv.requests()), row.outcome, row.n, err)
			}
		}
		// A step that was done is not the whole.
		done := wireDoClient(t, idem.Config{}, wireBase(t))
		for _, err := range []error{&wireStatusError{200}, io.ErrUnexpectedEOF} {
			srv := wireServe(t, wireReply(200, "charged"))
			res, got := idem.Do(t.Context(), done.Client, idem.Intent{}, func(ctx context.Context, key idem.Key) (string, error) {
				if _, err := wireCharge(done.hc, srv.URL)(idem.WithIntent(ctx, idem.Intent{Key: key.Child("x")}), ""); err != nil {
					return "", err
				}
				return "", err
			})
			if res.Outcome != idem.OutcomeUnknown || !errors.Is(got, err) {
				t.Errorf("%v: %v", res.Outcome, got)
			}
		}
		// A step that was done, and then a refusal by somebody else.
		srv := wireServe(t, wireReply(200, "charged"), wireReply(429, ""))
		d := wireDoClient(t, idem.Config{}, wireBase(t))
		res, err := idem.Do(t.Context(), d.Client, in, func(ctx context.Context, key idem.Key) (string, error) {
			if _, err := wireCharge(d.hc, srv.URL)(idem.WithIntent(ctx, idem.Intent{Key: key.Child("x")}), ""); err != nil {
				return "", err
			}
			return wireCharge(d.hc, srv.URL)(ctx, "")
		})
		if res.Outcome != idem.OutcomeUnknown {
			t.Errorf("%v: %v", res.Outcome, err)
		}
	})
}
