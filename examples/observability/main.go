// Command observability watches both halves at work: a shop whose network is
// bad, and the payment provider that it charges cards at.
//
//	go run ./examples/observability
//	go run ./examples/observability -listen 127.0.0.1:9464    and keep /metrics there
//
// It makes 1,000 calls, and prints the metrics as Prometheus would read them,
// the log lines of the call that had the most trouble, from both halves, and
// its trace. What you would copy is in signals.go. dashboard.json is for
// Grafana, alerts.yml for Prometheus; docs/operations.md says what to do about
// each.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemtest"
	"github.com/idem-go/idem/keystore"
	"github.com/idem-go/idem/keystore/memstore"
)

func main() {
	calls := flag.Int("n", 1000, "how many `calls` to make")
	seed := flag.Uint64("seed", 1, "picks the faults of the network")
	listen := flag.String("listen", "", "serve /metrics at this `address` afterwards, until interrupted")
	flag.Parse()
	if err := show(context.Background(), os.Stdout, *calls, *seed, *listen); err != nil {
		fmt.Fprintln(os.Stderr, "observability:", err)
		os.Exit(1)
	}
}

// show runs the shop and prints what was seen of it.
func show(ctx context.Context, w io.Writer, calls int, seed uint64, listen string) error {
	sig, err := newSignals()
	if err != nil {
		return err
	}
	defer sig.shutdown(ctx)
	books, err := trade(ctx, sig, calls, seed)
	if err != nil {
		return err
	}
	page, err := sig.page()
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "%d calls, %d charges in the ledger. The metrics, without the buckets:\n\n%s\n", calls, books.ledger.Total(), short(page))
	digest, lines := sig.worst()
	fmt.Fprintf(w, "The log lines about the key %s, of both halves:\n\n%s\nIts trace:\n\n%s", digest, strings.Join(lines, "\n"), sig.trace(digest))
	if listen == "" {
		return nil
	}
	listener, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "\n/metrics is at http://%s/metrics, until you interrupt\n", listener.Addr())
	server := &http.Server{Handler: sig.handler(), ReadHeaderTimeout: 5 * time.Second}
	return server.Serve(listener)
}

// books are what the metrics are compared with: what was counted elsewhere.
type books struct {
	ledger   *idemtest.Ledger
	requests int            // that reached the provider
	attempts int            // that the network saw
	told     map[string]int // what callers were told: "executed joined"
	store    keystore.Store // of the shop
}

// trade makes the calls: three per order, by two processes that share a store,
// of which some come at the same time, some later, and some ask for something
// else.
func trade(ctx context.Context, sig *signals, calls int, seed uint64) (books, error) {
	b := books{told: map[string]int{}}
	serverStore, err := memstore.New(memstore.Config{})
	if err != nil {
		return b, err
	}
	watched, err := sig.observer.Store(serverStore)
	if err != nil {
		return b, err
	}
	provider, err := idemtest.NewProvider(idemtest.ProviderConfig{Store: watched, Wait: 50 * time.Millisecond, Observer: sig.both})
	if err != nil {
		return b, err
	}
	b.ledger = provider.Ledger()
	var mu sync.Mutex
	ts := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		b.requests++
		mu.Unlock()
		provider.ServeHTTP(w, r)
	}))
	defer ts.Close()
	base := &http.Transport{MaxIdleConnsPerHost: 32}
	defer base.CloseIdleConnections()
	network := &idemtest.Transport{Base: base, Plan: idemtest.Random(seed, 0.3)}

	store, err := memstore.New(memstore.Config{})
	if err != nil {
		return b, err
	}
	if _, err := sig.observer.WatchUnresolved(store); err != nil {
		return b, err
	}
	newClient := func() (*idem.Client, error) {
		return idem.New(idem.Config{Store: store, Scope: "acme/charge", Observer: sig.both, Policy: idem.Policy{
			AttemptTimeout: 200 * time.Millisecond, BaseDelay: time.Millisecond, MaxDelay: 5 * time.Millisecond, Overall: 5 * time.Second,
			InFlightWait: 2 * time.Second, RetryBudget: 1 << 20}})
	}
	var clients []*idem.Client
	for range 2 {
		c, err := newClient()
		if err != nil {
			return b, err
		}
		clients = append(clients, c)
	}
	note := func(outcome idem.Outcome, source idem.Source) {
		mu.Lock()
		defer mu.Unlock()
		b.told[outcome.String()+" "+source.String()]++
	}
	var work sync.WaitGroup
	next := make(chan int)
	for range 16 {
		work.Go(func() {
			for n := range next {
				order, amount := n/3, int64(100)
				if n%90 == 89 {
					amount = 999 // another amount under the order's key
				}
				note(charge(ctx, clients[n%2], network, ts.URL, order, amount))
			}
		})
	}
	for n := range calls {
		next <- n
	}
	close(next)
	work.Wait()
	b.attempts, b.store = len(network.Exchanges()), store
	for _, c := range clients {
		err = errors.Join(err, c.Shutdown(ctx))
	}
	ts.Close() // waits for requests whose callers have left
	return b, errors.Join(err, provider.Shutdown(ctx))
}

// charge charges a card for an order, and returns what is known then.
func charge(ctx context.Context, c *idem.Client, network http.RoundTripper, url string, order int, amount int64) (idem.Outcome, idem.Source) {
	reference := fmt.Sprint("order-", order)
	ctx = idem.WithIntent(ctx, idem.Intent{ID: reference})
	body := fmt.Sprintf(`{"reference":%q,"amount":%d,"currency":"EUR","card":"4242424242424242"}`, reference, amount)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/charges", strings.NewReader(body))
	if err != nil {
		return idem.OutcomeNotExecuted, 0
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := (&http.Client{Transport: c.Transport(network)}).Do(req)
	var failure *idem.Error
	switch {
	case errors.As(err, &failure):
		return failure.Outcome, 0
	case err != nil:
		return idem.OutcomeUnknown, 0
	}
	_ = resp.Body.Close()
	report := idem.ReportOf(resp)
	return report.Outcome, report.Source
}

// short is a page of metrics without comments and buckets.
func short(page []byte) string {
	lines := slices.DeleteFunc(strings.Split(string(bytes.TrimSpace(page)), "\n"), func(line string) bool {
		return !strings.HasPrefix(line, "idem_") || strings.Contains(line, "_bucket{")
	})
	return strings.Join(lines, "\n") + "\n"
}
