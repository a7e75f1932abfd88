package idemtest_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"strings"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemtest"
)

// In a test, hand CheckCaller its *testing.T instead of the printer, and run it
// in synctest.Test, where the waits of the retries take no time.
func ExampleCheckCaller() {
	client, err := idem.New(idem.Config{Scope: "shop/charge", Policy: idem.Policy{BaseDelay: time.Millisecond}})
	if err != nil {
		log.Fatal(err)
	}
	idemtest.CheckCaller(printer{}, idemtest.CallerCheck{
		Slow: time.Millisecond,
		Call: func(ctx context.Context, hc *http.Client, url string, n int) error {
			hc.Transport = client.Transport(hc.Transport)
			return placeOrder(ctx, hc, url, fmt.Sprint("order-", n)) // your code
		},
	})
	fmt.Println("one key for each intent, and the same bytes each time")
	// Output: one key for each intent, and the same bytes each time
}

// placeOrder is the code under test.
func placeOrder(ctx context.Context, hc *http.Client, url, order string) error {
	ctx = idem.WithIntent(ctx, idem.Intent{ID: order})
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/orders", strings.NewReader(`{"order": "`+order+`"}`))
	if err != nil {
		return err
	}
	resp, err := hc.Do(req)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}
