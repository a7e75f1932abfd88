package idem_test

import (
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/idem-go/idem"
)

// wireProblem is an answer of a server that names what is wrong.
func wireProblem(status int, code string, headers ...string) wireStep {
	return wireReply(status, `{"type":"https://errors.example/`+code+`","title":"t","code":"`+code+`"}`, append(headers, "Content-Type: application/problem+json")...)
}

const (
	wireReplayed = "Idempotent-Replayed: true"
	wireFirst    = "Idempotent-Replayed: false"
)

// wireScript is a sequence of answers, the last of which is repeated, and what
// becomes of it.
type wireScript struct {
	name     string
	contract idem.Contract
	named    bool // a key that the caller holds, instead of a random one
	steps    []wireStep
	outcome  idem.Outcome
	requests int
	status   int   // of the response, or of the reply that the error keeps
	is       error // what the error matches; nil: a response is returned
	source   idem.Source
	slow     bool // an attempt ends by its timeout
}

func wireRunScripts(t *testing.T, scripts []wireScript) {
	t.Helper()
	for _, s := range scripts {
		t.Run(s.name, func(t *testing.T) {
			srv := wireServe(t, s.steps...)
			policy := wirePolicy
			if s.slow {
				policy.AttemptTimeout = 10 * wireMoment
			}
			req := wirePost(t, srv.URL)
			if s.named {
				req.Header.Set("Idempotency-Key", "order-7")
			}
			res := wireClient(t, idem.Config{Contract: s.contract, Policy: policy}, wireBase(t)).do(t, req)
			if res.outcome() != s.outcome || len(srv.requests()) != s.requests || res.lastStatus() != s.status {
				t.Fatalf("%v after %d requests with a final %d, want %v after %d with %d: %v",
					res.outcome(), len(srv.requests()), res.lastStatus(), s.outcome, s.requests, s.status, res.err)
			}
			if (s.is == nil) != (res.err == nil) || s.is != nil && !res.is(s.is) {
				t.Errorf("error %v, want %v", res.err, s.is)
			}
			if res.resp != nil && idem.ReportOf(res.resp).Source != s.source {
				t.Errorf("source %v, want %v", idem.ReportOf(res.resp).Source, s.source)
			}
			if !s.contract.Unkeyed {
				srv.sameKey(t, s.requests, wireBody)
			}
		})
	}
}

func TestWireAnswers(t *testing.T) {
	own := idem.Contract{Name: "own", ReplayHeader: "X-Replay", RetryHeader: "X-Try-Again", Answers: []idem.Answer{
		{Status: 200, Code: "still_running", Means: idem.MeansInFlight}, // GraphQL
		{Status: 200, Code: "KEY_MISMATCH", Means: idem.MeansMismatch},
		{Status: 429, Code: "concurrent", Means: idem.MeansInFlight},
		{Status: 423, Means: idem.MeansInFlight},
		{Status: 400, Code: "7001", Means: idem.MeansNotExecuted},
		{Status: 409, Code: "already_paid", Means: idem.MeansExecuted},
		{Status: 409, Code: "gone", Means: idem.MeansNotRetained},
		{Status: 409, Means: idem.MeansRejected},
		{Code: "nobody_knows", Means: idem.MeansUnknown},
	}}
	done := wireReply(201, "charged")
	wireRunScripts(t, []wireScript{
		// The problem codes of the IETF contract, and of our own server half.
		{name: "in flight, then done", steps: []wireStep{wireProblem(409, "in-flight"), wireProblem(409, "in-flight"), done},
			outcome: idem.OutcomeExecuted, requests: 3, status: 201, source: idem.SourceExecuted},
		{name: "in flight for ever", steps: []wireStep{wireProblem(409, "in-flight")},
			outcome: idem.OutcomeInFlight, requests: wireWaits, status: 409, is: idem.ErrInFlight},
		{name: "in flight by 425", steps: []wireStep{wireProblem(425, "in-flight"), done},
			outcome: idem.OutcomeExecuted, requests: 2, status: 201, source: idem.SourceExecuted},
		{name: "recovery required", steps: []wireStep{wireProblem(409, "recovery-required")},
			outcome: idem.OutcomeUnknown, requests: 1, status: 409, is: idem.ErrOutcomeUnknown},
		{name: "response not retained", steps: []wireStep{wireProblem(409, "response-not-retained")},
			outcome: idem.OutcomeExecuted, requests: 1, status: 409, is: idem.ErrResultNotRetained},
		{name: "key reused", steps: []wireStep{wireProblem(422, "key-reused")},
			outcome: idem.OutcomeUnknown, requests: 1, status: 422, is: idem.ErrPayloadMismatch},
		{name: "a mismatch is no refusal", steps: []wireStep{wireProblem(422, "key-reused", wireFirst, "X-Should-Retry: true")},
			outcome: idem.OutcomeUnknown, requests: 1, status: 422, is: idem.ErrPayloadMismatch},
		{name: "another 422", steps: []wireStep{wireProblem(422, "amount-negative")}, outcome: idem.OutcomeRejected, requests: 1, status: 422},
		{name: "the code as a URI only", steps: []wireStep{wireReply(409, `{"type":"https://x.example/problems/recovery-required"}`)},
			outcome: idem.OutcomeUnknown, requests: 1, status: 409, is: idem.ErrOutcomeUnknown},
		{name: "a code within error", steps: []wireStep{wireReply(409, `{"error":{"code":"in-flight"}}`), done},
			outcome: idem.OutcomeExecuted, requests: 2, status: 201, source: idem.SourceExecuted},
		{name: "B033 409 after the own attempt timed out", slow: true, steps: []wireStep{wireStall, wireReply(409, "in use"), wireReply(409, "in use"), done},
			outcome: idem.OutcomeExecuted, requests: 4, status: 201, source: idem.SourceExecuted},
		{name: "B033 422 is final", steps: []wireStep{wireReply(422, "")}, outcome: idem.OutcomeRejected, requests: 1, status: 422},
		{name: "waiting charges no attempt", outcome: idem.OutcomeExecuted, requests: 3 + 3 + 1, status: 201, source: idem.SourceExecuted,
			steps: []wireStep{wireReply(500, ""), wireProblem(409, "in-flight"), wireReply(500, ""), wireProblem(409, "in-flight"), wireReply(500, ""), wireProblem(409, "in-flight"), done}},

		// A bare 409 means that somebody else holds the key, if anybody can.
		{name: "bare 409, random key", steps: []wireStep{wireReply(409, "")}, outcome: idem.OutcomeRejected, requests: wireWaits, status: 409},
		{name: "bare 409, named key", named: true, steps: []wireStep{wireReply(409, "")},
			outcome: idem.OutcomeUnknown, requests: wireWaits, status: 409, is: idem.ErrOutcomeUnknown},
		{name: "bare 409, random key, after an unknown", steps: []wireStep{wireEOF, wireReply(409, "")},
			outcome: idem.OutcomeUnknown, requests: 1 + wireWaits, status: 409, is: idem.ErrOutcomeUnknown},
		{name: "bare 409, keyless", contract: idem.Keyless, steps: []wireStep{wireReply(409, "")}, outcome: idem.OutcomeRejected, requests: 1, status: 409},
		{name: "marked 409, keyless", contract: idem.Keyless, steps: []wireStep{wireProblem(409, "in-flight")}, outcome: idem.OutcomeRejected, requests: 1, status: 409},

		// A replay ends the retries.
		{name: "replayed 2xx", steps: []wireStep{wireReply(201, "", wireReplayed)}, outcome: idem.OutcomeExecuted, requests: 1, status: 201, source: idem.SourceReplayed},
		{name: "first 2xx", steps: []wireStep{wireReply(201, "", wireFirst)}, outcome: idem.OutcomeExecuted, requests: 1, status: 201, source: idem.SourceExecuted},
		{name: "B115 replayed 4xx", steps: []wireStep{wireReply(429, "", wireReplayed)}, outcome: idem.OutcomeRejected, requests: 1, status: 429},
		{name: "B115 replayed 409", named: true, steps: []wireStep{wireReply(409, "", "Idempotency-Replayed: TRUE")}, outcome: idem.OutcomeRejected, requests: 1, status: 409},
		{name: "B115 replayed 5xx", steps: []wireStep{wireReply(503, "", wireReplayed)},
			outcome: idem.OutcomeUnknown, requests: 1, status: 503, is: idem.ErrOutcomeUnknown},
		{name: "B115 replayed 5xx, whatever the hint", steps: []wireStep{wireReply(500, "", wireReplayed, "X-Should-Retry: true")},
			outcome: idem.OutcomeUnknown, requests: 1, status: 500, is: idem.ErrOutcomeUnknown},
		{name: "first 5xx", steps: []wireStep{wireReply(503, "", wireFirst), done}, outcome: idem.OutcomeExecuted, requests: 2, status: 201, source: idem.SourceExecuted},
		{name: "the contract's replay header", contract: own, steps: []wireStep{wireReply(500, "", "X-Replay: true")},
			outcome: idem.OutcomeUnknown, requests: 1, status: 500, is: idem.ErrOutcomeUnknown},
		{name: "no marker by another value", steps: []wireStep{wireReply(500, "", "Idempotent-Replayed: yes"), done},
			outcome: idem.OutcomeExecuted, requests: 2, status: 201, source: idem.SourceExecuted},

		// The server's hint decides about the retry, not about the outcome.
		{name: "hint against a 503", steps: []wireStep{wireReply(503, "", "Stripe-Should-Retry: false")},
			outcome: idem.OutcomeUnknown, requests: 1, status: 503, is: idem.ErrOutcomeUnknown},
		{name: "hint against a 429", steps: []wireStep{wireReply(429, "", "X-Should-Retry: false")},
			outcome: idem.OutcomeNotExecuted, requests: 1, status: 429, is: idem.ErrNotExecuted},
		{name: "hint for a 400", steps: []wireStep{wireReply(400, "", "Stripe-Should-Retry: true"), done},
			outcome: idem.OutcomeExecuted, requests: 2, status: 201, source: idem.SourceExecuted},
		{name: "hint for a 400, for ever", steps: []wireStep{wireReply(400, "", "X-Should-Retry: true")}, outcome: idem.OutcomeRejected, requests: wireTries, status: 400},
		{name: "the contract's hint outranks", contract: own, steps: []wireStep{wireReply(500, "", "X-Try-Again: false", "X-Should-Retry: true")},
			outcome: idem.OutcomeUnknown, requests: 1, status: 500, is: idem.ErrOutcomeUnknown},
		{name: "hint on a 2xx", steps: []wireStep{wireReply(200, "", "X-Should-Retry: true")}, outcome: idem.OutcomeExecuted, requests: 1, status: 200, source: idem.SourceExecuted},
		{name: "no hint re-sends an unkeyed unknown", contract: idem.Keyless, steps: []wireStep{wireReply(500, "", "X-Should-Retry: true")},
			outcome: idem.OutcomeUnknown, requests: 1, status: 500},

		// The contract's own answers outrank the table.
		{name: "in flight within a 200", contract: own, steps: []wireStep{wireReply(200, `{"error":"still_running"}`), done},
			outcome: idem.OutcomeExecuted, requests: 2, status: 201, source: idem.SourceExecuted},
		{name: "mismatch within a 200", contract: own, steps: []wireStep{wireReply(200, `{"error":{"type":"KEY_MISMATCH"}}`)},
			outcome: idem.OutcomeUnknown, requests: 1, status: 200, is: idem.ErrPayloadMismatch},
		{name: "a 200 without it", contract: own, steps: []wireStep{wireReply(200, `{"code":"ok"}`)}, outcome: idem.OutcomeExecuted, requests: 1, status: 200, source: idem.SourceExecuted},
		{name: "in flight as 429", contract: own, steps: []wireStep{wireReply(429, `{"code":"concurrent"}`)},
			outcome: idem.OutcomeInFlight, requests: wireWaits, status: 429, is: idem.ErrInFlight},
		{name: "in flight as 423", contract: own, steps: []wireStep{wireReply(423, ""), done},
			outcome: idem.OutcomeExecuted, requests: 2, status: 201, source: idem.SourceExecuted},
		{name: "not executed, by number", contract: own, steps: []wireStep{wireReply(400, `{"code":7001}`), done},
			outcome: idem.OutcomeExecuted, requests: 2, status: 201, source: idem.SourceExecuted},
		{name: "executed as 409", contract: own, steps: []wireStep{wireReply(409, `{"code":"already_paid"}`)},
			outcome: idem.OutcomeExecuted, requests: 1, status: 409, source: idem.SourceExecuted},
		{name: "not retained as 409", contract: own, steps: []wireStep{wireReply(409, `{"code":"gone"}`)},
			outcome: idem.OutcomeExecuted, requests: 1, status: 409, is: idem.ErrResultNotRetained},
		{name: "other 409s", contract: own, named: true, steps: []wireStep{wireReply(409, "")}, outcome: idem.OutcomeRejected, requests: 1, status: 409},
		{name: "unknown under any status", contract: own, steps: []wireStep{wireReply(402, `{"code":"nobody_knows"}`)},
			outcome: idem.OutcomeUnknown, requests: 1, status: 402, is: idem.ErrOutcomeUnknown},
		{name: "an answer outranks the replay marker", contract: own, steps: []wireStep{wireReply(423, "", wireReplayed), done},
			outcome: idem.OutcomeExecuted, requests: 2, status: 201, source: idem.SourceExecuted},
	})
}

// An unknown attempt sticks to the call, until a reply comes from behind the
// server's key layer.
func TestWireSticky(t *testing.T) {
	stores := idem.Contract{StoresErrors: true}
	unknown := idem.ErrOutcomeUnknown
	wireRunScripts(t, []wireScript{
		{name: "401", steps: []wireStep{wireEOF, wireReply(401, "")}, outcome: idem.OutcomeUnknown, requests: 2, status: 401, is: unknown},
		{name: "403 with a marker", steps: []wireStep{wireEOF, wireReply(403, "", wireFirst)}, outcome: idem.OutcomeUnknown, requests: 2, status: 403, is: unknown},
		{name: "422", steps: []wireStep{wireEOF, wireReply(422, "")}, outcome: idem.OutcomeUnknown, requests: 2, status: 422, is: unknown},
		{name: "422 marked as the first answer", steps: []wireStep{wireEOF, wireReply(422, "", wireFirst)}, outcome: idem.OutcomeRejected, requests: 2, status: 422},
		{name: "422 replayed", steps: []wireStep{wireEOF, wireReply(422, "", wireReplayed)}, outcome: idem.OutcomeRejected, requests: 2, status: 422},
		{name: "422 of a server that stores its refusals", contract: stores, steps: []wireStep{wireEOF, wireReply(422, "")}, outcome: idem.OutcomeRejected, requests: 2, status: 422},
		{name: "401 of a server that stores its refusals", contract: stores, steps: []wireStep{wireEOF, wireReply(401, "")}, outcome: idem.OutcomeUnknown, requests: 2, status: 401, is: unknown},
		{name: "501 of a server that stores its refusals", contract: stores, steps: []wireStep{wireEOF, wireReply(501, "")}, outcome: idem.OutcomeUnknown, requests: 2, status: 501, is: unknown},
		{name: "5xx counts like a broken line", steps: []wireStep{wireReply(500, ""), wireReply(404, "")}, outcome: idem.OutcomeUnknown, requests: 2, status: 404, is: unknown},
		{name: "429 to the end", steps: []wireStep{wireReply(502, ""), wireReply(429, "")}, outcome: idem.OutcomeUnknown, requests: wireTries, status: 429, is: unknown},
		{name: "in flight to the end", steps: []wireStep{wireEOF, wireProblem(409, "in-flight")}, outcome: idem.OutcomeUnknown, requests: 1 + wireWaits, status: 409, is: unknown},
		{name: "a fresh 2xx settles", steps: []wireStep{wireEOF, wireReply(201, "")}, outcome: idem.OutcomeExecuted, requests: 2, status: 201, source: idem.SourceExecuted},
		{name: "a replayed 2xx settles", steps: []wireStep{wireEOF, wireReply(201, "", wireReplayed)}, outcome: idem.OutcomeExecuted, requests: 2, status: 201, source: idem.SourceReplayed},
		{name: "not executed does not stick", steps: []wireStep{wireReply(429, ""), wireReply(422, "")}, outcome: idem.OutcomeRejected, requests: 2, status: 422},
		{name: "not executed does not stick to a guard's answer", steps: []wireStep{wireReply(429, ""), wireReply(401, "")}, outcome: idem.OutcomeNotExecuted, requests: 2, status: 401},
	})
	t.Run("B030 a later dial error does not unsay it", func(t *testing.T) {
		srv := wireServe(t, wireReset)
		base := wireBase(t)
		w := wireClient(t, idem.Config{}, wireFunc(func(req *http.Request) (*http.Response, error) {
			resp, err := base.RoundTrip(req)
			base.DialContext = wireRefuse
			return resp, err
		}))
		res := w.do(t, wirePost(t, srv.URL))
		if res.outcome() != idem.OutcomeUnknown || res.err.Key == "" || len(srv.requests()) != 1 {
			t.Errorf("%v after %d requests, want unknown after 1", res.err, len(srv.requests()))
		}
		if last := res.event.Attempts[wireTries-1]; last.Outcome != idem.OutcomeNotExecuted || !res.is(last.Err) {
			t.Errorf("the last attempt is %+v, the error %v", last, res.err)
		}
	})
}

// What a contract must not be.
func TestWireContractRefused(t *testing.T) {
	for _, c := range []idem.Contract{
		{MaxKeyLen: -1}, {MaxKeyLen: 256}, {Retention: -time.Second}, {Header: "Idempotency Key"}, {Header: "Key\r\nX: y"},
		{ReplayHeader: "a b"}, {RetryHeader: "a:"}, {RetryAfterHeader: "\n"},
		{Answers: []idem.Answer{{Status: 409}}}, {Answers: []idem.Answer{{Means: idem.MeansMismatch + 1}}}, {Answers: []idem.Answer{{Status: 42, Means: idem.MeansRejected}}},
	} {
		if _, err := idem.New(idem.Config{Contract: c}); !errors.Is(err, idem.ErrConfig) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// Somebody was seen at work under the key. That the next attempt was not
// executed proves nothing of that one.
func TestWireBusyThenRefused(t *testing.T) {
	for name, last := range map[string]func(*http.Request) (*http.Response, error){
		"a guard": func(r *http.Request) (*http.Response, error) { return wireAnswer(r, 401, ""), nil },
		"a limit": func(r *http.Request) (*http.Response, error) { return wireAnswer(r, 429, ""), nil },
	} {
		t.Run(name, func(t *testing.T) {
			n := 0
			base := wireFunc(func(r *http.Request) (*http.Response, error) {
				if n++; n == 1 {
					return wireAnswer(r, 409, `{"code":"in-flight"}`, "Content-Type: application/problem+json"), nil
				}
				return last(r)
			})
			store := newStore(t)
			req := fieldRequest(t, idem.WithIntent(t.Context(), idem.Intent{Scope: "s", ID: "o"}), asJSON, `{}`)
			r := wireClient(t, idem.Config{Store: store, Policy: wirePolicy}, base).do(t, req)
			if r.outcome() != idem.OutcomeUnknown {
				t.Errorf("%v: %v", r.outcome(), r.err)
			}
			if rec := record(t, store); !rec.Unresolved() {
				t.Errorf("the record is %v", rec.State)
			}
		})
	}
}
