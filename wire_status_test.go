package idem_test

import (
	"errors"
	"fmt"
	"net/http"
	"testing"

	"github.com/idem-go/idem"
)

// wireVerdict is what one status proves, and what is done about it.
type wireVerdict struct {
	outcome  idem.Outcome
	requests int
	returned bool // as a response, not within an *Error
}

// Every status, with a key, without one, and for a method that may be repeated
// without one. An unkeyed caller gets the last reply as it is.
func TestWireStatus(t *testing.T) {
	executed := wireVerdict{idem.OutcomeExecuted, 1, true}
	rejected := wireVerdict{idem.OutcomeRejected, 1, true}
	guarded := wireVerdict{idem.OutcomeNotExecuted, 1, true}
	unknown := wireVerdict{idem.OutcomeUnknown, 1, true}
	type row struct {
		statuses            []int
		keyed, keyless, get wireVerdict
	}
	for _, row := range []row{
		{statuses: []int{200, 201, 202, 203, 204, 205, 206, 207, 226, 299}, keyed: executed, keyless: executed, get: executed},
		{statuses: []int{400, 402, 404, 405, 406, 410, 411, 412, 413, 414, 415, 416, 417, 418, 422, 423, 424, 426, 428, 431, 451, 499, 501, 505, 511},
			keyed: rejected, keyless: rejected, get: rejected},
		{statuses: []int{401, 403, 407}, keyed: guarded, keyless: guarded, get: guarded},
		{statuses: []int{408, 500, 502, 503, 504, 506, 507, 508, 510, 599, 600, 999},
			keyed:   wireVerdict{idem.OutcomeUnknown, wireTries, false},
			keyless: unknown,
			get:     wireVerdict{idem.OutcomeUnknown, wireTries, true}},
		{statuses: []int{421, 429},
			keyed:   wireVerdict{idem.OutcomeNotExecuted, wireTries, false},
			keyless: wireVerdict{idem.OutcomeNotExecuted, wireTries, true},
			get:     wireVerdict{idem.OutcomeNotExecuted, wireTries, true}},
		{statuses: []int{409}, // a random key of this one call: nobody else can hold it
			keyed: wireVerdict{idem.OutcomeRejected, wireWaits, true}, keyless: rejected, get: rejected},
		{statuses: []int{425},
			keyed:   wireVerdict{idem.OutcomeInFlight, wireWaits, false},
			keyless: wireVerdict{idem.OutcomeNotExecuted, wireTries, true},
			get:     wireVerdict{idem.OutcomeNotExecuted, wireTries, true}},
	} {
		for _, status := range row.statuses {
			for _, how := range []struct {
				name, method string
				contract     idem.Contract
				keyed        bool
				want         wireVerdict
			}{
				{"with key", http.MethodPost, idem.Contract{}, true, row.keyed},
				{"keyless", http.MethodPost, idem.Keyless, false, row.keyless},
				{"GET", http.MethodGet, idem.Contract{}, false, row.get},
			} {
				t.Run(fmt.Sprintf("%d/%s", status, how.name), func(t *testing.T) {
					body := "because"
					if status == http.StatusNoContent {
						body = ""
					}
					srv := wireServe(t, wireReply(status, body, "X-Reply: yes"))
					w := wireClient(t, idem.Config{Contract: how.contract}, wireBase(t))
					sent := wireBody
					if how.method == http.MethodGet {
						sent = ""
					}
					res := w.do(t, wireRequestTo(t, how.method, srv.URL, sent))
					got := wireVerdict{res.outcome(), len(srv.requests()), res.resp != nil}
					if got != how.want {
						t.Fatalf("got %+v, want %+v: %v", got, how.want, res.err)
					}
					if res.event.WireSends != how.want.requests || len(res.event.Attempts) != how.want.requests {
						t.Errorf("%d sends and %d attempts in the event, want %d", res.event.WireSends, len(res.event.Attempts), how.want.requests)
					}
					if how.keyed {
						if key := srv.sameKey(t, how.want.requests, wireBody); res.event.KeyDigest != key.Digest() {
							t.Errorf("the event has the key digest %q, want that of %q", res.event.KeyDigest, key)
						}
					} else if r := srv.requests()[0]; len(r.Keys) != 0 {
						t.Errorf("the keys %q went out", r.Keys)
					}
					if res.resp != nil {
						if res.resp.StatusCode != status || res.body != body || res.resp.Header.Get("X-Reply") != "yes" {
							t.Errorf("response %d %q %v", res.resp.StatusCode, res.body, res.resp.Header)
						}
						return
					}
					var last *idem.ResponseError
					if !errors.As(res.err, &last) || last.StatusCode != status || string(last.Body) != body || last.Header.Get("X-Reply") != "yes" {
						t.Errorf("the error keeps the reply %+v", last)
					}
				})
			}
		}
	}
}

// B029: what is done about a fault depends on the method and on the key.
func TestWireMatrix(t *testing.T) {
	refused := wireStep(nil)
	for _, fault := range []struct {
		name    string
		step    wireStep
		unkeyed bool // repeated even where the request can't be
	}{
		{"dial refused", refused, true},
		{"B028 reset after write", wireReset, false},
		{"header timeout", wireStall, false},
		{"503", wireReply(503, ""), false},
		{"504", wireReply(504, ""), false},
		{"429", wireReply(429, ""), true},
	} {
		for _, method := range []string{http.MethodGet, http.MethodPut, http.MethodPost} {
			for _, keyed := range []bool{true, false} {
				t.Run(fmt.Sprintf("%s/%s/key %v", fault.name, method, keyed), func(t *testing.T) {
					policy := wirePolicy
					if fault.name == "header timeout" {
						policy.AttemptTimeout = wireMoment
					}
					cfg := idem.Config{Policy: policy}
					if !keyed {
						cfg.Contract = idem.Keyless
					}
					srv := wireServe(t, fault.step)
					base := wireBase(t)
					if fault.step == nil {
						base.DialContext = wireRefuse
					}
					req := wireRequestTo(t, method, srv.URL, map[bool]string{true: wireBody}[method != http.MethodGet])
					if keyed {
						req.Header.Set("Idempotency-Key", "k-29")
					}
					want := 1
					if keyed || fault.unkeyed || method != http.MethodPost {
						want = wireTries
					}
					if res := wireClient(t, cfg, base).do(t, req); res.attempts() != want {
						t.Errorf("%d attempts, want %d: %v", res.attempts(), want, res.err)
					}
					for _, r := range srv.requests() {
						if keyed != (len(r.Keys) == 1 && r.Keys[0] == "k-29") {
							t.Errorf("keys %q", r.Keys)
						}
					}
				})
			}
		}
	}
}

// B037: what the server refuses is not asked again.
func TestWireNoBursts(t *testing.T) {
	for _, status := range []int{400, 401, 403, 404, 422} {
		srv := wireServe(t, wireReply(status, "", "Retry-After: 0"))
		w := wireClient(t, idem.Config{Contract: idem.Contract{StoresErrors: true}}, wireBase(t))
		if res := w.do(t, wirePost(t, srv.URL)); res.attempts() != 1 || len(srv.requests()) != 1 {
			t.Errorf("%d: %d attempts", status, res.attempts())
		}
	}
}
