package idemtest_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemtest"
)

// pay is the code under test.
func pay(hc *http.Client, provider, order string) (status string, report idem.Report, err error) {
	ctx := idem.WithIntent(context.Background(), idem.Intent{ID: order})
	body := strings.NewReader(`{"reference": "` + order + `", "amount": 1200, "currency": "EUR"}`)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, provider+"/charges", body)
	if err != nil {
		return "", idem.Report{}, err
	}
	resp, err := hc.Do(req)
	if err != nil {
		return "", idem.Report{}, err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return resp.Status, idem.ReportOf(resp), err
}

// The provider charges, but its reply is lost, and then a proxy gives up. The
// retries go out under the same key, and there is one charge.
func Example() {
	provider, err := idemtest.NewProvider(idemtest.ProviderConfig{})
	if err != nil {
		log.Fatal(err)
	}
	ts := httptest.NewServer(provider)
	defer ts.Close()
	client, err := idem.New(idem.Config{Scope: "acme/charge", Policy: idem.Policy{BaseDelay: time.Millisecond}})
	if err != nil {
		log.Fatal(err)
	}
	tr := idemtest.NewTransport(ts.Client().Transport, idemtest.LoseReply, idemtest.StatusAfter(502))

	status, report, err := pay(&http.Client{Transport: client.Transport(tr)}, ts.URL, "order-17")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(status, report.Source, "after", report.Attempts, "attempts")
	for _, x := range tr.Exchanges() {
		fmt.Println(x.Attempt, x.Fault, x.Answers, x.Status, x.Err)
	}
	fmt.Print(provider.Ledger())
	// Output:
	// 201 Created replayed after 3 attempts
	// 1 lose-reply [201] 0 EOF
	// 2 502-after [201] 502 <nil>
	// 3 pass [201] 201 <nil>
	// 1  order-17  1200 EUR
}

// Faults at random, reproducible by their seed.
func ExampleRandom() {
	provider, err := idemtest.NewProvider(idemtest.ProviderConfig{})
	if err != nil {
		log.Fatal(err)
	}
	ts := httptest.NewServer(provider)
	defer ts.Close()
	client, err := idem.New(idem.Config{Scope: "acme/charge", Policy: idem.Policy{BaseDelay: time.Millisecond}})
	if err != nil {
		log.Fatal(err)
	}
	const seed = 7
	tr := &idemtest.Transport{
		Base: ts.Client().Transport,
		Plan: idemtest.Random(seed, 0.7, idemtest.Drop, idemtest.LoseReply, idemtest.CutBody(10)),
	}
	hc := &http.Client{Transport: client.Transport(tr)}
	for i := range 20 {
		order := fmt.Sprint("order-", i)
		var failure *idem.Error
		switch _, _, err := pay(hc, ts.URL, order); {
		case err == nil && provider.Ledger().Count(order) != 1:
			fmt.Println(order, "was paid, but not charged once")
		case errors.As(err, &failure) && failure.Outcome == idem.OutcomeNotExecuted && provider.Ledger().Count(order) != 0:
			fmt.Println(order, "was charged, but is said not to be")
		}
	}
	fmt.Println("keys:", len(tr.Keys()), "replies lost:", tr.Counts()["lose-reply"] > 0)
	// Output: keys: 20 replies lost: true
}

// A fault of one's own: the reply comes from another tenant's account.
func ExampleFault() {
	swap := idemtest.Fault{Name: "swap", RoundTrip: func(base http.RoundTripper, req *http.Request) (*http.Response, error) {
		resp, err := base.RoundTrip(req)
		if err == nil {
			resp.Header.Set("Account", "somebody else")
		}
		return resp, err
	}}
	ts := httptest.NewServer(http.NotFoundHandler())
	defer ts.Close()
	hc := &http.Client{Transport: idemtest.NewTransport(ts.Client().Transport, swap)}
	resp, err := hc.Get(ts.URL)
	if err != nil {
		log.Fatal(err)
	}
	defer resp.Body.Close()
	fmt.Println(resp.Header.Get("Account"))
	// Output: somebody else
}

// printer is what a *testing.T is in a test.
type printer struct{}

func (printer) Helper() {}
func (printer) Errorf(format string, args ...any) {
	fmt.Printf(format, args...)
}

func ExampleLedger() {
	var ledger idemtest.Ledger
	ledger.Record("order-1", "ch_1", 1200, "EUR")
	ledger.Record("order-2", "ch_2", 700, "EUR")
	ledger.Record("order-2", "ch_3", 700, "EUR")
	ledger.Once(printer{}, "order-1", "order-2")
	// Output:
	// order-2 had 2 effects, want 1; the ledger:
	// 1  order-1  ch_1 1200 EUR
	// 2  order-2  ch_2 700 EUR
	// 3  order-2  ch_3 700 EUR
}

func ExampleNewProvider() {
	provider, err := idemtest.NewProvider(idemtest.ProviderConfig{})
	if err != nil {
		log.Fatal(err)
	}
	ts := httptest.NewServer(provider)
	defer ts.Close()
	for range 2 {
		req, err := http.NewRequest(http.MethodPost, ts.URL+"/charges", strings.NewReader(`{"reference": "order-17", "amount": 1200, "currency": "EUR"}`))
		if err != nil {
			log.Fatal(err)
		}
		req.Header.Set("Idempotency-Key", "5b2f")
		resp, err := ts.Client().Do(req)
		if err != nil {
			log.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		fmt.Println(resp.Status, "replayed:", resp.Header.Get("Idempotent-Replayed"))
	}
	fmt.Print(provider.Ledger())
	// Output:
	// 201 Created replayed: false
	// 201 Created replayed: true
	// 1  order-17  1200 EUR
}
