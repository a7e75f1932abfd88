package otelobs

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	semconv "go.opentelemetry.io/otel/semconv/v1.37.0"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/keystore"
)

// Store returns the store with its calls timed, as idem.store.duration: by
// operation, for a claim by its status, and by the kind of error. It is a
// keystore.Transactor and a keystore.Waiter where store is one; the calls in a
// transaction are timed as well as the whole. The same store is returned for
// the same store, so that servers that share it can tell. Errors: idem.ErrConfig
// for a nil store.
func (o *Observer) Store(store keystore.Store) (keystore.Store, error) {
	if store == nil {
		return nil, fmt.Errorf("%w: the store to observe is nil", idem.ErrConfig)
	}
	if !reflect.TypeOf(store).Comparable() {
		return o.time(store), nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.timed == nil {
		o.timed = map[keystore.Store]keystore.Store{}
	}
	if o.timed[store] == nil {
		o.timed[store] = o.time(store)
	}
	return o.timed[store], nil
}

func (o *Observer) time(store keystore.Store) keystore.Store {
	s := &timed{store, o}
	waiter, waits := store.(keystore.Waiter)
	_, transacts := store.(keystore.Transactor)
	switch {
	case waits && transacts:
		return &timedTxWaiter{timedTx{s}, waiter}
	case transacts:
		return &timedTx{s}
	case waits:
		return &timedWaiter{s, waiter}
	}
	return s
}

// timed times what a store does.
type timed struct {
	store    keystore.Store
	observer *Observer
}

type timedWaiter struct {
	*timed
	keystore.Waiter
}

type timedTx struct{ *timed }

type timedTxWaiter struct {
	timedTx
	keystore.Waiter
}

// record notes a call that began at began.
func (s *timed) record(ctx context.Context, operation string, began time.Time, err error, more ...attribute.KeyValue) {
	attrs := append(more, attribute.String("operation", operation))
	if err != nil {
		attrs = append(attrs, semconv.ErrorTypeKey.String(storeCause(err)))
	}
	s.observer.metrics.store.Record(ctx, time.Since(began).Seconds(), metric.WithAttributes(attrs...))
}

// Claim implements keystore.Store.
func (s *timed) Claim(ctx context.Context, p keystore.ClaimParams) (keystore.Claim, error) {
	began := time.Now()
	c, err := s.store.Claim(ctx, p)
	if err != nil {
		s.record(ctx, "claim", began, err)
	} else {
		s.record(ctx, "claim", began, nil, attribute.String("status", c.Status.String()))
	}
	return c, err
}

// Renew implements keystore.Store.
func (s *timed) Renew(ctx context.Context, o keystore.Owner, p keystore.RenewParams) error {
	began := time.Now()
	err := s.store.Renew(ctx, o, p)
	s.record(ctx, "renew", began, err)
	return err
}

// Complete implements keystore.Store.
func (s *timed) Complete(ctx context.Context, o keystore.Owner, p keystore.CompleteParams) error {
	began := time.Now()
	err := s.store.Complete(ctx, o, p)
	s.record(ctx, "complete", began, err)
	return err
}

// Release implements keystore.Store.
func (s *timed) Release(ctx context.Context, o keystore.Owner, p keystore.ReleaseParams) error {
	began := time.Now()
	err := s.store.Release(ctx, o, p)
	s.record(ctx, "release", began, err)
	return err
}

// Records implements keystore.Store.
func (s *timed) Records(ctx context.Context, q keystore.Query) ([]keystore.Record, error) {
	began := time.Now()
	recs, err := s.store.Records(ctx, q)
	s.record(ctx, "records", began, err)
	return recs, err
}

// Purge implements keystore.Store.
func (s *timed) Purge(ctx context.Context, limit int) (int, error) {
	began := time.Now()
	n, err := s.store.Purge(ctx, limit)
	s.record(ctx, "purge", began, err)
	return n, err
}

// InTx implements keystore.Transactor. What fn does is in its time, and an
// error of fn's is not the store's.
func (s timedTx) InTx(ctx context.Context, fn func(context.Context, keystore.Store) error) error {
	began := time.Now()
	var own error
	err := s.store.(keystore.Transactor).InTx(ctx, func(ctx context.Context, in keystore.Store) error {
		own = fn(ctx, &timed{in, s.observer})
		return own
	})
	if own != nil && errors.Is(err, own) {
		s.record(ctx, "transaction", began, nil, attribute.String("status", "rolled-back"))
	} else {
		s.record(ctx, "transaction", began, err)
	}
	return err
}

// storeCause is the error's type as an attribute: one of a few names.
func storeCause(err error) string {
	for _, known := range []struct {
		is   error
		name string
	}{
		{keystore.ErrFenced, "fenced"},
		{keystore.ErrFull, "full"},
		{keystore.ErrTooLarge, "too_large"},
		{keystore.ErrCorrupt, "corrupt"},
		{keystore.ErrFormat, "format"},
		{keystore.ErrInvalid, "invalid"},
		{context.DeadlineExceeded, "timeout"},
		{context.Canceled, "canceled"},
	} {
		if errors.Is(err, known.is) {
			return known.name
		}
	}
	return "_OTHER"
}
