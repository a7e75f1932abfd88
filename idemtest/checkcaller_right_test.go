package idemtest_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemtest"
	"github.com/idem-go/idem/keystore"
	"github.com/idem-go/idem/keystore/memstore"
)

// TestCheckCallerPasses lets right callers of every kind pass.
func TestCheckCallerPasses(t *testing.T) {
	for name, right := range map[string]func(t *testing.T) idemtest.CallerCheck{
		"idem's Transport":                          transportOnly,
		"idem's Transport with a store":             transportWithStore,
		"idem's Transport, a new process each time": newProcesses,
		"random keys that are kept":                 randomKept,
		"idem.Do":                                   doFunction,
		"idem.Wrap above idem's Transport":          wrapAboveTransport,
		"a loop by hand":                            just(loopByHand),
		"no retries":                                just(noRetries),
		"quoted and bare":                           just(quotedAndBare),
		"no context, and two at once":               withoutContext,
		"the key in the payload":                    keyInBody,
		"the key in a form":                         keyInForm,
		"a flow, one step of it":                    oneStep,
		"a provider as the server":                  withProvider,
	} {
		t.Run(name, func(t *testing.T) { wantRules(t, checkCaller(t, right(t))) })
	}
}

func newMemory(t *testing.T) keystore.Store {
	t.Helper()
	store, err := memstore.New(memstore.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return store
}

func transportOnly(t *testing.T) idemtest.CallerCheck {
	c := newCaller(t, idem.Config{})
	return idemtest.CallerCheck{Concurrent: true, Call: func(ctx context.Context, hc *http.Client, url string, n int) error {
		return callOrder(ctx, c, hc, url, n)
	}}
}

func transportWithStore(t *testing.T) idemtest.CallerCheck {
	c := newCaller(t, idem.Config{Store: newMemory(t)})
	return idemtest.CallerCheck{Concurrent: true, Call: func(ctx context.Context, hc *http.Client, url string, n int) error {
		return callOrder(ctx, c, hc, url, n)
	}}
}

func newProcesses(t *testing.T) idemtest.CallerCheck {
	store := newMemory(t)
	return idemtest.CallerCheck{Call: func(ctx context.Context, hc *http.Client, url string, n int) error {
		return callOrder(ctx, newCaller(t, idem.Config{Store: store}), hc, url, n)
	}}
}

func randomKept(t *testing.T) idemtest.CallerCheck {
	c := newCaller(t, idem.Config{Store: newMemory(t), RandomKeys: true})
	return idemtest.CallerCheck{Concurrent: true, Call: func(ctx context.Context, hc *http.Client, url string, n int) error {
		return callOrder(ctx, c, hc, url, n)
	}}
}

func doFunction(t *testing.T) idemtest.CallerCheck {
	c := newCaller(t, idem.Config{})
	return idemtest.CallerCheck{Concurrent: true, Call: func(ctx context.Context, hc *http.Client, url string, n int) error {
		in := idem.Intent{ID: orderName(n), Payload: orderBody(n)}
		_, err := idem.Do(ctx, c, in, func(ctx context.Context, key idem.Key) (string, error) {
			return "", sendOnce(ctx, hc, url, string(key), orderBody(n))
		})
		return err
	}}
}

func wrapAboveTransport(t *testing.T) idemtest.CallerCheck {
	c := newCaller(t, idem.Config{Store: newMemory(t)})
	return idemtest.CallerCheck{Call: func(ctx context.Context, hc *http.Client, url string, n int) error {
		wrapped := &http.Client{Transport: c.Transport(hc.Transport)}
		charge := idem.Wrap(c, func(n int) idem.Intent { return idem.Intent{ID: orderName(n)} },
			func(ctx context.Context, _ idem.Key, n int) (string, error) {
				return "", sendOnce(ctx, wrapped, url, "", orderBody(n))
			})
		_, err := charge(ctx, n)
		return err
	}}
}

func loopByHand(ctx context.Context, hc *http.Client, url string, n int) error {
	key := string(idem.DeriveKey("shop/charge", orderName(n)))
	return byHand(4, func(int) error { return sendOnce(ctx, hc, url, key, orderBody(n)) })
}

// noRetries fails, and is asked for again: that is a caller too.
func noRetries(ctx context.Context, hc *http.Client, url string, n int) error {
	return sendOnce(ctx, hc, url, orderName(n), orderBody(n))
}

// quotedAndBare spells one key in two ways (RFC 9651).
func quotedAndBare(ctx context.Context, hc *http.Client, url string, n int) error {
	return byHand(4, func(i int) error {
		return sendOnce(ctx, hc, url, []string{orderName(n), `"` + orderName(n) + `"`}[i%2], orderBody(n))
	})
}

// withoutContext has no call's context in its requests: of two calls at once,
// the second sends when the first has had its answer.
func withoutContext(*testing.T) idemtest.CallerCheck {
	var calls atomic.Int64
	return idemtest.CallerCheck{Concurrent: true, Call: func(_ context.Context, hc *http.Client, url string, n int) error {
		time.Sleep(time.Duration(calls.Add(1)) * time.Millisecond) // in a bubble
		return noRetries(context.Background(), hc, url, n)
	}}
}

func keyInBody(t *testing.T) idemtest.CallerCheck {
	contract := idem.Contract{Field: "meta.key"}
	c := newCaller(t, idem.Config{Contract: contract})
	return idemtest.CallerCheck{Contract: contract, Call: func(ctx context.Context, hc *http.Client, url string, n int) error {
		ctx = idem.WithIntent(ctx, idem.Intent{ID: orderName(n)})
		wrapped := &http.Client{Transport: c.Transport(hc.Transport)}
		return sendOnce(ctx, wrapped, url, "", fmt.Sprintf(`{"amount":%d,"meta":{"shop":1}}`, n))
	}}
}

func keyInForm(t *testing.T) idemtest.CallerCheck {
	contract := idem.Contract{Field: "key"}
	c := newCaller(t, idem.Config{Contract: contract})
	return idemtest.CallerCheck{Contract: contract, Call: func(ctx context.Context, hc *http.Client, url string, n int) error {
		ctx = idem.WithIntent(ctx, idem.Intent{ID: orderName(n)})
		wrapped := &http.Client{Transport: c.Transport(hc.Transport)}
		return post(ctx, wrapped, url, fmt.Sprint("amount=", n), func(req *http.Request) {
			req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		})
	}}
}

// oneStep asks for a token, reserves and captures, each with what it needs.
func oneStep(t *testing.T) idemtest.CallerCheck {
	c := newCaller(t, idem.Config{})
	return idemtest.CallerCheck{
		Match: func(req *http.Request) bool { return strings.HasSuffix(req.URL.Path, "/capture") },
		Call: func(ctx context.Context, hc *http.Client, url string, n int) error {
			if err := sendOnce(ctx, hc, url+"/token", "", `{"user":"shop"}`); err != nil {
				return err
			}
			wrapped := &http.Client{Transport: c.Transport(hc.Transport)}
			for _, step := range []string{"reserve", "capture"} {
				ctx := idem.WithIntent(ctx, idem.Intent{ID: orderName(n) + "/" + step})
				if err := sendOnce(ctx, wrapped, url+"/"+step, "", orderBody(n)); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

func withProvider(t *testing.T) idemtest.CallerCheck {
	p, err := idemtest.NewProvider(idemtest.ProviderConfig{})
	if err != nil {
		t.Fatal(err)
	}
	c := newCaller(t, idem.Config{})
	t.Cleanup(func() {
		p.Ledger().AtMostOnce(t)
		if p.Ledger().Total() == 0 {
			t.Error("the server of the check was not used")
		}
	})
	return idemtest.CallerCheck{Server: p, Concurrent: true, Call: func(ctx context.Context, hc *http.Client, url string, n int) error {
		return callOrder(ctx, c, hc, url+"/charges", n)
	}}
}
