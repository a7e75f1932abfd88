package idem_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/keystore/memstore"
)

// charge stands for a payment provider's API: it loses its first answer.
func charge() func(context.Context, idem.Key, order) (receipt, error) {
	done := map[idem.Key]receipt{}
	return func(_ context.Context, key idem.Key, o order) (receipt, error) {
		if r, ok := done[key]; ok {
			return r, nil
		}
		done[key] = receipt{fmt.Sprintf("ch_%d", len(done)+1)}
		return receipt{}, idem.Unknown(errors.New("connection reset"))
	}
}

func ExampleNew() {
	store, err := memstore.New(memstore.Config{}) // in production one that outlives the process
	if err != nil {
		log.Fatal(err)
	}
	client, err := idem.New(idem.Config{Store: store, Scope: "acme/charge", Policy: idem.Policy{Attempts: 3}})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(client.Shutdown(context.Background()))

	_, err = idem.New(idem.Config{RandomKeys: true})
	fmt.Println(err)
	// Output:
	// <nil>
	// idem: invalid config: Config.RandomKeys needs Config.Store: a random key that is not kept is another one after a restart
}

func ExampleDo() {
	store, _ := memstore.New(memstore.Config{})
	client, err := idem.New(idem.Config{Store: store, Scope: "acme/charge"})
	if err != nil {
		log.Fatal(err)
	}
	provider := charge()
	o := order{ID: "o-1001", Amount: 4200}
	for range 2 {
		res, err := idem.Do(context.Background(), client, idem.Intent{ID: o.ID, Payload: o},
			func(ctx context.Context, key idem.Key) (receipt, error) { return provider(ctx, key, o) })
		fmt.Println(res.Value.Charge, res.Source, res.Outcome, res.Attempts, err)
	}
	// Output:
	// ch_1 executed executed 2 <nil>
	// ch_1 replayed executed 0 <nil>
}

func ExampleWrap() {
	client, err := idem.New(idem.Config{Scope: "acme/charge"})
	if err != nil {
		log.Fatal(err)
	}
	chargeOnce := idem.Wrap(client, func(o order) idem.Intent { return idem.Intent{ID: o.ID} }, charge())
	r, err := chargeOnce(context.Background(), order{ID: "o-1001", Amount: 4200})
	fmt.Println(r.Charge, err)
	// Output: ch_1 <nil>
}

func ExampleWrapResult() {
	client, err := idem.New(idem.Config{Scope: "acme/charge"})
	if err != nil {
		log.Fatal(err)
	}
	chargeOnce := idem.WrapResult(client, func(o order) idem.Intent { return idem.Intent{ID: o.ID} }, charge())
	res, err := chargeOnce(context.Background(), order{ID: "o-1001", Amount: 4200})
	fmt.Println(res.Value.Charge, res.Key, res.Attempts, err)
	// Output: ch_1 0f1c3a57-6c9d-8538-8a90-78e2ef0059ac 2 <nil>
}

func ExampleClient_Transport() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Println(r.Method, r.Header.Get("Idempotency-Key") != "")
		w.WriteHeader(http.StatusCreated)
	}))
	defer server.Close()
	client, err := idem.New(idem.Config{})
	if err != nil {
		log.Fatal(err)
	}
	hc := &http.Client{Transport: client.Transport(nil)}
	defer hc.CloseIdleConnections()
	resp, err := hc.Post(server.URL, "application/json", nil)
	if err != nil {
		log.Fatal(err)
	}
	defer resp.Body.Close()
	fmt.Println(resp.StatusCode)
	// Output:
	// POST true
	// 201
}

func ExampleWithIntent() {
	failures := 2
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Println(r.Header.Get("Idempotency-Key"))
		if failures--; failures >= 0 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer server.Close()
	client, err := idem.New(idem.Config{Scope: "acme/charge", Policy: idem.Policy{MaxDelay: time.Millisecond}})
	if err != nil {
		log.Fatal(err)
	}
	hc := &http.Client{Transport: client.Transport(nil)}
	defer hc.CloseIdleConnections()
	ctx := idem.WithIntent(context.Background(), idem.Intent{ID: "o-1001"})
	req, _ := http.NewRequestWithContext(ctx, "POST", server.URL, nil)
	resp, err := hc.Do(req)
	if err != nil {
		log.Fatal(err)
	}
	defer resp.Body.Close()
	// Output:
	// 0f1c3a57-6c9d-8538-8a90-78e2ef0059ac
	// 0f1c3a57-6c9d-8538-8a90-78e2ef0059ac
	// 0f1c3a57-6c9d-8538-8a90-78e2ef0059ac
}

func ExampleReportOf() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Idempotent-Replayed", "true")
	}))
	defer server.Close()
	client, err := idem.New(idem.Config{})
	if err != nil {
		log.Fatal(err)
	}
	hc := &http.Client{Transport: client.Transport(nil)}
	defer hc.CloseIdleConnections()
	resp, err := hc.Post(server.URL, "", nil)
	if err != nil {
		log.Fatal(err)
	}
	defer resp.Body.Close()
	r := idem.ReportOf(resp)
	fmt.Println(r.Source, r.Outcome, r.Attempts, r.WireSends)
	// Output: replayed executed 1 1
}

func ExampleNewKey() {
	a, b := idem.NewKey(), idem.NewKey()
	fmt.Println(len(a), a == b)
	// Output: 36 false
}

func ExampleDeriveKey() {
	fmt.Println(idem.DeriveKey("charge", "o-1001"))
	fmt.Println(idem.DeriveKey("charge", "o-1001") == idem.DeriveKey("charge", "o-1002"))
	fmt.Println(idem.DeriveKey("charge", "") == "") // no order number, no key
	// Output:
	// a7bbf12f-a37b-8a9f-b600-2eeaf5d9587d
	// false
	// true
}

func ExampleParseKey() {
	for _, header := range []string{`"8e03978e"`, `8e03978e`, `8e03978e, 8e03978e`} {
		key, err := idem.ParseKey(header)
		fmt.Println(key, err != nil)
	}
	// Output:
	// 8e03978e false
	// 8e03978e false
	//  true
}

func ExampleKey_Child() {
	flow := idem.DeriveKey("order", "o-1001")
	reserve, capture := flow.Child("reserve"), flow.Child("capture")
	fmt.Println(reserve == capture)
	fmt.Println(reserve == idem.DeriveKey("order", "o-1001").Child("reserve")) // after a restart, say
	// Output:
	// false
	// true
}

func ExampleKeyFrom() {
	client, err := idem.New(idem.Config{Scope: "acme/order"})
	if err != nil {
		log.Fatal(err)
	}
	ship := func(ctx context.Context) bool { // deep inside the call
		key, ok := idem.KeyFrom(ctx)
		return ok && key.Child("ship") != ""
	}
	_, err = idem.Do(context.Background(), client, idem.Intent{ID: "o-1001"}, func(ctx context.Context, key idem.Key) (bool, error) {
		fmt.Println(ship(ctx))
		return true, nil
	})
	fmt.Println(err)
	// Output:
	// true
	// <nil>
}

func ExampleFingerprint() {
	a, _ := idem.Fingerprint(order{"o-1001", 4200})
	b, _ := idem.Fingerprint(map[string]any{"Amount": 4200, "ID": "o-1001"})
	fmt.Println(a == b)
	_, err := idem.Fingerprint(struct{ amount int }{4200})
	fmt.Println(errors.Is(err, idem.ErrInvalidIntent))
	// Output:
	// true
	// true
}

// failing is a call whose function returns err.
func failing(err error) error {
	client, _ := idem.New(idem.Config{Scope: "acme/charge", Policy: idem.Policy{MaxDelay: time.Millisecond}})
	_, err = idem.Do(context.Background(), client, idem.Intent{ID: "o-1001"},
		func(context.Context, idem.Key) (receipt, error) { return receipt{}, err })
	return err
}

func ExampleNotExecuted() {
	err := failing(idem.NotExecuted(errors.New("the queue is full"))) // try again: nothing was done
	fmt.Println(err)
	fmt.Println(errors.Is(err, idem.ErrNotExecuted))
	// Output:
	// idem: not-executed after 4 attempts (key digest 797ba9c81023): the queue is full
	// true
}

func ExampleRejected() {
	err := failing(idem.Rejected(errors.New("the card is stolen"))) // do not try again
	fmt.Println(err)
	fmt.Println(errors.Is(err, idem.ErrRejected))
	// Output:
	// idem: rejected after 1 attempt (key digest 797ba9c81023): the card is stolen
	// true
}

func ExampleUnknown() {
	err := failing(idem.Unknown(errors.New("no answer"))) // try again, with the same key only
	fmt.Println(err)
	fmt.Println(errors.Is(err, idem.ErrOutcomeUnknown))
	// Output:
	// idem: unknown after 4 attempts (key digest 797ba9c81023): no answer
	// true
}

func ExampleError() {
	err := fmt.Errorf("charging: %w", failing(errors.New("something broke")))
	var e *idem.Error
	if errors.As(err, &e) && e.Outcome == idem.OutcomeUnknown {
		fmt.Println("park", e.Scope, e.ID, e.Key, e.Last)
	}
	// Output: park acme/charge o-1001 0f1c3a57-6c9d-8538-8a90-78e2ef0059ac something broke
}

// A server without idempotency keys: what may have arrived is not sent again.
func Example_keyless() {
	client, err := idem.New(idem.Config{Scope: "acme/sms", Contract: idem.Keyless})
	if err != nil {
		log.Fatal(err)
	}
	_, err = idem.Do(context.Background(), client, idem.Intent{ID: "m-7"},
		func(context.Context, idem.Key) (receipt, error) {
			return receipt{}, idem.Unknown(errors.New("no answer"))
		})
	var e *idem.Error
	fmt.Println(errors.As(err, &e), e.Outcome, e.Attempts)
	// Output: true unknown 1
}

func ExampleContract() {
	acme := idem.Contract{
		Name:      "Acme Pay",
		Header:    "X-Acme-Request",
		Retention: 6 * time.Hour,
		Answers: []idem.Answer{
			{Status: 409, Code: "request_in_progress", Means: idem.MeansInFlight},
			{Status: 400, Code: "idempotency_mismatch", Means: idem.MeansMismatch},
		},
	}
	_, err := idem.New(idem.Config{Contract: acme})
	fmt.Println(err)
	// Output: <nil>
}

func ExamplePolicy() {
	_, err := idem.New(idem.Config{Policy: idem.Policy{
		Attempts:       6,
		AttemptTimeout: 2 * time.Second,
		Overall:        20 * time.Second,
		BaseDelay:      100 * time.Millisecond,
	}})
	fmt.Println(err)
	_, err = idem.New(idem.Config{Policy: idem.Policy{Multiplier: 0.5}})
	fmt.Println(err)
	// Output:
	// <nil>
	// idem: invalid config: Policy.Multiplier is 0.5; use 0 for 2, or a finite number of at least 1
}

// printer is an Observer that prints what it is told.
type printer struct{}

func (printer) Observe(_ context.Context, e idem.Event) {
	fmt.Println(e.Name, e.Scope, e.KeyDigest, len(e.Attempts))
}

func ExampleObserver() {
	client, err := idem.New(idem.Config{Scope: "acme/charge", Observer: printer{}})
	if err != nil {
		log.Fatal(err)
	}
	chargeOnce := idem.Wrap(client, func(o order) idem.Intent { return idem.Intent{ID: o.ID} }, charge())
	if _, err := chargeOnce(context.Background(), order{ID: "o-1001"}); err != nil {
		log.Fatal(err)
	}
	// Output: executed acme/charge 797ba9c81023 2
}
