package idemtest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemtest"
	"github.com/idem-go/idem/keystore/memstore"
)

const (
	intents = 1000
	workers = 32
	// faultRate is high, so that some calls spend all their attempts.
	faultRate = 0.75
)

// TestRandomFaults sends 1,000 intents over TCP through faults of every kind,
// and holds what the callers were told against the ledger. IDEM_SEED repeats a
// run's choice of faults.
func TestRandomFaults(t *testing.T) {
	seed := rand.Uint64()
	if s := os.Getenv("IDEM_SEED"); s != "" {
		var err error
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatalf("IDEM_SEED: %v", err)
		}
	}
	t.Logf("IDEM_SEED=%d repeats this run", seed)
	t.Run("without a client store", func(t *testing.T) { randomRun(t, seed, idem.Config{}) })
	t.Run("with a client store", func(t *testing.T) {
		store, err := memstore.New(memstore.Config{})
		if err != nil {
			t.Fatal(err)
		}
		randomRun(t, seed+1, idem.Config{Store: store})
	})
}

// plan lets one intent in sixteen meet an outage, so that some are not executed
// at all, and the others faults of every kind.
func plan(seed uint64) idemtest.Plan {
	faults := idemtest.Random(seed, faultRate)
	outage := idemtest.Random(seed, 0.95, idemtest.Drop, idemtest.TooManyRequests(time.Millisecond))
	return func(key string, attempt int) idemtest.Fault {
		if strings.HasSuffix(key, "0") {
			return outage(key, attempt)
		}
		return faults(key, attempt)
	}
}

// told is what the caller of an intent was told.
type told struct {
	outcome idem.Outcome
	err     error
}

func randomRun(t *testing.T, seed uint64, cfg idem.Config) {
	leaks := goleak.IgnoreCurrent()
	provider, err := idemtest.NewProvider(idemtest.ProviderConfig{Wait: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	ts := httptest.NewUnstartedServer(provider)
	open := countConns(ts.Config)
	ts.Start()
	base := &http.Transport{MaxIdleConnsPerHost: workers}
	tr := &idemtest.Transport{Base: base, Plan: plan(seed)}
	ledger := provider.Ledger()

	cfg.Scope = "acme/charge"
	cfg.Policy = idem.Policy{AttemptTimeout: 300 * time.Millisecond, Overall: 20 * time.Second,
		BaseDelay: time.Millisecond, MaxDelay: 5 * time.Millisecond, InFlightWait: time.Second, RetryBudget: 1 << 20}
	first := drive(t, cfg, tr, ts.URL, slices.Repeat([]told{{}}, intents))
	seen := make(map[idem.Outcome]int)
	for i, r := range first {
		seen[r.outcome]++
		check(t, ledger, i, r)
	}

	// A restarted client asks again for what nobody knows.
	again := first
	for range 20 {
		again = drive(t, cfg, base, ts.URL, again)
	}
	for i, r := range again {
		if r.outcome == idem.OutcomeUnknown || r.outcome == idem.OutcomeInFlight {
			t.Errorf("%s is still %v: %v", orderID(i), r.outcome, r.err)
		}
		check(t, ledger, i, r)
	}
	ledger.AtMostOnce(t)

	t.Logf("first answers: %v; faults: %v", seen, tr.Counts())
	for _, o := range []idem.Outcome{idem.OutcomeExecuted, idem.OutcomeRejected, idem.OutcomeNotExecuted, idem.OutcomeUnknown} {
		if seen[o] == 0 {
			t.Errorf("nobody was told %v: the run proves nothing about it", o)
		}
	}
	checkFaults(t, tr)

	base.CloseIdleConnections()
	open.waitForNone()
	ts.Close()
	if err := provider.Shutdown(context.Background()); err != nil {
		t.Errorf("shutdown: %v", err)
	}
	goleak.VerifyNone(t, leaks)
}

// drive carries out every intent of which nobody knows, once, and returns what
// is known then. The zero told is Unknown.
func drive(t *testing.T, cfg idem.Config, base http.RoundTripper, url string, known []told) []told {
	client, err := idem.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	hc := &http.Client{Transport: client.Transport(base)}
	results := slices.Clone(known)
	next := make(chan int)
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for i := range next {
				results[i] = charge(t, hc, url, i)
			}
		})
	}
	for i, k := range known {
		if k.outcome == idem.OutcomeUnknown || k.outcome == idem.OutcomeInFlight {
			next <- i
		}
	}
	close(next)
	wg.Wait()
	if err := client.Shutdown(context.Background()); err != nil {
		t.Errorf("shutdown: %v", err)
	}
	return results
}

func orderID(i int) string { return fmt.Sprint("order-", i) }

// declined tells which charges the provider refuses.
func declined(i int) bool { return i%5 == 0 }

// charge carries out one intent, and checks that the answer is its own.
func charge(t *testing.T, hc *http.Client, url string, i int) told {
	c := idemtest.Charge{Reference: orderID(i), Amount: int64(100 + i), Currency: "EUR", Card: "4242424242424242"}
	if declined(i) {
		c.Card = idemtest.DeclinedCard
	}
	ctx := idem.WithIntent(context.Background(), idem.Intent{ID: c.Reference})
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/charges", bytes.NewReader(jsonOf(t, c)))
	if err != nil {
		t.Error(err)
		return told{}
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := hc.Do(req)
	body, err := bodyOf(resp, err)
	if err != nil {
		var failure *idem.Error
		if !errors.As(err, &failure) {
			t.Errorf("%s: the error is not idem's: %v", c.Reference, err)
			return told{}
		}
		return told{failure.Outcome, err}
	}
	var answer idemtest.Charge
	switch report := idem.ReportOf(resp); {
	case resp.StatusCode == http.StatusPaymentRequired && report.Outcome == idem.OutcomeRejected && declined(i):
		return told{report.Outcome, nil}
	case resp.StatusCode == http.StatusCreated && report.Outcome == idem.OutcomeExecuted:
		if err := json.Unmarshal([]byte(body), &answer); err != nil || answer.Reference != c.Reference || answer.Amount != c.Amount {
			t.Errorf("%s got the answer %s", c.Reference, body)
		}
		return told{report.Outcome, nil}
	default:
		t.Errorf("%s got %s as %v", c.Reference, resp.Status, report.Outcome)
		return told{report.Outcome, nil}
	}
}

// check holds what a caller was told against the ledger.
func check(t *testing.T, ledger *idemtest.Ledger, i int, r told) {
	n, want := ledger.Count(orderID(i)), 0
	switch r.outcome {
	case idem.OutcomeExecuted:
		want = 1
	case idem.OutcomeUnknown, idem.OutcomeInFlight:
		want = min(n, 1)
	}
	if n != want {
		t.Errorf("%s had %d effects; its caller was told %v (%v)", orderID(i), n, r.outcome, r.err)
	}
}

// checkFaults makes sure that the run met enough of every kind, and that an
// intent went out under one key and with one payload.
func checkFaults(t *testing.T, tr *idemtest.Transport) {
	counts := tr.Counts()
	for _, f := range idemtest.Faults() {
		if counts[f.String()] < 20 {
			t.Errorf("%v happened %d times, want 20", f, counts[f.String()])
		}
	}
	lost := 0
	payloads, keys := make(map[string]string), make(map[string]string)
	for _, x := range tr.Exchanges() {
		if slices.Contains(x.Answers, http.StatusCreated) && (x.Status != http.StatusCreated || x.Fault == "cut-body(1)") {
			lost++
		}
		if p, ok := payloads[x.Key]; ok && p != string(x.Body) {
			t.Errorf("the key %s was sent with %s and %s", x.Key, p, x.Body)
		}
		if k, ok := keys[string(x.Body)]; ok && k != x.Key {
			t.Errorf("%s was sent under %s and %s", x.Body, k, x.Key)
		}
		payloads[x.Key], keys[string(x.Body)] = string(x.Body), x.Key
	}
	if lost < 100 || len(keys) != intents {
		t.Errorf("%d replies were lost after the commit, want 100; %d payloads, want %d", lost, len(keys), intents)
	}
}

// conns counts a server's open connections.
type conns struct {
	mu   sync.Mutex // guards open
	cond *sync.Cond
	open int
}

func countConns(srv *http.Server) *conns {
	c := &conns{}
	c.cond = sync.NewCond(&c.mu)
	srv.ConnState = func(_ net.Conn, state http.ConnState) {
		c.mu.Lock()
		defer c.mu.Unlock()
		switch state {
		case http.StateNew:
			c.open++
		case http.StateClosed, http.StateHijacked:
			c.open--
			c.cond.Broadcast()
		}
	}
	return c
}

func (c *conns) waitForNone() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.open > 0 {
		c.cond.Wait()
	}
}
