package server

import (
	"context"
	"fmt"
	"net/http"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/keyctx"
	"github.com/idem-go/idem/internal/stored"
	"github.com/idem-go/idem/keystore"
)

// Handler returns h behind the key layer: a request with a key runs h at most
// once, and retries get its stored answer. See the package documentation for
// the order of things, and for the problems that clients may get.
//
// h runs on the serving goroutine. Its context keeps the request's values, but
// does not end when the client hangs up; it ends after MaxRun, when the claim
// is lost (cause idem.ErrLeaseLost), and when Shutdown's patience does
// (idem.ErrShutdown). idem.KeyFrom finds the key in it. The whole body has been
// read before h runs. A panic goes on to whoever recovers it.
//
// Mounted twice around one request, it protects it once. A nil h and options
// that break a rule are programming errors: Handler panics.
func (s *Server) Handler(h http.Handler, opts ...RouteOption) http.Handler {
	if h == nil {
		panic("idem: server: Handler needs a handler, not nil")
	}
	rt, err := s.route.with(opts, s.cfg.Store)
	if err != nil {
		panic("idem: server: Handler: " + err.Error())
	}
	return &handler{server: s, route: rt, next: h}
}

type handler struct {
	server *Server
	route  route
	next   http.Handler
}

// ServeHTTP sees a request from its key to its answer.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s := h.server
	in := &incoming{Request: r, op: operation{server: s, route: h.route, started: s.now()}}
	op := &in.op
	defer in.removeForms(r)
	defer func() { op.unwound(in.Context()) }()
	if ref := s.admit(w, in, op); ref != nil {
		if ref.code == codeKeyMissing && (h.route.optional || safe(r.Method)) {
			h.unprotected(w, in)
			return
		}
		h.begin(in, op)
		h.refuse(w, in, op, ref)
		return
	}
	if outer := executionFrom(r.Context()); op.within(r.Context()) && outer.op.fingerprint == op.fingerprint {
		h.next.ServeHTTP(w, in.whole())
		return
	}
	h.begin(in, op)
	if !s.enter(in.Context()) {
		h.refuse(w, in, op, shuttingDown())
		return
	}
	defer s.leave()

	if h.route.effects == Transaction {
		h.transact(w, in, op)
		return
	}
	g, err := op.claim(in.Context())
	switch {
	case err != nil:
		ref := claimFailed(err)
		if ref.code == codeStore && s.cfg.FailOpen {
			defer op.observe(in.Context(), idem.EventStoreError, idem.OutcomeUnknown, 0, err)
			in.Request = in.WithContext(keyctx.With(in.Context(), string(op.key)))
			h.unprotected(w, in)
			return
		}
		h.refuse(w, in, op, ref)
	case g.Status == keystore.Acquired:
		h.execute(w, in, op, g)
	default:
		h.answer(w, in, op, g)
	}
}

// begin tells a tracer of the operation.
func (h *handler) begin(in *incoming, op *operation) {
	if ctx := op.begin(in.Context(), in.Request); ctx != in.Context() {
		in.Request = in.WithContext(ctx)
	}
}

// unprotected runs the handler without a claim.
func (h *handler) unprotected(w http.ResponseWriter, in *incoming) {
	r := in.whole().WithContext(withoutClaim(in.Context()))
	in.hand(r)
	h.next.ServeHTTP(w, r)
}

// refuse answers with a problem.
func (h *handler) refuse(w http.ResponseWriter, in *incoming, op *operation, ref *refusal) {
	h.server.writeProblem(w, in.Request, ref)
	op.observe(in.Context(), ref.event, ref.outcome, ref.source(), op.error(ref))
}

// answer answers a request whose claim another one has.
func (h *handler) answer(w http.ResponseWriter, in *incoming, op *operation, g granted) {
	a, ref := op.found(g)
	if ref == nil && a.Kind != stored.Response && a.Kind != stored.Tombstone {
		ref = unreadable(fmt.Errorf("%w: it holds no HTTP response", keystore.ErrCorrupt))
	}
	if authorize := h.server.cfg.Authorize; authorize != nil && g.Status == keystore.Completed {
		if err := authorize(in.whole()); err != nil {
			ref = refuse(codeReplayRefused, fmt.Errorf("authorize: %w", err))
		}
	}
	if ref != nil {
		h.refuse(w, in, op, ref)
		return
	}
	h.server.writeReplay(w, in, a)
	op.observe(in.Context(), idem.EventReplayed, outcomeOf(a.Status), idem.SourceReplayed, nil)
}

// execute runs the handler under a granted claim.
func (h *handler) execute(w http.ResponseWriter, in *incoming, op *operation, g granted) {
	ctx := in.Context()
	ex := op.execution(op.detached(ctx), g)
	if ex == nil {
		h.refuse(w, in, op, shuttingDown())
		return
	}
	rec := newRecorder(w, in.Request, h.server.cfg.MaxResponse)
	done := ex.run(h.work(rec, in))
	if done.fenced && rec.passing == "" {
		h.answer(w, in, op, op.successor(ctx))
		return
	}
	if ref := done.unrecorded(op); ref != nil && rec.passing == "" {
		h.refuse(w, in, op, ref)
		return
	}
	rec.send(done.settled)
	op.fenced = done.fenced
	op.observe(ctx, done.event, done.outcome, done.source(), nil)
}

// work runs the handler.
func (h *handler) work(rec *recorder, in *incoming) func(context.Context) ending {
	return func(ctx context.Context) ending {
		h.next.ServeHTTP(rec.writer(), in.forHandler(ctx))
		rec.end()
		end := ending{status: rec.status}
		if rec.definitive() {
			rec.kept = rec.answer()
			if h.route.discard && rec.kept.Kind == stored.Response {
				rec.kept = tombstone(rec.kept, "the route stores no answers")
			}
			end.answer, end.outcome = &rec.kept, outcomeOf(rec.status)
		}
		return end
	}
}

// transact runs the handler in a transaction.
func (h *handler) transact(w http.ResponseWriter, in *incoming, op *operation) {
	ctx := in.Context()
	rec := newRecorder(w, in.Request, h.server.cfg.MaxResponse)
	rec.hold = true
	done, g, ref := op.transact(ctx, context.WithoutCancel(ctx), h.work(rec, in))
	if rec.overflown && ref == nil {
		ref = rolledBack(errOverflown)
		ref.code = codeAnswerTooLarge
	}
	if ref == nil && g.Status == 0 {
		ref = done.unrecorded(op)
	}
	switch {
	case ref != nil:
		h.refuse(w, in, op, ref)
	case g.Status != 0:
		h.answer(w, in, op, g)
	default:
		rec.send(done.settled)
		op.observe(ctx, done.event, done.outcome, done.source(), nil)
	}
}
