package idem

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"
)

// Transport returns a RoundTripper that carries requests out by way of base;
// nil means http.DefaultTransport. It is safe for concurrent use and changes
// no request that it is given.
//
// A request gets a key if it is a POST or PATCH, if its context has an Intent
// that is for it (see WithIntent), or if it carries the contract's header
// already. Without an
// intent and a header the key is random and lives as long as the call. GET,
// HEAD, OPTIONS, PUT and DELETE are retried without a key. Everything else is
// left to base.
//
// The response returned settles the call: an execution, or a definite refusal.
// Anything else is an *Error, with the reply in Last where there was one.
// Without a key the last reply is returned as it is. ReportOf tells how a
// response was obtained. Redirects are left to http.Client; a 307 or 308 to
// another origin gets neither key nor body.
func (c *Client) Transport(base http.RoundTripper) http.RoundTripper {
	if base == nil {
		base = http.DefaultTransport
	}
	return &transport{client: c, base: base}
}

type transport struct {
	client *Client
	base   http.RoundTripper
}

// CloseIdleConnections makes http.Client.CloseIdleConnections reach base.
func (t *transport) CloseIdleConnections() {
	if c, ok := t.base.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// deadlineMargin is how long before the request's deadline a call ends.
const deadlineMargin = 10 * time.Millisecond

// trail is what a response leads back to: how it was obtained, and, for a
// redirect, under which name its request went out. It travels in the context
// of Response.Request, which the next hop can reach.
type trail struct {
	context.Context // of the caller's request
	report          Report
	url             *url.URL
	op              *operation
	held            *holding
}

type trailKey struct{}

// Value adds the trail itself to the context.
func (t *trail) Value(k any) any {
	if k == (trailKey{}) {
		return t
	}
	return t.Context.Value(k)
}

// ReportOf tells how Transport obtained a response; the zero Report for one
// that did not come from it.
func ReportOf(resp *http.Response) Report {
	if t := trailOf(resp); t != nil {
		return t.report
	}
	return Report{}
}

func trailOf(resp *http.Response) *trail {
	if resp == nil || resp.Request == nil {
		return nil
	}
	t, _ := resp.Request.Context().Value(trailKey{}).(*trail)
	return t
}

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	if carried(req.Context()) {
		return t.base.RoundTrip(req)
	}
	if err := checkRequest(req); err != nil {
		return nil, t.refuse(req, Intent{}, err)
	}
	if req.Context().Err() != nil {
		closeBody(req)
		op := &operation{client: t.client, scope: t.client.cfg.Scope}
		if first := trailOf(req.Response); first != nil && first.op != nil { // between two hops
			op.intent, op.scope, op.held = first.op.intent, first.op.scope, first.held
		}
		return nil, t.ended(req, op, op.failed(OutcomeNotExecuted, stopCause(req.Context())))
	}
	// The key header of a redirect's first request is copied to its hops.
	if req.Response != nil && (req.Method == http.MethodGet || req.Method == http.MethodHead) {
		req = req.Clone(req.Context())
		deleteHeader(req.Header, t.client.cfg.Contract.Header)
		return t.unkeyed(req)
	}
	b := intentFrom(req.Context())
	a := attemptFrom(req.Context())
	if a != nil && (b == nil || b.within != a) {
		switch b = nil; {
		case a.op.client == t.client:
			return t.within(a, req)
		case !posts(req.Method):
			return t.aside(a, req)
		}
		// Another client's server: the attempt's key is not for it.
	}
	if b != nil && !b.matches(req) {
		b = nil
	}
	var key Key
	var spelled string
	if b == nil { // the application's intent outranks an SDK's header
		var err error
		if key, spelled, err = headerKey(req.Header, t.client.cfg.Contract); err != nil {
			return nil, t.refuse(req, Intent{}, err)
		}
	}
	switch {
	case b != nil || spelled != "" || posts(req.Method):
		return t.keyed(req, b, key, spelled)
	case idempotent(req.Method):
		return t.unkeyed(req)
	}
	return t.base.RoundTrip(req)
}

// posts tells whether a method gets a key without being asked to.
func posts(method string) bool { return method == http.MethodPost || method == http.MethodPatch }

// idempotent tells whether a method may be repeated without a key.
func idempotent(method string) bool {
	switch method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodPut, http.MethodDelete:
		return true
	}
	return false
}

// matches tells whether the intent is for this request.
func (in Intent) matches(req *http.Request) bool {
	if in.Match != nil {
		return in.Match(req)
	}
	switch req.Method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		return false
	}
	return true
}

type carriedKey struct{}

// carried tells that the request is an attempt already, on its way through the
// RoundTripper below: layers do not repeat each other's attempts.
func carried(ctx context.Context) bool { return ctx.Value(carriedKey{}) != nil }

// keyedRequest is a request that is carried out under a key.
type keyedRequest struct {
	operation
	replies
	transport *transport
	body      []byte
}

func (k *keyedRequest) try(ctx context.Context, key Key, timeout time.Duration) verdict {
	return k.transport.send(ctx, k.template, k.body, key, k.wire, timeout)
}

// unkeyedRequest is a request that is repeated without a key.
type unkeyedRequest struct {
	operation
	replies
	transport *transport
	body      []byte
	// rest is a body that is not kept, of the given size: it is sent once.
	rest io.ReadCloser
	size int64
	// strayed: it has been led to another origin, which its credentials are not for.
	strayed bool
}

func (u *unkeyedRequest) try(ctx context.Context, _ Key, timeout time.Duration) verdict {
	t, cfg := u.transport, &u.client.cfg
	x := newExchange(ctx, u.template, "")
	if !u.strayed {
		if v, ok := t.sign(&x.req, u.body, timeout); !ok {
			return v
		}
	}
	x.setBody(u.body)
	if u.rest != nil {
		x.req.Body, x.req.ContentLength, x.req.GetBody = u.rest, u.size, nil
	}
	s := x.send(t.base, timeout, cfg.MaxResult, func(status int) bool {
		return u.rest == nil && judgeStatus(status, false).retry
	})
	if s.reply != nil && (len(u.body) > 0 || u.rest != nil) {
		s.reply.from = u.template.URL
	}
	v := judgeExchange(s, cfg.Contract, false)
	v.hop = false // http.Client goes on, and nothing is held meanwhile
	v.retry = v.retry && u.rest == nil
	return v
}

// refuse closes the request's body and returns a local fault.
func (t *transport) refuse(req *http.Request, in Intent, err error) error {
	closeBody(req)
	return t.unsent(req, t.client.refuse(req.Context(), in, err))
}

// unsent notes a request that ends before any attempt with the attempt that it
// is a part of, if it is one: there the error proves as much.
func (t *transport) unsent(req *http.Request, err *Error) error {
	if a := attemptFrom(req.Context()); a != nil {
		a.exchanged(verdict{outcome: err.Outcome, err: err})
	}
	return err
}

// ended tells the observer of an operation that ends before any attempt, and
// returns what the caller is told.
func (t *transport) ended(req *http.Request, op *operation, end ending) error {
	t.client.tell(req.Context(), op, end)
	return t.unsent(req, end.err)
}

// keyed carries out a request under a key.
func (t *transport) keyed(req *http.Request, b *boundIntent, key Key, spelled string) (*http.Response, error) {
	c := t.client
	honoured := !c.cfg.Contract.Unkeyed
	k := &keyedRequest{transport: t, operation: operation{client: c, policy: c.cfg.Policy, origin: req.URL, http: true,
		sendsKey: honoured, repeatable: honoured || idempotent(req.Method)}}
	op := &k.operation
	op.work = k
	switch {
	case b != nil:
		op.intent = b.Intent
	case spelled != "":
		op.intent.Key, op.header = key, spelled
	}
	around := attemptFrom(req.Context())
	if around != nil {
		op.policy.Attempts = 1 // the call around this one repeats it
	}
	first := trailOf(req.Response)
	hop := first != nil && first.op != nil
	if hop {
		// It goes on under the name of the first request.
		op.intent, op.scope, op.held = first.op.intent, first.op.scope, first.held
		op.named, op.id, op.fingerprint = first.op.named, first.op.id, first.op.fingerprint
		if originOf(req.URL) != originOf(first.url) {
			closeBody(req)
			return nil, t.ended(req, op, op.failedAs(OutcomeUnknown, first.report.Key, ErrCrossOrigin))
		}
	} else if err := t.identify(op, req); err != nil {
		return nil, t.refuse(req, op.intent, err)
	}
	body, err := freeze(req, c.cfg.MaxRequest)
	if err == nil {
		err = t.nameByField(op, req, body)
		if errors.Is(err, errNoPlace) && !op.named && b == nil && !hop {
			// Nobody has named it, and a key has no place in it.
			req = req.Clone(req.Context())
			setBody(req, bytes.NewReader(body))
			if around != nil {
				return t.aside(around, req)
			}
			return t.unkeyed(req)
		}
	}
	if err == nil && !hop {
		err = op.checkKey()
	}
	if op.named { // else it has nobody to be compared with
		op.credentials = credentialsOf(req.Header, c.credentials)
	}
	if err == nil && !hop && (op.named || b != nil) {
		op.fingerprint, err = fingerprintOf(req, body, op.intent.Payload)
		if err == nil && b != nil && !b.bind(op.fingerprint) {
			err = fmt.Errorf("%w: the context's intent was used for another request; use Intent.Match to keep side requests out", ErrPayloadMismatch)
		}
	}
	if err != nil {
		return nil, t.ended(req, op, op.failed(localFault(req), err))
	}
	op.template, k.body = c.templateOf(req, op.named), body
	end := t.carryOut(req.Context(), op)
	if b != nil && end.report.Outcome == OutcomeRejected {
		b.release()
	}
	if around != nil && !end.hop {
		around.exchanged(end.exchange(&k.run.last))
	}
	return t.answer(req, op, end)
}

// carryOut ends a moment before the deadline, so that http.Client does not
// replace the *Error by its own timeout.
func (t *transport) carryOut(ctx context.Context, op *operation) ending {
	if d, ok := ctx.Deadline(); ok {
		ctx, cancel := context.WithDeadline(ctx, d.Add(-deadlineMargin))
		end := t.client.carryOut(ctx, op)
		end.after(func(error) { cancel() })
		return end
	}
	return t.client.carryOut(ctx, op)
}

// identify names the operation: scope and ID, or key.
func (t *transport) identify(op *operation, req *http.Request) error {
	op.scope = op.intent.Scope
	if op.scope == "" && t.client.cfg.ScopeOf != nil && (op.intent.ID != "" || op.intent.Key != "") {
		scope, err := t.client.cfg.ScopeOf(req)
		if err == nil && scope == "" {
			err = errors.New("it is empty")
		}
		if err != nil {
			return fmt.Errorf("%w: the scope of the request: %w", ErrInvalidIntent, err)
		}
		op.scope = scope
	}
	if op.scope == "" {
		op.scope = t.client.cfg.Scope
	}
	if err := op.intent.validate(op.scope); err != nil {
		return err
	}
	op.name()
	if op.named && within(req.Context(), op) {
		return ErrReentrant
	}
	return nil
}

// nameByField reads a key that the caller has put into the body, where the
// contract wants it. An intent outranks it only as far as they agree: what the
// caller wrote is what is sent.
func (t *transport) nameByField(op *operation, req *http.Request, body []byte) error {
	contract := t.client.cfg.Contract
	if contract.Field == "" || contract.Unkeyed {
		return nil
	}
	own, err := contract.fieldKey(req.Header, body)
	switch {
	case err != nil || own == "" || own == op.intent.Key:
		return err
	case op.named:
		return fmt.Errorf("%w: the body's field %s has a key of its own beside the intent; leave it out, or give it as Intent.Key", ErrInvalidIntent, contract.Field)
	}
	op.intent.Key = own
	return t.identify(op, req)
}

// send makes one attempt. wire is the key as it is written.
func (t *transport) send(ctx context.Context, template *http.Request, body []byte, key Key, wire string, timeout time.Duration) verdict {
	cfg := &t.client.cfg
	x := newExchange(ctx, template, key)
	req := &x.req
	deleteHeader(req.Header, cfg.Contract.Header)
	var err error
	switch {
	case cfg.Contract.Unkeyed:
	case cfg.Contract.Field != "":
		body, err = cfg.Contract.withKey(req.Header, body, wire)
	default:
		req.Header.Set(cfg.Contract.Header, wire)
	}
	if err != nil {
		return verdict{outcome: OutcomeRejected, err: err}
	}
	if v, ok := t.sign(req, body, timeout); !ok {
		return v
	}
	x.setBody(body)
	s := x.send(t.base, timeout, cfg.MaxResult, nil)
	if s.reply != nil {
		s.reply.from = template.URL
	}
	return judgeExchange(s, cfg.Contract, !cfg.Contract.Unkeyed)
}

// unkeyed carries out a request without a key, which is repeated as far as its
// method allows that. Its final response is not read ahead.
func (t *transport) unkeyed(req *http.Request) (*http.Response, error) {
	c := t.client
	u := &unkeyedRequest{transport: t, operation: operation{client: c, policy: c.cfg.Policy, origin: req.URL, repeatable: idempotent(req.Method)}}
	op := &u.operation
	op.work = u
	var err error
	if u.body, u.rest, err = freezePart(req, c.cfg.MaxRequest); err != nil {
		return nil, t.ended(req, op, op.failed(localFault(req), err))
	}
	op.template, u.size, u.strayed = c.templateOf(req, false), req.ContentLength, strays(req)
	end := t.carryOut(req.Context(), op)
	if u.rest != nil && end.report.Attempts == 0 {
		_ = u.rest.Close()
	}
	return t.answer(req, op, end)
}

// answer turns the end of an operation into what RoundTrip returns.
func (t *transport) answer(req *http.Request, op *operation, end ending) (*http.Response, error) {
	r, _ := end.value.(*reply)
	if end.err != nil && (r == nil || !op.settledBy(r, end, req.Context().Err() != nil)) {
		end.discard()
		return nil, end.err
	}
	if r == nil {
		return nil, &Error{Outcome: end.report.Outcome, Key: end.report.Key, Cause: ErrResultLost}
	}
	tr := trail{report: end.report}
	if end.hop {
		tr.url, tr.op, tr.held = r.from, op, end.held
	}
	resp, ok := r.response(req, tr, !op.named && end.err == nil)
	if !ok && end.err != nil {
		return nil, end.err
	} else if !ok {
		return nil, &Error{Outcome: end.report.Outcome, Key: end.report.Key, Scope: op.scope, ID: op.intent.ID, Attempts: end.report.Attempts, Cause: ErrResultNotRetained}
	}
	return resp, nil
}

// settledBy tells whether a caller gets the reply although the operation has
// no result: a definite refusal, or what a guard said before any attempt could
// have had an effect; without a key whatever came last, unless the caller has
// stopped.
func (op *operation) settledBy(r *reply, end ending, stopped bool) bool {
	switch {
	case !op.sendsKey:
		return !stopped && !errors.Is(end.err.Cause, ErrCrossOrigin)
	case end.err.Cause != nil:
		return false
	}
	switch r.resp.StatusCode {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusProxyAuthRequired:
		return end.report.Outcome == OutcomeNotExecuted
	}
	return end.report.Outcome == OutcomeRejected
}
