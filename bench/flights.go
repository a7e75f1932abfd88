package main

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/singleflight"

	"github.com/idem-go/idem"
)

const (
	flightDo     = "singleflight Do"
	flightDoChan = "singleflight DoChan"
	flightIdem   = "idem.Do"
)

// flights compare ways to merge callers in one process: one caller alone, and
// crowds that all want the same.
func flights() []group {
	return []group{
		{name: "flights, alone", contenders: []contender{
			{name: flightDo, open: alone(doFlight), checks: []check{ratio(flightDoChan)}},
			{name: flightDoChan, open: alone(doChanFlight)},
			{name: flightIdem, open: alone(idemFlight), checks: []check{ratio(flightDoChan).within(1.8), allocations().within(10)}},
		}},
		{name: "flights, 64 callers of one intent", contenders: []contender{
			{name: flightDo, open: together(doFlight, crowd)},
			{name: flightDoChan, open: together(doChanFlight, crowd), checks: []check{ratio(flightDo)}},
			{name: flightIdem, open: together(idemFlight, crowd), checks: []check{ratio(flightDo).within(2), ratio(flightDoChan)}},
		}},
		{name: "flights, 10,000 callers of one intent", contenders: []contender{
			{name: flightDo, open: together(doFlight, 10_000)},
			{name: flightDoChan, open: together(doChanFlight, 10_000), checks: []check{ratio(flightDo)}},
			{name: flightIdem, open: together(idemFlight, 10_000), checks: []check{ratio(flightDo), ratio(flightDoChan)}},
		}},
	}
}

// merger calls fn once for all who ask for the ID meanwhile.
type merger func(id string, fn func() (string, error)) (string, error)

func doFlight(*stage) (merger, error) {
	var g singleflight.Group
	return func(id string, fn func() (string, error)) (string, error) {
		v, err, _ := g.Do(id, func() (any, error) { return fn() })
		s, _ := v.(string)
		return s, err
	}, nil
}

// doChanFlight is what it takes with singleflight to leave when the context
// ends.
func doChanFlight(s *stage) (merger, error) {
	var g singleflight.Group
	return func(id string, fn func() (string, error)) (string, error) {
		select {
		case res := <-g.DoChan(id, func() (any, error) { return fn() }):
			v, _ := res.Val.(string)
			return v, res.Err
		case <-s.Done():
			return "", s.Err()
		}
	}, nil
}

func idemFlight(s *stage) (merger, error) {
	client, err := idem.New(idem.Config{Scope: "bench"})
	if err != nil {
		return nil, err
	}
	s.onEnd(func() { _ = client.Shutdown(context.Background()) })
	return func(id string, fn func() (string, error)) (string, error) {
		res, err := idem.Do(s, client, idem.Intent{ID: id}, func(context.Context, idem.Key) (string, error) { return fn() })
		return res.Value, err
	}, nil
}

const receipt = "receipt 17"

var errReceipt = errors.New("another result")

// alone is one caller, each time with another ID.
func alone(open func(*stage) (merger, error)) func(*stage) (func(int) error, error) {
	ids := make([]string, 1024)
	for i := range ids {
		ids[i] = "order-" + strconv.Itoa(i)
	}
	return func(s *stage) (func(int) error, error) {
		merge, err := open(s)
		fn := func() (string, error) { return receipt, nil }
		return func(n int) error { return got(merge(ids[n%len(ids)], fn)) }, err
	}
}

// together is a crowd that asks for one ID, from the start of its goroutines to
// the last one's answer. The call ends when all have come.
func together(open func(*stage) (merger, error), callers int) func(*stage) (func(int) error, error) {
	return func(s *stage) (func(int) error, error) {
		merge, err := open(s)
		callers := s.callers(callers)
		return func(int) error {
			var came, failures atomic.Int64
			var all sync.WaitGroup
			complete := make(chan struct{})
			fn := func() (string, error) { <-complete; return receipt, nil }
			for range callers {
				all.Go(func() {
					if came.Add(1) == int64(callers) {
						close(complete)
					}
					if got(merge("order-17", fn)) != nil {
						failures.Add(1)
					}
				})
			}
			all.Wait()
			if failures.Load() > 0 {
				return errReceipt
			}
			return nil
		}, err
	}
}

func got(value string, err error) error {
	if err == nil && value != receipt {
		err = errReceipt
	}
	return err
}
