package idemtest_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"testing"

	"github.com/idem-go/idem/idemtest"
)

func TestScriptIsPlayedForEachKey(t *testing.T) {
	tr := idemtest.NewTransport(answering, idemtest.StatusBefore(502), idemtest.Pass, idemtest.LoseReply)
	want := []string{"502-before", "pass", "lose-reply", "pass", "pass"}
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			for range want {
				_, _ = bodyOf(tr.RoundTrip(newPost(t, "http://provider.test/", fmt.Sprint("order-", i), "x")))
			}
		})
	}
	wg.Wait()
	faults := make(map[string][]string)
	for _, x := range tr.Exchanges() {
		faults[x.Key] = append(faults[x.Key], x.Fault)
		if x.Attempt != len(faults[x.Key]) {
			t.Errorf("%s: attempt %d came as number %d", x.Key, x.Attempt, len(faults[x.Key]))
		}
	}
	if len(faults) != 20 || len(tr.Keys()) != 20 {
		t.Errorf("%d keys were recorded, %d listed, want 20", len(faults), len(tr.Keys()))
	}
	for key, got := range faults {
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", key, got, want)
		}
	}
	if c := tr.Counts(); c["lose-reply"] != 20 || c["502-before"] != 20 || c["pass"] != 60 {
		t.Errorf("counts: %v", c)
	}
}

func TestExchangeShowsTheRequest(t *testing.T) {
	tr := idemtest.Transport{Base: answering, KeyHeader: "X-Request-Key"}
	req := newPost(t, "http://provider.test/charges?x=1", "", "12 EUR")
	req.Header.Set("X-Request-Key", "k1")
	if body, err := bodyOf(tr.RoundTrip(req)); body != "12 EUR" || err != nil {
		t.Errorf("got %q, %v", body, err)
	}
	x := tr.Exchanges()[0]
	if x.Key != "k1" || x.Method != "POST" || x.URL != "http://provider.test/charges?x=1" || string(x.Body) != "12 EUR" || x.Fault != "pass" {
		t.Errorf("got %+v", x)
	}
}

func TestRandomIsReproducible(t *testing.T) {
	pick := func(seed uint64) (picked []string) {
		plan := idemtest.Random(seed, 0.5)
		for key := range 40 {
			for attempt := range 5 {
				picked = append(picked, plan(fmt.Sprint(key), attempt+1).String())
			}
		}
		return picked
	}
	first := pick(1)
	if !slices.Equal(first, pick(1)) {
		t.Error("the same seed picks other faults")
	}
	if slices.Equal(first, pick(2)) {
		t.Error("another seed picks the same faults")
	}
	kinds := slices.Compact(slices.Sorted(slices.Values(first)))
	if want := len(idemtest.Faults()) + 1; len(kinds) != want {
		t.Errorf("200 attempts met %v, want all %d kinds", kinds, want)
	}
	passed := 0
	for _, f := range first {
		if f == "pass" {
			passed++
		}
	}
	if passed < 70 || passed > 130 {
		t.Errorf("%d of 200 attempts passed at a rate of 0.5", passed)
	}
}

func TestRandomRate(t *testing.T) {
	never, always := idemtest.Random(1, 0), idemtest.Random(1, 1, idemtest.Drop)
	for attempt := range 100 {
		if f := never("k", attempt); f.String() != "pass" {
			t.Fatalf("rate 0 picks %v", f)
		}
		if f := always("k", attempt); f.String() != "drop" {
			t.Fatalf("rate 1 picks %v", f)
		}
	}
}

// badBody fails when it is read, and notes that it was closed.
type badBody struct{ closed bool }

var errBody = errors.New("disk gone")

func (b *badBody) Read([]byte) (int, error) { return 0, errBody }
func (b *badBody) Close() error             { b.closed = true; return nil }

func TestRequestBodyThatFails(t *testing.T) {
	body := &badBody{}
	req := newPost(t, "http://provider.test/", "k", "")
	req.Body = body
	tr := idemtest.NewTransport(answering)
	if _, err := tr.RoundTrip(req); !errors.Is(err, errBody) || !body.closed {
		t.Errorf("got %v, closed: %v", err, body.closed)
	}
	if n := len(tr.Exchanges()); n != 0 {
		t.Errorf("%d exchanges were recorded of a request that could not be read", n)
	}
}

// idleCloser is a base that notes CloseIdleConnections.
type idleCloser struct {
	roundTripFunc
	closed int
}

func (c *idleCloser) CloseIdleConnections() { c.closed++ }

func TestCloseIdleConnections(t *testing.T) {
	base := &idleCloser{roundTripFunc: answering}
	(&http.Client{Transport: idemtest.NewTransport(base)}).CloseIdleConnections()
	if base.closed != 1 {
		t.Errorf("the base was asked %d times", base.closed)
	}
	// A base without idle connections is left alone.
	(&http.Client{Transport: idemtest.NewTransport(answering)}).CloseIdleConnections()
}

// A fault of one's own: the reply says the wrong thing.
func TestOwnFault(t *testing.T) {
	garble := idemtest.Fault{Name: "garble", RoundTrip: func(base http.RoundTripper, req *http.Request) (*http.Response, error) {
		resp, err := base.RoundTrip(req)
		if err == nil {
			resp.Body = io.NopCloser(io.MultiReader(resp.Body, resp.Body))
			resp.StatusCode = 299
		}
		return resp, err
	}}
	tr := idemtest.NewTransport(answering, garble)
	if _, err := bodyOf(tr.RoundTrip(newPost(t, "http://provider.test/", "k", "x"))); err != nil {
		t.Fatal(err)
	}
	if x := tr.Exchanges()[0]; x.Fault != "garble" || x.Status != 299 || !slices.Equal(x.Answers, []int{200}) {
		t.Errorf("got %+v", x)
	}
}
