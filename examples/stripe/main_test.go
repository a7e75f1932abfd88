package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/stripe/stripe-go/v82"
	"go.uber.org/goleak"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/provider"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func Example() {
	if err := run(context.Background(), os.Stdout); err != nil {
		fmt.Println(err)
	}
	// Output:
	// the first reply is lost, and the second request meets the first one at work:
	//    pi_1 succeeded; requests: 3, keys: 1, charges: 1
	// the same order again, from anywhere:
	//    pi_1 succeeded; charges: 1
	// another amount under it:
	//    refused: true; charges: 1
	// a 500, which Stripe stores: nobody knows, and it is said so:
	//    outcome: unknown, attempts: 2, key kept: true
}

// start returns stripe-go over Transport, and what it talks to.
func start(t *testing.T, next ...disruption) (*stripe.Client, *fakeStripe) {
	t.Helper()
	fake := newFakeStripe(next...)
	t.Cleanup(fake.Close)
	client, err := idem.New(idem.Config{Scope: "shop/charge", Contract: provider.Stripe,
		Policy: idem.Policy{BaseDelay: time.Millisecond, MaxDelay: time.Millisecond}})
	if err != nil {
		t.Fatal(err)
	}
	base := &http.Transport{}
	t.Cleanup(base.CloseIdleConnections)
	return newStripe(client, base, fake.URL), fake
}

// What each of Stripe's answers comes to, through the SDK.
func TestAnswers(t *testing.T) {
	for _, tt := range []struct {
		name     string
		next     []disruption
		outcome  idem.Outcome // Executed is a result
		requests int
		charges  int
	}{
		{"nothing", nil, idem.OutcomeExecuted, 1, 1},
		{"reply lost after the commit", []disruption{{lose: true}}, idem.OutcomeExecuted, 2, 1},
		{"in use", []disruption{{status: 409, code: "idempotency_key_in_use"}, {status: 409, code: "idempotency_key_in_use"}}, idem.OutcomeExecuted, 3, 1},
		{"lock timeout", []disruption{{status: 429, code: "lock_timeout"}}, idem.OutcomeExecuted, 2, 1},
		{"500 before the execution", []disruption{{status: 500, code: "api_error"}}, idem.OutcomeExecuted, 2, 1},
		{"500, and it says not to retry", []disruption{{status: 500, code: "api_error", retry: "false"}}, idem.OutcomeUnknown, 1, 0},
		{"402", []disruption{{status: 402, code: "card_declined"}}, idem.OutcomeRejected, 1, 0},
		{"402, and it says to retry", []disruption{{status: 402, code: "card_declined", retry: "true"}}, idem.OutcomeExecuted, 2, 1},
		{"a stored 500", []disruption{{fail: true}}, idem.OutcomeUnknown, 2, 0},
		{"401", []disruption{{status: 401, code: "api_key_expired"}}, idem.OutcomeNotExecuted, 1, 0},
		{"mismatch", []disruption{{status: 400}}, idem.OutcomeUnknown, 1, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			sc, fake := start(t, tt.next...)
			pi, err := charge(t.Context(), sc, "order-17", 4200)
			var e *idem.Error
			var refused *stripe.Error
			switch {
			case tt.outcome == idem.OutcomeExecuted:
				if err != nil || pi.ID != "pi_1" {
					t.Errorf("%v, %v", pi, err)
				}
			case tt.outcome != idem.OutcomeUnknown:
				// A definite answer is the SDK's own error.
				if !errors.As(err, &refused) || refused.HTTPStatusCode != tt.next[0].status {
					t.Errorf("%v", err)
				}
			case !errors.As(err, &e) || e.Outcome != tt.outcome:
				t.Errorf("%v, want %v", err, tt.outcome)
			}
			if len(fake.keys) != tt.requests || fake.charges != tt.charges || distinct(fake.keys) != 1 {
				t.Errorf("%d requests under %q, %d charges", len(fake.keys), fake.keys, fake.charges)
			}
			if want := string(idem.DeriveKey("intent", "shop/charge", "order-17")); fake.keys[0] != want {
				t.Errorf("key %q; the SDK's own was to be outranked", fake.keys[0])
			}
		})
	}
}

// Without an intent the SDK's own key is taken as it is, on every attempt.
func TestOwnKey(t *testing.T) {
	sc, fake := start(t, disruption{lose: true})
	params := &stripe.PaymentIntentCreateParams{Amount: stripe.Int64(1), Currency: stripe.String("eur")}
	params.SetIdempotencyKey("mine-1")
	if _, err := sc.V1PaymentIntents.Create(t.Context(), params); err != nil {
		t.Fatal(err)
	}
	if _, err := sc.V1PaymentIntents.Create(t.Context(), &stripe.PaymentIntentCreateParams{Amount: stripe.Int64(1), Currency: stripe.String("eur")}); err != nil {
		t.Fatal(err)
	}
	if len(fake.keys) != 3 || fake.keys[0] != "mine-1" || fake.keys[1] != "mine-1" || fake.keys[2] == "mine-1" || fake.charges != 2 {
		t.Errorf("keys %q, %d charges", fake.keys, fake.charges)
	}
}

// What else the SDK sends under the intent's context is not the intent.
func TestSideRequests(t *testing.T) {
	sc, fake := start(t)
	ctx := idem.WithIntent(t.Context(), idem.Intent{ID: "order-17", Match: func(r *http.Request) bool { return r.URL.Path == "/v1/payment_intents" }})
	for range 2 {
		if _, err := sc.V1Balance.Retrieve(ctx, nil); err != nil {
			t.Error(err)
		}
		if _, err := sc.V1Customers.Create(ctx, nil); err != nil {
			t.Error(err)
		}
		if _, err := sc.V1PaymentIntents.Create(ctx, &stripe.PaymentIntentCreateParams{Amount: stripe.Int64(1), Currency: stripe.String("eur")}); err != nil {
			t.Error(err)
		}
	}
	key := string(idem.DeriveKey("intent", "shop/charge", "order-17"))
	if len(fake.keys) != 4 || fake.keys[0] == key || fake.keys[1] != key || fake.keys[3] != key || fake.keys[0] == fake.keys[2] {
		t.Errorf("keys %q, the intent's is %q", fake.keys, key)
	}
}
