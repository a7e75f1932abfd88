package otelobs

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.37.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/idem-go/idem"
)

// operation is a running operation, in its context.
type operation struct {
	span    trace.Span
	half    string
	started time.Time
	ended   atomic.Bool
}

type (
	operationKey struct{}
	attemptKey   struct{} // of the attempt's span
)

// w3c is how a record keeps a span's context, whatever the requests use.
var w3c propagation.TraceContext

// Start implements idem.Tracer.
func (o *Observer) Start(ctx context.Context, e idem.Event, r *http.Request) (context.Context, string) {
	opts := []trace.SpanStartOption{trace.WithTimestamp(e.Started)}
	if r != nil && e.Half == "server" && !trace.SpanContextFromContext(ctx).IsValid() {
		ctx = o.propagator.Extract(ctx, propagation.HeaderCarrier(r.Header))
		opts = append(opts, trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(
			method(r.Method), semconv.URLPath(r.URL.Path)))
		if r.Pattern != "" {
			opts = append(opts, trace.WithAttributes(semconv.HTTPRoute(r.Pattern)))
		}
	}
	ctx, span := o.tracer.Start(ctx, "idem "+e.Half, opts...)
	o.metrics.begun(ctx, e.Half)
	ctx = context.WithValue(ctx, operationKey{}, &operation{span: span, half: e.Half, started: e.Started})
	kept := propagation.MapCarrier{}
	w3c.Inject(ctx, kept)
	return ctx, kept.Get("traceparent")
}

// Observe implements idem.Observer.
func (o *Observer) Observe(ctx context.Context, e idem.Event) {
	op, _ := ctx.Value(operationKey{}).(*operation)
	// The context may be that of an operation around this one.
	if op == nil || op.half != e.Half || !op.started.Equal(e.Started) || !op.ended.CompareAndSwap(false, true) {
		_, span := o.tracer.Start(ctx, "idem "+e.Half, trace.WithTimestamp(e.Started))
		op = &operation{span: span}
	} else {
		o.metrics.ended(ctx, e.Half)
	}
	span := op.span
	span.SetAttributes(attribute.String("idem.half", e.Half), attribute.String("idem.event", e.Name),
		attribute.String("idem.outcome", e.Outcome.String()), attribute.String("idem.source", e.Source.String()),
		attribute.Int("idem.attempts", len(e.Attempts)), attribute.Int("idem.wire_sends", e.WireSends))
	if e.Scope != "" {
		span.SetAttributes(attribute.String("idem.scope", e.Scope))
	}
	if e.KeyDigest != "" {
		span.SetAttributes(attribute.String("idem.key.digest", e.KeyDigest))
	}
	if executed := remote(e.Origin); executed.IsValid() {
		span.AddLink(trace.Link{SpanContext: executed})
	}
	if e.Err != nil && failed(e) {
		span.SetAttributes(semconv.ErrorTypeKey.String(cause(e.Err)))
		// Not the error's text: a URL in it may hold a secret, a panic a stack.
		span.SetStatus(codes.Error, cause(e.Err))
	}
	span.End(trace.WithTimestamp(e.Started.Add(e.Duration)))
	o.metrics.observe(ctx, e)
}

// failed tells whether an operation's span has the status Error: on the server
// half a client's fault is none.
func failed(e idem.Event) bool {
	switch e.Name {
	case idem.EventFailed, idem.EventUnresolved, idem.EventStoreError, idem.EventFenced:
		return true
	}
	return e.Half == "client" && e.Name != idem.EventRecovered
}

// remote is the span context that a record has kept.
func remote(origin string) trace.SpanContext {
	if origin == "" {
		return trace.SpanContext{}
	}
	ctx := w3c.Extract(context.Background(), propagation.MapCarrier{"traceparent": origin})
	return trace.SpanContextFromContext(ctx)
}

// StartAttempt implements idem.Tracer.
func (o *Observer) StartAttempt(ctx context.Context, a idem.Attempt, r *http.Request) context.Context {
	if r == nil {
		ctx, span := o.tracer.Start(ctx, "idem attempt", trace.WithAttributes(attribute.Int("idem.attempt", a.Number)))
		return context.WithValue(ctx, attemptKey{}, span)
	}
	attrs := []attribute.KeyValue{method(r.Method), attribute.Int("idem.attempt", a.Number),
		semconv.ServerAddress(r.URL.Hostname()), semconv.ServerPort(port(r.URL)), semconv.URLFull(withoutSecrets(r.URL))}
	if a.Number > 1 {
		attrs = append(attrs, semconv.HTTPRequestResendCount(a.Number-1))
	}
	ctx, span := o.tracer.Start(ctx, spanName(r.Method), trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(attrs...))
	o.propagator.Inject(ctx, propagation.HeaderCarrier(r.Header))
	return context.WithValue(ctx, attemptKey{}, span)
}

// EndAttempt implements idem.Tracer.
func (o *Observer) EndAttempt(ctx context.Context, a idem.Attempt) {
	span, ok := ctx.Value(attemptKey{}).(trace.Span)
	if !ok {
		return
	}
	span.SetAttributes(attribute.String("idem.outcome", a.Outcome.String()))
	if a.Status > 0 {
		span.SetAttributes(semconv.HTTPResponseStatusCode(a.Status))
	}
	op, _ := ctx.Value(operationKey{}).(*operation)
	switch {
	case op != nil && op.half == "server" && a.Status > 0 && a.Status < http.StatusInternalServerError:
		// A client's fault is none here.
	case a.Status >= http.StatusBadRequest:
		span.SetAttributes(semconv.ErrorTypeKey.String(strconv.Itoa(a.Status)))
		span.SetStatus(codes.Error, "")
	case a.Err != nil:
		span.SetAttributes(semconv.ErrorTypeKey.String(cause(a.Err)))
		span.SetStatus(codes.Error, cause(a.Err))
	}
	span.End()
}

// known are the methods that the semantic conventions name.
var known = map[string]bool{
	http.MethodConnect: true, http.MethodDelete: true, http.MethodGet: true, http.MethodHead: true, http.MethodOptions: true,
	http.MethodPatch: true, http.MethodPost: true, http.MethodPut: true, http.MethodTrace: true,
}

func method(m string) attribute.KeyValue {
	if m == "" {
		m = http.MethodGet
	}
	if !known[m] {
		m = "_OTHER"
	}
	return semconv.HTTPRequestMethodKey.String(m)
}

func spanName(m string) string {
	if m == "" {
		return http.MethodGet
	}
	if !known[m] {
		return "HTTP"
	}
	return m
}

func port(u *url.URL) int {
	if p, err := strconv.Atoi(u.Port()); err == nil {
		return p
	}
	if u.Scheme == "http" {
		return 80
	}
	return 443
}

// withoutSecrets is a URL without what may hold a secret: user and query.
func withoutSecrets(u *url.URL) string {
	bare := url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path, RawPath: u.RawPath}
	return bare.String()
}
