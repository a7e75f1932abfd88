package idemtest_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemtest"
)

// The connection is broken off while the provider charges. The retry comes over
// another one, and there is one charge.
func ExampleProxy() {
	var proxy *idemtest.Proxy
	provider, err := idemtest.NewProvider(idemtest.ProviderConfig{
		BeforeEffect: func(context.Context, idemtest.Charge) { proxy.Reset() },
	})
	if err != nil {
		log.Fatal(err)
	}
	ts := httptest.NewServer(provider)
	defer ts.Close()
	if proxy, err = idemtest.NewProxy(ts.Listener.Addr().String()); err != nil {
		log.Fatal(err)
	}
	defer proxy.Close()
	proxy.Set(idemtest.Link{Latency: time.Millisecond, Slice: 10}) // a poor one, besides

	client, err := idem.New(idem.Config{Scope: "acme/charge", Policy: idem.Policy{BaseDelay: time.Millisecond}})
	if err != nil {
		log.Fatal(err)
	}
	base := &http.Transport{}
	defer base.CloseIdleConnections()
	status, report, err := pay(&http.Client{Transport: client.Transport(base)}, "http://"+proxy.Addr(), "order-17")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(status, report.Source, "after", report.Attempts, "attempts")
	fmt.Print(provider.Ledger())
	// Output:
	// 201 Created replayed after 2 attempts
	// 1  order-17  1200 EUR
}
