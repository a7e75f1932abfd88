package otelobs

import (
	"context"
	"fmt"
	"maps"
	"slices"
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

// WatchUnresolved makes the gauges idem.unresolved, at most 10,000 per store,
// and idem.unresolved.oldest, 0 if there are none. Each collection of the
// metrics reads the store's unresolved records, of both halves, in bounded
// pages; those of several stores are added up. Where that fails the gauges have
// no value, and the meter's error handler is told. One process that does so is
// enough for a store. stop ends it. Errors: idem.ErrConfig for a nil store, and
// the meter's.
func (o *Observer) WatchUnresolved(store keystore.Store) (stop func(), err error) {
	if store == nil {
		return nil, fmt.Errorf("%w: the store to watch is nil", idem.ErrConfig)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.watched == nil {
		if err := o.makeGauges(); err != nil {
			return nil, err
		}
		o.watched = map[int]keystore.Store{}
	}
	o.watches++
	n := o.watches
	o.watched[n] = store
	return func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		delete(o.watched, n)
	}, nil
}

// makeGauges makes the gauges, which look at what is watched then.
func (o *Observer) makeGauges() error {
	count, err := o.meter.Int64ObservableGauge("idem.unresolved", metric.WithUnit("{record}"),
		metric.WithDescription("Records that nobody knows the outcome of"))
	if err != nil {
		return err
	}
	oldest, err := o.meter.Float64ObservableGauge("idem.unresolved.oldest", metric.WithUnit("s"),
		metric.WithDescription("Time since the oldest unresolved record was claimed"))
	if err != nil {
		return err
	}
	_, err = o.meter.RegisterCallback(func(ctx context.Context, to metric.Observer) error {
		o.mu.Lock()
		stores := slices.Collect(maps.Values(o.watched))
		o.mu.Unlock()
		total, age := 0, time.Duration(0)
		for _, store := range stores {
			n, a, err := unresolved(ctx, store)
			if err != nil {
				return fmt.Errorf("idem: list unresolved records: %w", err)
			}
			total, age = total+n, max(age, a)
		}
		if len(stores) > 0 {
			to.ObserveInt64(count, int64(total))
			to.ObserveFloat64(oldest, age.Seconds())
		}
		return nil
	}, count, oldest)
	return err
}

// unresolved counts the unresolved records and tells the age of the oldest, of
// those that it has counted.
func unresolved(ctx context.Context, store keystore.Store) (n int, oldest time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	defer func() { // else the collection of all metrics would end with it
		if v := recover(); v != nil {
			err = fmt.Errorf("the store panicked: %v", v)
		}
	}()
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
