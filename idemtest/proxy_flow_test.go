package idemtest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemtest"
	"github.com/idem-go/idem/internal/servertest"
	"github.com/idem-go/idem/keystore/redisstore"
	"github.com/idem-go/idem/server"
)

// TestPartitionFromTheStore cuts a server off from its store while its handler
// runs. The reply is lost, the retry meets the partition, the next one is when
// it heals: there is one effect, and its answer is what the caller gets.
func TestPartitionFromTheStore(t *testing.T) {
	store := servertest.Redis(t, servertest.RedisOptions{})
	for _, moment := range []string{"before the effect", "after the effect"} {
		for way, set := range map[string]func(*idemtest.Proxy, idemtest.Link){
			"both ways": (*idemtest.Proxy).Set,
			"commands":  (*idemtest.Proxy).SetToServer,
			"replies":   (*idemtest.Proxy).SetToClient, // the store does what it is told
		} {
			t.Run(moment+", "+way, func(t *testing.T) {
				t.Parallel()
				partition(t, store.Addr, moment, set)
			})
		}
	}
}

func partition(t *testing.T, storeAddr, moment string, set func(*idemtest.Proxy, idemtest.Link)) {
	proxy, err := idemtest.NewProxy(storeAddr)
	if err != nil {
		t.Fatal(err)
	}
	rdb := redis.NewClient(&redis.Options{Addr: proxy.Addr(), ContextTimeoutEnabled: true, MaxRetries: -1,
		DialTimeout: 100 * time.Millisecond, ReadTimeout: 100 * time.Millisecond})
	store, err := redisstore.New(rdb, redisstore.Config{Prefix: idem.NewKey().String() + ":"})
	if err != nil {
		t.Fatal(err)
	}
	srv, err := server.New(server.Config{Store: store, Effects: server.Marked, Scope: server.SingleTenant, Wait: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}

	var ledger idemtest.Ledger
	var once sync.Once
	var parted atomic.Bool
	part := func(now string) {
		if now == moment {
			once.Do(func() {
				set(proxy, idemtest.Link{Partition: true})
				parted.Store(true)
			})
		}
	}
	ts := httptest.NewServer(srv.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		part("before the effect")
		if err := server.BeginEffect(r.Context()); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		n := ledger.Record("order-17")
		part("after the effect")
		w.WriteHeader(http.StatusCreated)
		_ = json.NewEncoder(w).Encode(idemtest.Charge{ID: fmt.Sprint("ch_", n)}) // who does not read it, asks again
	})))
	t.Cleanup(func() {
		ts.Close()
		if err := srv.Shutdown(context.Background()); err != nil {
			t.Errorf("shutdown: %v", err)
		}
		_ = rdb.Close() // its connections may be dead
		_ = proxy.Close()
	})

	var attempts atomic.Int64 // since the partition
	heal := idemtest.Fault{Name: "heal", RoundTrip: func(base http.RoundTripper, req *http.Request) (*http.Response, error) {
		proxy.Set(idemtest.Link{})
		return base.RoundTrip(req)
	}}
	impatient := roundTripFunc(func(req *http.Request) (*http.Response, error) {
		resp, err := ts.Client().Transport.RoundTrip(req)
		if err == nil {
			resp.Header.Del("Retry-After") // a second, which the test can do without
		}
		return resp, err
	})
	tr := &idemtest.Transport{Base: impatient, Plan: func(string, int) idemtest.Fault {
		switch {
		case !parted.Load():
			return idemtest.LoseReply
		case attempts.Add(1) == 2:
			return heal
		}
		return idemtest.Pass
	}}
	policy := idem.Policy{Attempts: 1000, BaseDelay: time.Millisecond, MaxDelay: 20 * time.Millisecond, AttemptTimeout: 30 * time.Second,
		Overall: time.Minute, InFlightWait: time.Minute, RetryBudget: 1000}
	first := pay17(t, &http.Client{Transport: newCaller(t, idem.Config{Policy: policy}).Transport(tr)}, ts.URL)
	again := pay17(t, &http.Client{Transport: newCaller(t, idem.Config{Policy: policy}).Transport(ts.Client().Transport)}, ts.URL)
	if first.body != "{\"id\":\"ch_1\",\"reference\":\"\",\"amount\":0,\"currency\":\"\"}\n" || again.body != first.body {
		t.Errorf("answered %q, and then %q", first.body, again.body)
	}
	if again.Source != idem.SourceReplayed {
		t.Errorf("the last answer was %v, want a replay", again.Source)
	}
	ledger.Once(t, "order-17")
	var under idemtest.Exchange // the attempt that met the partition
	for _, x := range tr.Exchanges() {
		if x.Fault == "heal" {
			break
		}
		under = x
	}
	if under.Fault != "pass" || under.Status != http.StatusServiceUnavailable && under.Status != http.StatusConflict {
		t.Errorf("the attempt in the partition: %s, %d, %v; want 503 or 409", under.Fault, under.Status, under.Err)
	}
}

// paid is an answer, and how it was obtained.
type paid struct {
	idem.Report
	body string
}

func pay17(t *testing.T, hc *http.Client, url string) (p paid) {
	t.Helper()
	req := newPost(t, url, "", `{"amount":1200}`)
	resp, err := hc.Do(req.WithContext(idem.WithIntent(req.Context(), idem.Intent{ID: "order-17"})))
	if err != nil {
		t.Fatal(err)
	}
	p.Report = idem.ReportOf(resp)
	p.body, err = bodyOf(resp, nil)
	if err != nil || resp.StatusCode != http.StatusCreated {
		t.Errorf("answered %s %q, %v", resp.Status, p.body, err)
	}
	return p
}
