package otelobs

import (
	"context"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/metric"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/keystore"
)

const (
	// maxUnresolved bounds what one collection reads: from there on it is not
	// the number that matters.
	maxUnresolved = 10_000
	// listTimeout bounds one look at the store.
	listTimeout = 5 * time.Second
)

// WatchUnresolved makes the gauges idem.unresolved, at most 10,000, and
// idem.unresolved.oldest, 0 if there are none. Each collection of the metrics
// reads the store's unresolved records, of both halves, in bounded pages; if
// that fails, the gauges have no value and the meter's error handler is told.
// One process that does so is enough for a store. The Registration ends it.
// Errors: idem.ErrConfig for a nil store, and the meter's.
func (o *Observer) WatchUnresolved(store keystore.Store) (metric.Registration, error) {
	if store == nil {
		return nil, fmt.Errorf("%w: the store to watch is nil", idem.ErrConfig)
	}
	count, err := o.meter.Int64ObservableGauge("idem.unresolved", metric.WithUnit("{record}"),
		metric.WithDescription("Records that nobody knows the outcome of"))
	if err != nil {
		return nil, err
	}
	oldest, err := o.meter.Float64ObservableGauge("idem.unresolved.oldest", metric.WithUnit("s"),
		metric.WithDescription("Time since the oldest unresolved record was claimed"))
	if err != nil {
		return nil, err
	}
	return o.meter.RegisterCallback(func(ctx context.Context, to metric.Observer) error {
		n, age, err := unresolved(ctx, store)
		if err != nil {
			return fmt.Errorf("idem: list unresolved records: %w", err)
		}
		to.ObserveInt64(count, int64(n))
		to.ObserveFloat64(oldest, age.Seconds())
		return nil
	}, count, oldest)
}

// unresolved counts the unresolved records and tells the age of the oldest.
func unresolved(ctx context.Context, store keystore.Store) (n int, oldest time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	q := keystore.Query{Unresolved: true}
	for n < maxUnresolved {
		recs, err := store.Records(ctx, q)
		if err != nil {
			return n, oldest, err
		}
		if len(recs) == 0 {
			break
		}
		for _, rec := range recs {
			oldest = max(oldest, rec.Age)
		}
		n += len(recs)
		q.After = recs[len(recs)-1].ID
	}
	return min(n, maxUnresolved), oldest, nil
}
