// Command resilience puts a circuit breaker, a validation and a fallback to a
// second provider inside a keyed call, and shows what they count:
//
//		go run ./examples/resilience
//
//	  - callers who join or get a stored result start none of them;
//	  - the second provider is asked after a definite no only, never where the
//	    first one may have charged;
//	  - layers do not multiply attempts: what is inside is repeated by the
//	    outermost call alone.
//
// What you would copy is in pay.go. The exit status is 1 if something is not as
// it should be.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"sync"
	"time"

	"github.com/sony/gobreaker/v2"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemtest"
	"github.com/idem-go/idem/keystore/memstore"
)

func main() {
	if err := run(context.Background(), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "resilience:", err)
		os.Exit(1)
	}
}

// stage is two providers, and the network to each.
type stage struct {
	payments
	provider [2]*idemtest.Provider
	network  [2]*idemtest.Transport
	plan     idemtest.Plan // of the first one's network
	before   [5]int        // what was counted so far
	ends     []func()
}

func newStage() (*stage, error) {
	s := &stage{}
	store, err := memstore.New(memstore.Config{})
	if err != nil {
		return nil, err
	}
	s.client, err = idem.New(idem.Config{Store: store, Scope: "acme/pay",
		Policy: idem.Policy{Attempts: 3, BaseDelay: time.Millisecond, MaxDelay: time.Millisecond}})
	if err != nil {
		return nil, err
	}
	for i, g := range []**gate{&s.first, &s.second} {
		p, err := idemtest.NewProvider(idemtest.ProviderConfig{})
		if err != nil {
			return nil, err
		}
		ts := httptest.NewServer(p)
		s.ends = append(s.ends, ts.Close, func() { _ = p.Shutdown(context.Background()) })
		s.provider[i], s.network[i] = p, idemtest.NewTransport(ts.Client().Transport)
		*g = &gate{url: ts.URL, http: &http.Client{Transport: s.client.Transport(s.network[i])},
			breaker: gobreaker.NewCircuitBreaker[idemtest.Charge](gobreaker.Settings{
				Timeout:     2 * time.Second,
				ReadyToTrip: func(c gobreaker.Counts) bool { return c.ConsecutiveFailures >= 3 },
			})}
	}
	s.network[0].Plan = func(key string, attempt int) idemtest.Fault {
		if s.plan == nil {
			return idemtest.Pass
		}
		return s.plan(key, attempt)
	}
	return s, nil
}

func (s *stage) end() {
	for _, end := range s.ends {
		end()
	}
}

func order(id string, amount int64) idemtest.Charge {
	return idemtest.Charge{Reference: id, Amount: amount, Currency: "EUR", Card: "4242424242424242"}
}

func run(ctx context.Context, out io.Writer) error {
	s, err := newStage()
	if err != nil {
		return err
	}
	defer s.end()

	fmt.Fprintln(out, "five callers at once, and one later: one validation, one request")
	s.provider[0].SetDelay(20 * time.Millisecond)
	var all sync.WaitGroup
	for range 5 {
		all.Go(func() { _, _ = s.pay(ctx, order("order-1", 100)) })
	}
	all.Wait()
	res, err := s.pay(ctx, order("order-1", 100))
	s.provider[0].SetDelay(0)
	if err := s.expect(out, res, err, "replayed, validated 1, requests 1 and 0, charges 1 and 0"); err != nil {
		return err
	}

	fmt.Fprintln(out, "an invalid payment: refused before any breaker or provider")
	res, err = s.pay(ctx, order("order-2", -1))
	if err := s.expect(out, res, err, "rejected, validated 1, requests 0 and 0, charges 0 and 0"); err != nil {
		return err
	}

	fmt.Fprintln(out, "the first provider can't be reached: definitely not charged, so the second one is asked")
	s.plan = func(string, int) idemtest.Fault { return idemtest.StatusBefore(429) }
	res, err = s.pay(ctx, order("order-3", 100))
	if err := s.expect(out, res, err, "executed, validated 1, requests 1 and 1, charges 0 and 1"); err != nil {
		return err
	}

	fmt.Fprintln(out, "the first provider's replies are lost: it may have charged, so the second one is not asked")
	s.plan = func(string, int) idemtest.Fault { return idemtest.LoseReply }
	res, err = s.pay(ctx, order("order-4", 100))
	if err := s.expect(out, res, err, "unknown, validated 3, requests 2 and 0, charges 1 and 0"); err != nil {
		return err
	}

	fmt.Fprintln(out, "once more, while the breaker is open: that this attempt sent nothing proves nothing of the others")
	res, err = s.pay(ctx, order("order-4", 100))
	if err := s.expect(out, res, err, "unknown, validated 1, requests 0 and 0, charges 0 and 0"); err != nil {
		return err
	}

	fmt.Fprintln(out, "later, when it is back: the same key, the stored charge")
	s.plan = nil
	for s.first.breaker.State() == gobreaker.StateOpen {
		<-time.After(10 * time.Millisecond)
	}
	res, err = s.pay(ctx, order("order-4", 100))
	return s.expect(out, res, err, "executed, validated 1, requests 1 and 0, charges 0 and 0")
}

// expect compares what a payment came to, and what was counted since the last
// one.
func (s *stage) expect(out io.Writer, res idem.Result[idemtest.Charge], err error, want string) error {
	told := res.Source.String()
	var failure *idem.Error
	if errors.As(err, &failure) {
		told = failure.Outcome.String()
	}
	now := [...]int{s.validated, len(s.network[0].Exchanges()), len(s.network[1].Exchanges()), s.provider[0].Ledger().Total(), s.provider[1].Ledger().Total()}
	got := fmt.Sprintf("%s, validated %d, requests %d and %d, charges %d and %d", told,
		now[0]-s.before[0], now[1]-s.before[1], now[2]-s.before[2], now[3]-s.before[3], now[4]-s.before[4])
	s.before = now
	fmt.Fprintln(out, "  ", got)
	if got != want {
		return fmt.Errorf("that is wrong: it should be %s", want)
	}
	return nil
}
