package idem

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"time"
)

// within sends a request of a decorated function: once, under the key of the
// function's attempt, which is repeated as a whole if need be.
func (t *transport) within(a *attempt, req *http.Request) (*http.Response, error) {
	if !a.op.intent.matches(req) {
		return t.aside(a, req)
	}
	cfg := t.client.cfg
	first := trailOf(req.Response)
	if first != nil && originOf(req.URL) != originOf(first.url) {
		closeBody(req)
		return nil, t.unsent(req, a.op.failedAs(OutcomeUnknown, a.key, ErrCrossOrigin).err)
	}
	body, err := freeze(req, cfg.MaxRequest)
	if err == nil {
		err = t.sameKey(a, req, body)
	}
	var sum [32]byte
	if err == nil && req.Response == nil {
		sum, err = fingerprintOf(req, body, nil)
		if err == nil && !a.op.requests.bind(sum) {
			err = fmt.Errorf("%w: the function has sent another request under this key; use Intent.Match to keep side requests out", ErrPayloadMismatch)
		}
	}
	if err != nil {
		return nil, t.unsent(req, a.op.failedAs(localFault(req), a.key, err).err)
	}
	v := t.traced(req, body, a)
	if first != nil {
		v.sends += first.report.WireSends
	}
	r, _ := v.value.(*reply)
	if r == nil || errors.Is(v.cause, ErrCrossOrigin) {
		v.discard()
		// The function's error is recognised by this one.
		v.err = &Error{Outcome: v.outcome, Key: a.key, Scope: a.op.scope, ID: a.op.intent.ID, Attempts: 1, Cause: v.cause, Last: v.err}
		a.exchanged(v)
		return nil, v.err
	}
	if v.outcome == OutcomeExecuted && v.cause == nil {
		v.cause = ErrResultNotRetained // if the function makes an error of it
	}
	if !v.hop {
		a.exchanged(v)
	}
	tr := trail{url: req.URL, report: Report{Key: a.key, Outcome: v.outcome, Attempts: 1, WireSends: v.sends}}
	resp, _ := r.response(req, tr, v.err == nil)
	return resp, nil
}

// traced sends the request, as a tracer sees it.
func (t *transport) traced(req *http.Request, body []byte, a *attempt) verdict {
	template, began, seen := t.client.templateOf(req, false), time.Now(), Attempt{Number: 1, Err: ErrGoexit}
	ctx, told := t.client.watch.StartAttempt(req.Context(), seen, template)
	defer func() {
		seen.Duration = time.Since(began)
		t.client.watch.EndAttempt(ctx, told, seen)
	}()
	v := t.send(ctx, template, body, a.key, a.op.wire, t.client.cfg.Policy.AttemptTimeout)
	seen.Outcome, seen.Status, seen.Replayed, seen.Err = v.outcome, v.status, v.replayed, v.err
	return v
}

// sameKey refuses a request whose body has another key than the attempt's.
func (t *transport) sameKey(a *attempt, req *http.Request, body []byte) error {
	contract := t.client.cfg.Contract
	if contract.Field == "" || contract.Unkeyed {
		return nil
	}
	own, err := contract.fieldKey(req.Header, body)
	if err == nil && own != "" && string(own) != a.op.wire {
		err = fmt.Errorf("%w: the body's field %s has another key than the call's; put the call's key there, or none", ErrInvalidIntent, contract.Field)
	}
	return err
}

// aside sends a request that is not the intent's: once, as it is.
func (t *transport) aside(a *attempt, req *http.Request) (*http.Response, error) {
	if t.client.cfg.Sign != nil && !strays(req) {
		body, rest, err := freezePart(req, t.client.cfg.MaxRequest)
		if err != nil {
			return nil, t.unsent(req, a.op.failedAs(localFault(req), a.key, err).err)
		}
		out := req.Clone(req.Context())
		if v, ok := t.sign(out, body, t.client.cfg.Policy.AttemptTimeout); !ok {
			if rest != nil {
				_ = rest.Close()
			}
			return nil, t.unsent(req, a.op.failedAs(v.outcome, a.key, v.err).err)
		}
		if rest == nil {
			setBody(out, bytes.NewReader(body))
		} else {
			out.Body = rest
		}
		req = out
	}
	resp, err := t.base.RoundTrip(req)
	var v verdict
	if err == nil {
		if v = judgeStatus(resp.StatusCode, false); v.outcome == OutcomeExecuted {
			v = verdict{} // which is not the intent
		}
		v.status = resp.StatusCode
	}
	a.exchanged(v)
	return resp, err
}

// exchange is the end of an intent of its own that was carried out within an
// attempt, as an exchange of that attempt. last is its last attempt, which only
// a call that made attempts may look at: else they may be going on.
func (e ending) exchange(last *verdict) (v verdict) {
	if e.tried {
		v = *last
	}
	v.outcome, v.sends, v.err = e.report.Outcome, e.report.WireSends, nil
	if e.err != nil {
		v.err = e.err
	}
	if v.outcome == OutcomeExecuted {
		v.outcome = OutcomeUnknown // of the intent around it
	}
	return v
}
