package otelobs

import (
	"context"
	"errors"
	"net/http"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/idem-go/idem"
)

// metrics are the instruments of an Observer.
type metrics struct {
	operations, attempts, retries, sends, lost metric.Int64Counter
	active                                     metric.Int64UpDownCounter
	duration, wait, age, store                 metric.Float64Histogram
}

// Bounds of the histograms, in seconds: from a store in memory to a lease, and
// from a retry to a retention.
var (
	durations = metric.WithExplicitBucketBoundaries(.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30)
	ages      = metric.WithExplicitBucketBoundaries(1, 5, 15, 60, 300, 900, 3600, 4*3600, 12*3600, 24*3600, 3*24*3600, 7*24*3600)
)

func (m *metrics) make(meter metric.Meter) error {
	var errs []error
	counter := func(c *metric.Int64Counter, name, unit, description string) {
		var err error
		*c, err = meter.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(description))
		errs = append(errs, err)
	}
	histogram := func(h *metric.Float64Histogram, name, description string, bounds metric.HistogramOption) {
		var err error
		*h, err = meter.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(description), bounds)
		errs = append(errs, err)
	}
	counter(&m.operations, "idem.operations", "{operation}", "Operations that have ended")
	counter(&m.attempts, "idem.attempts", "{attempt}", "Attempts made")
	counter(&m.retries, "idem.retries", "{attempt}", "Attempts after the first, by what the one before had met")
	counter(&m.sends, "idem.wire.sends", "{send}", "Connections used")
	counter(&m.lost, "idem.events.lost", "{event}", "Events that did not reach the observer in time")
	histogram(&m.duration, "idem.operation.duration", "How long operations took", durations)
	histogram(&m.wait, "idem.wait.duration", "How long operations waited for another owner, where they did", durations)
	histogram(&m.age, "idem.replay.age", "Time between an intent's first claim and its replay", ages)
	histogram(&m.store, "idem.store.duration", "How long calls to the store took", durations)
	var err error
	m.active, err = meter.Int64UpDownCounter("idem.operation.active", metric.WithUnit("{operation}"), metric.WithDescription("Operations that run now"))
	return errors.Join(append(errs, err)...)
}

func half(h string) attribute.KeyValue { return attribute.String("half", h) }

func (m *metrics) begun(ctx context.Context, h string) {
	m.active.Add(ctx, 1, metric.WithAttributes(half(h)))
}

func (m *metrics) ended(ctx context.Context, h string) {
	m.active.Add(ctx, -1, metric.WithAttributes(half(h)))
}

// observe counts an operation that has ended.
func (m *metrics) observe(ctx context.Context, e idem.Event) {
	event := attribute.String("event", e.Name)
	ofHalf := metric.WithAttributes(half(e.Half))
	m.operations.Add(ctx, 1, metric.WithAttributes(half(e.Half), event,
		attribute.String("outcome", e.Outcome.String()), attribute.String("source", e.Source.String())))
	m.duration.Record(ctx, e.Duration.Seconds(), metric.WithAttributes(half(e.Half), event))
	for i, a := range e.Attempts {
		m.attempts.Add(ctx, 1, metric.WithAttributes(half(e.Half), attribute.String("outcome", a.Outcome.String())))
		if i > 0 {
			m.retries.Add(ctx, 1, metric.WithAttributes(half(e.Half), attribute.String("reason", reason(e.Attempts[i-1]))))
		}
	}
	if e.WireSends > 0 && len(e.Attempts) > 0 { // a joined operation has those of another
		m.sends.Add(ctx, int64(e.WireSends), ofHalf)
	}
	if e.Waited > 0 {
		m.wait.Record(ctx, e.Waited.Seconds(), ofHalf)
	}
	if e.Source == idem.SourceReplayed && e.Age > 0 {
		m.age.Record(ctx, e.Age.Seconds(), ofHalf)
	}
	if e.Lost > 0 {
		m.lost.Add(ctx, int64(e.Lost), ofHalf)
	}
}

// reason is why an attempt was not the last, as an attribute.
func reason(a idem.Attempt) string {
	var late interface{ Timeout() bool }
	switch {
	case a.Outcome == idem.OutcomeInFlight:
		return "in-flight"
	case a.Status == http.StatusTooManyRequests:
		return "rate-limited"
	case a.Status >= http.StatusInternalServerError:
		return "server-error"
	case a.Status > 0:
		return "other-status"
	case errors.As(a.Err, &late) && late.Timeout():
		return "timeout"
	}
	return "no-reply"
}
