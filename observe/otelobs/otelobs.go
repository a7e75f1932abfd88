// Package otelobs makes OpenTelemetry spans and metrics of idem's operations.
//
//	observer, err := otelobs.New(otelobs.Config{})       // the global providers
//	cfg.Observer = observer                              // of idem.Config or server.Config
//	cfg.Store, err = observer.Store(store)               // its calls, timed
//	_, err = observer.WatchUnresolved(store)             // what nobody knows the outcome of
//
// # Spans
//
// An operation is one span, "idem client" or "idem server", from its beginning
// to its event, with the attributes idem.half, idem.event, idem.outcome,
// idem.source, idem.scope, idem.key.digest and idem.wire_sends. Each attempt is
// a child of it: of an HTTP client attempt a span of kind client that has the
// attributes of the semantic conventions for HTTP, and whose context goes out in
// the request's headers; of the server half the run of the handler. A joined or
// replayed operation has a link to the span of the operation that executed,
// also one of another process. The server half begins a trace, or continues
// that of the request's headers, only where no instrumentation around it has.
//
// # Metrics
//
// All attributes have few values; scopes, keys and IDs are in none.
//
//	idem.operations           counter    half, event, outcome, source
//	idem.operation.duration   histogram  half, event; seconds
//	idem.operation.active     up-down    half; operations that run now
//	idem.attempts             counter    half, outcome
//	idem.retries              counter    half, reason
//	idem.wire.sends           counter    half; connections used
//	idem.wait.duration        histogram  half; seconds waited for another owner
//	idem.replay.age           histogram  half; seconds between claim and replay
//	idem.events.lost          counter    half; events dropped, see idem.Event.Lost
//	idem.store.duration       histogram  operation, status, error.type; seconds
//	idem.unresolved           gauge      records that nobody knows the outcome of
//	idem.unresolved.oldest    gauge      seconds since the oldest was claimed
//
// docs/operations.md says what to alert on.
package otelobs

import (
	"errors"
	"sync"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/keystore"
)

// name is the instrumentation scope's.
const name = "github.com/idem-go/idem/observe/otelobs"

// Config configures New. Every zero value is usable.
type Config struct {
	// TracerProvider makes the spans. Nil means the global one.
	TracerProvider trace.TracerProvider
	// MeterProvider makes the metrics. Nil means the global one.
	MeterProvider metric.MeterProvider
	// Propagator writes the context of an attempt into its request's headers,
	// and reads that of a request to the server half. Nil means the global one,
	// which does nothing until it is set.
	Propagator propagation.TextMapPropagator
}

// Observer makes spans and metrics. It is an idem.Tracer, safe for concurrent
// use, and may serve both halves and any number of clients and servers. It
// starts nothing; its providers belong to the application.
type Observer struct {
	tracer     trace.Tracer
	propagator propagation.TextMapPropagator
	meter      metric.Meter
	metrics    metrics

	mu      sync.Mutex // guards all below
	watched map[int]keystore.Store
	watches int
	timed   map[keystore.Store]keystore.Store // by what Store was given
}

var _ idem.Tracer = (*Observer)(nil)

// New returns an Observer. The error is the meter's, about an instrument.
func New(cfg Config) (*Observer, error) {
	if cfg.TracerProvider == nil {
		cfg.TracerProvider = otel.GetTracerProvider()
	}
	if cfg.MeterProvider == nil {
		cfg.MeterProvider = otel.GetMeterProvider()
	}
	if cfg.Propagator == nil {
		cfg.Propagator = otel.GetTextMapPropagator()
	}
	o := &Observer{tracer: cfg.TracerProvider.Tracer(name), propagator: cfg.Propagator, meter: cfg.MeterProvider.Meter(name)}
	return o, o.metrics.make(o.meter)
}

// cause is the error's type as an attribute: one of a few names.
func cause(err error) string {
	for _, known := range []struct {
		is   error
		name string
	}{
		{idem.ErrPayloadMismatch, "payload_mismatch"},
		{idem.ErrKeyExpired, "key_expired"},
		{idem.ErrRetryBudget, "retry_budget"},
		{idem.ErrRetryAfterTooLong, "retry_after"},
		{idem.ErrLeaseLost, "lease_lost"},
		{idem.ErrResultNotRetained, "result_not_retained"},
		{idem.ErrResultLost, "result_lost"},
		{idem.ErrStore, "store"},
		{idem.ErrShutdown, "shutdown"},
	} {
		if errors.Is(err, known.is) {
			return known.name
		}
	}
	var late interface{ Timeout() bool }
	if errors.As(err, &late) && late.Timeout() {
		return "timeout"
	}
	return "_OTHER"
}
