package server

import (
	"fmt"
	"time"

	"github.com/idem-go/idem/keystore"
)

// route holds the settings that a route may have for itself.
type route struct {
	effects   Effects
	optional  bool
	wait      time.Duration
	maxRun    time.Duration
	retention time.Duration
	discard   bool // store a tombstone instead of the answer
}

// RouteOption changes a setting for one Handler or one call of Run. Zero
// durations mean the default, as in Config.
type RouteOption func(*route)

// WithEffects replaces Config.Effects.
func WithEffects(e Effects) RouteOption { return func(rt *route) { rt.effects = e } }

// WithOptional lets requests without a key through, unprotected.
func WithOptional() RouteOption { return func(rt *route) { rt.optional = true } }

// WithRequired refuses requests without a key, if Config.Optional is set.
func WithRequired() RouteOption { return func(rt *route) { rt.optional = false } }

// WithWait replaces Config.Wait.
func WithWait(d time.Duration) RouteOption { return func(rt *route) { rt.wait = d } }

// WithMaxRun replaces Config.MaxRun.
func WithMaxRun(d time.Duration) RouteOption { return func(rt *route) { rt.maxRun = d } }

// WithRetention replaces Config.Retention.
func WithRetention(d time.Duration) RouteOption { return func(rt *route) { rt.retention = d } }

// WithoutStoredAnswer keeps the answer out of the store, for routes that hand
// out secrets. That it was executed is still recorded: a retry is refused with
// response-not-retained.
func WithoutStoredAnswer() RouteOption { return func(rt *route) { rt.discard = true } }

// with returns the route with its options applied and checked.
func (rt route) with(opts []RouteOption, store keystore.Store) (route, error) {
	for _, opt := range opts {
		opt(&rt)
	}
	err := rt.settle(store)
	return rt, err
}

// settle fills in the defaults and reports the first rule that is broken.
func (rt *route) settle(store keystore.Store) error {
	if err := rt.effects.check(store); err != nil {
		return err
	}
	if rt.wait == 0 {
		rt.wait = defaultWait
	}
	if rt.maxRun == 0 {
		rt.maxRun = defaultMaxRun
	}
	if rt.retention == 0 {
		rt.retention = defaultRetention
	}
	switch {
	case rt.wait < 0 && rt.wait != NoWait:
		return badConfig("Wait", fmt.Sprintf("is %v; use 0 for %v, server.NoWait, or a positive duration", rt.wait, defaultWait))
	case rt.maxRun < 0:
		return badConfig("MaxRun", fmt.Sprintf("is %v; use 0 for %v, or a positive duration", rt.maxRun, defaultMaxRun))
	case rt.retention < 0:
		return badConfig("Retention", fmt.Sprintf("is %v; use 0 for %v, or a positive duration", rt.retention, defaultRetention))
	case rt.retention <= rt.wait:
		return badConfig("Retention", fmt.Sprintf("is %v, and Wait is %v; make Retention longer, or an answer can be gone before those who wait for it", rt.retention, rt.wait))
	}
	return nil
}
