package idem_test

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/keystore"
)

// events is an Observer that keeps what it is told.
type events struct {
	mu  sync.Mutex
	all []idem.Event
}

func (o *events) Observe(_ context.Context, e idem.Event) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.all = append(o.all, e)
}

// take returns the events since the last call.
func (o *events) take() []idem.Event {
	o.mu.Lock()
	defer o.mu.Unlock()
	all := o.all
	o.all = nil
	return all
}

func (o *events) only(t *testing.T) idem.Event {
	t.Helper()
	all := o.take()
	if len(all) != 1 {
		t.Fatalf("%d events, want 1: %v", len(all), all)
	}
	return all[0]
}

func TestObserverNames(t *testing.T) {
	down := &hookStore{hook: func(string, func() error) error { return errBoom }}
	for _, tt := range []struct {
		want string
		do   func(t *testing.T, c *idem.Client, o *events)
		cfg  idem.Config
	}{
		{idem.EventExecuted, func(t *testing.T, c *idem.Client, o *events) {
			idem.Do(t.Context(), c, intent, answers(nil).call)
		}, idem.Config{}},
		{idem.EventExecuted, func(t *testing.T, c *idem.Client, o *events) {
			idem.Do(t.Context(), c, idem.Intent{}, answers(nil).call)
		}, idem.Config{}},
		{idem.EventReplayed, func(t *testing.T, c *idem.Client, o *events) {
			idem.Do(t.Context(), c, intent, answers(nil).call)
			o.take()
			idem.Do(t.Context(), c, intent, answers(nil).call)
		}, idem.Config{Store: newStore(t)}},
		{idem.EventMismatch, func(t *testing.T, c *idem.Client, o *events) {
			idem.Do(t.Context(), c, intent, answers(nil).call)
			o.take()
			idem.Do(t.Context(), c, idem.Intent{Scope: "shop", ID: "o1", Payload: 1}, answers(nil).call)
		}, idem.Config{Store: newStore(t)}},
		{idem.EventRefused, func(t *testing.T, c *idem.Client, o *events) {
			idem.Do(t.Context(), c, intent, answers(idem.Rejected(errBoom)).call)
		}, idem.Config{}},
		{idem.EventRefused, func(t *testing.T, c *idem.Client, o *events) {
			idem.Do(t.Context(), c, idem.Intent{Key: " "}, answers(nil).call)
		}, idem.Config{}},
		{idem.EventFailed, func(t *testing.T, c *idem.Client, o *events) {
			idem.Do(t.Context(), c, intent, answers(idem.NotExecuted(errBoom)).call)
		}, idem.Config{}},
		{idem.EventUnresolved, func(t *testing.T, c *idem.Client, o *events) {
			idem.Do(t.Context(), c, intent, answers(errBoom).call)
		}, idem.Config{}},
		{idem.EventUnresolved, func(t *testing.T, c *idem.Client, o *events) {
			done := make(chan struct{})
			go func() {
				defer close(done)
				idem.Do(t.Context(), c, idem.Intent{}, func(context.Context, idem.Key) (int, error) {
					runtime.Goexit()
					return 0, nil
				})
			}()
			<-done
		}, idem.Config{}},
		{idem.EventInFlight, func(t *testing.T, c *idem.Client, o *events) {
			idem.Do(t.Context(), c, intent, answers(errBoom).call)
		}, idem.Config{Classify: func(error) (idem.Outcome, bool) { return idem.OutcomeInFlight, true }}},
		{idem.EventStoreError, func(t *testing.T, c *idem.Client, o *events) {
			idem.Do(t.Context(), c, intent, answers(nil).call)
		}, idem.Config{Store: down}},
		{idem.EventFailed, func(t *testing.T, c *idem.Client, o *events) {
			c.Shutdown(t.Context())
			idem.Do(t.Context(), c, intent, answers(nil).call)
		}, idem.Config{}},
	} {
		t.Run(tt.want, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := &events{}
				tt.cfg.Observer = o
				tt.do(t, newClient(t, tt.cfg), o)
				if e := o.only(t); e.Name != tt.want || e.Half != "client" {
					t.Errorf("%s of the %s half, want %s: %v", e.Name, e.Half, tt.want, e.Err)
				}
			})
		})
	}
}

func TestObserverFenced(t *testing.T) {
	o := &events{}
	store := &hookStore{Store: newStore(t), hook: func(method string, call func() error) error {
		if method == "complete" {
			return keystore.ErrFenced
		}
		return call()
	}}
	res, err := idem.Do(t.Context(), newClient(t, idem.Config{Store: store, Observer: o}), intent, answers(nil).call)
	wantSource(t, res, err, idem.SourceExecuted)
	if e := o.only(t); e.Name != idem.EventFenced {
		t.Error(e.Name)
	}
}

// Every caller of a flight has an event of its own; only the one that made the
// attempts lists them.
func TestObserverJoined(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := &events{}
		c := newClient(t, idem.Config{Observer: o})
		for range 3 {
			go idem.Do(t.Context(), c, intent, func(context.Context, idem.Key) (int, error) {
				time.Sleep(time.Second)
				return 1, nil
			})
		}
		time.Sleep(2 * time.Second)
		var names []string
		attempts := 0
		for _, e := range o.take() {
			names = append(names, e.Name)
			attempts += len(e.Attempts)
		}
		slices.Sort(names)
		if !slices.Equal(names, []string{idem.EventExecuted, idem.EventJoined, idem.EventJoined}) || attempts != 1 {
			t.Errorf("%v with %d attempts; want one executed, two joined, 1", names, attempts)
		}
	})
}

func TestEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := &events{}
		c := newClient(t, idem.Config{Observer: o, Policy: idem.Policy{BaseDelay: time.Millisecond, MaxDelay: time.Millisecond}})
		began := time.Now()
		s := answers(idem.NotExecuted(errBoom), idem.Unknown(errBoom), nil)
		if _, err := idem.Do(t.Context(), c, idem.Intent{Scope: "shop", Key: "secret-key-1"}, s.call); err != nil {
			t.Fatal(err)
		}
		e := o.only(t)
		if e.KeyDigest != idem.Key("secret-key-1").Digest() || len(e.KeyDigest) != 12 {
			t.Errorf("digest %q", e.KeyDigest)
		}
		if e.Scope != "shop" || e.Outcome != idem.OutcomeExecuted || e.Source != idem.SourceExecuted || e.Err != nil ||
			!e.Started.Equal(began) || e.Duration != 2*time.Millisecond {
			t.Errorf("%+v", e)
		}
		var outcomes []idem.Outcome
		for i, a := range e.Attempts {
			outcomes = append(outcomes, a.Outcome)
			if a.Number != i+1 || (a.Wait > 0) != (i > 0) || (a.Err != nil) != (i < 2) {
				t.Errorf("attempt %d: %+v", i, a)
			}
		}
		if !slices.Equal(outcomes, []idem.Outcome{idem.OutcomeNotExecuted, idem.OutcomeUnknown, idem.OutcomeExecuted}) {
			t.Error(outcomes)
		}
	})
}

// An error's text, like an event, names a key by its digest only.
func TestErrorHidesKey(t *testing.T) {
	o := &events{}
	c := newClient(t, idem.Config{Observer: o})
	_, err := idem.Do(t.Context(), c, idem.Intent{Key: "secret-key-1"}, answers(errBoom).call)
	e := failure(t, err)
	if e.Key != "secret-key-1" || strings.Contains(err.Error(), "secret") || !strings.Contains(err.Error(), e.Key.Digest()) {
		t.Errorf("key %q, text %q", e.Key, err)
	}
	if got := o.only(t); !errors.Is(got.Err, errBoom) || strings.Contains(got.Err.Error(), "secret") {
		t.Errorf("event with %v", got.Err)
	}
}

type panickyObserver struct{}

func (panickyObserver) Observe(context.Context, idem.Event) { panic("observer") }

func TestObserverPanics(t *testing.T) {
	c := newClient(t, idem.Config{Observer: panickyObserver{}})
	for _, in := range []idem.Intent{intent, {}} {
		res, err := idem.Do(t.Context(), c, in, answers(nil).call)
		wantSource(t, res, err, idem.SourceExecuted)
	}
	_, err := idem.Do(t.Context(), c, idem.Intent{Key: " "}, answers(nil).call)
	wantOutcome(t, err, idem.OutcomeRejected, idem.ErrInvalidKey)
}
