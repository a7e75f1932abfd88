package idemtest_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemtest"
)

// TestCheckCallerFinds lets every kind of wrong caller be found by its rule,
// and by no other.
func TestCheckCallerFinds(t *testing.T) {
	for name, wrong := range map[string]struct {
		check func(t *testing.T) idemtest.CallerCheck
		rules []string
		says  string
	}{
		"a key for each attempt":         {just(keyInTheLoop), []string{"key-per-attempt"}, "the key is made inside the retry loop"},
		"a random key for each attempt":  {just(randomInTheLoop), []string{"key-per-attempt", "key-per-call"}, "the key is made inside the retry loop"},
		"a timestamp in the payload":     {just(timestamp), []string{"payload"}, "at was \"2000-01-01T00:00:00Z\", and is \"2000-01-01T00:00:00.1Z\""},
		"a constant key":                 {just(constantKey), []string{"shared-key"}, "a constant key"},
		"the user's key":                 {just(userKey), []string{"shared-key"}, "the user's ID"},
		"a loop above idem":              {loopAboveIdem, []string{"multiplied"}, "sent 12 requests"},
		"a loop above a loop":            {just(nestedLoops), []string{"multiplied"}, "sent 16 requests"},
		"a loop without an end":          {just(endless), []string{"multiplied"}, "sent 31 requests"},
		"a new key after 409":            {just(newKeyAfterConflict), []string{"key-per-attempt"}, "409 for another attempt at work"},
		"no key":                         {just(noKey), []string{"no-key"}, "carried no key (Idempotency-Key)"},
		"no key in retries":              {just(noKeyInRetries), []string{"no-key"}, "send 2 of call 1 for intent 2 carried no key"},
		"two keys":                       {just(twoKeys), []string{"no-key"}, `carried 2 keys (Idempotency-Key): ["order-1" "sdk-order-1"]`},
		"a long key":                     {just(longKey), []string{"no-key"}, "carried a key of 307 characters, and the server takes 255"},
		"a random key for each call":     {just(keyPerCall), []string{"key-per-call"}, "a random key for each call, which is not kept"},
		"a new key after an error":       {newKeyAfterError, []string{"key-per-call"}, "500 after the work"},
		"a new key after a breaker":      {newKeyAfterBreaker, []string{"key-per-call"}, "call 3 for intent 1"},
		"a random key in the payload":    {randomInBody, []string{"key-per-call"}, "carried the key"},
		"idem's Transport, not named":    {unnamed, []string{"key-per-call"}, "idem.Intent{ID: order.ID}"},
		"two keys at once":               {checkThenAct, []string{"key-per-call"}, "two calls at once"},
		"members in any order":           {just(anyOrder), []string{"payload"}, "the same JSON in other bytes"},
		"a random ID in the payload":     {just(randomID), []string{"payload"}, "a random ID in the payload"},
		"an attempt number":              {just(attemptNumber), []string{"payload"}, "meta.try[0] was 1, and is 2"},
		"an attempt number in the query": {just(attemptInQuery), []string{"payload"}, "a counter in the address"},
		"a random boundary":              {just(boundary), []string{"payload"}, "a random boundary"},
		"another method":                 {just(otherMethod), []string{"payload"}, "the method was POST, and is PATCH"},
		"another media type":             {just(otherMedia), []string{"payload"}, `the Content-Type was "application/json", and is "text/json"`},
		"sent twice to be sure":          {just(twiceToBeSure), []string{"after-success"}, "call 1 for intent 1 had its success, and sent again"},
		"sent again behind the call":     {behindTheCall, []string{"after-success"}, "had returned after a success, and sent again"},
		"a success that is not believed": {just(unbelieved), []string{"answer"}, "wanted 200"},
		"nothing sent":                   {just(nothing), []string{"nothing-sent"}, "returned: queue full"},
	} {
		t.Run(name, func(t *testing.T) {
			r := checkCaller(t, wrong.check(t))
			wantRules(t, r, wrong.rules...)
			if all := strings.Join(r.reports, "\n"); !strings.Contains(all, wrong.says) {
				t.Errorf("no report says %q:\n%s", wrong.says, all)
			}
		})
	}
}

type callFunc = func(ctx context.Context, hc *http.Client, url string, n int) error

func just(call callFunc) func(*testing.T) idemtest.CallerCheck {
	return func(*testing.T) idemtest.CallerCheck { return idemtest.CallerCheck{Call: call} }
}

// newKeyAfterConflict takes "another attempt under this key is at work" for "this
// key is taken".
func newKeyAfterConflict(ctx context.Context, hc *http.Client, url string, n int) error {
	key := orderName(n)
	return byHand(4, func(int) error {
		err := sendOnce(ctx, hc, url, key, orderBody(n))
		if err != nil && strings.Contains(err.Error(), "409") {
			key += "-again"
		}
		return err
	})
}

func keyInTheLoop(ctx context.Context, hc *http.Client, url string, n int) error {
	return byHand(4, func(i int) error {
		return sendOnce(ctx, hc, url, string(idem.DeriveKey(orderName(n), fmt.Sprint(i))), orderBody(n))
	})
}

func randomInTheLoop(ctx context.Context, hc *http.Client, url string, n int) error {
	return byHand(4, func(int) error { return sendOnce(ctx, hc, url, string(idem.NewKey()), orderBody(n)) })
}

func timestamp(ctx context.Context, hc *http.Client, url string, n int) error {
	return byHand(4, func(int) error {
		return sendOnce(ctx, hc, url, orderName(n), `{"amount":1,"at":"`+time.Now().UTC().Format(time.RFC3339Nano)+`"}`)
	})
}

func constantKey(ctx context.Context, hc *http.Client, url string, n int) error {
	return sendOnce(ctx, hc, url, "charge", orderBody(n))
}

func userKey(ctx context.Context, hc *http.Client, url string, n int) error {
	return sendOnce(ctx, hc, url, fmt.Sprint("user-", n%2), orderBody(n))
}

func loopAboveIdem(t *testing.T) idemtest.CallerCheck {
	c := newCaller(t, idem.Config{})
	return idemtest.CallerCheck{Call: func(ctx context.Context, hc *http.Client, url string, n int) error {
		wrapped := &http.Client{Transport: c.Transport(hc.Transport)}
		return byHand(3, func(int) error {
			return sendOnce(idem.WithIntent(ctx, idem.Intent{ID: orderName(n)}), wrapped, url, "", orderBody(n))
		})
	}}
}

func nestedLoops(ctx context.Context, hc *http.Client, url string, n int) error {
	return byHand(4, func(int) error {
		return byHand(4, func(int) error { return sendOnce(ctx, hc, url, orderName(n), orderBody(n)) })
	})
}

func endless(ctx context.Context, hc *http.Client, url string, n int) error {
	return byHand(1<<30, func(int) error { return sendOnce(ctx, hc, url, orderName(n), orderBody(n)) })
}

func noKey(ctx context.Context, hc *http.Client, url string, n int) error {
	return sendOnce(ctx, hc, url, "", orderBody(n))
}

func noKeyInRetries(ctx context.Context, hc *http.Client, url string, n int) error {
	return byHand(4, func(i int) error {
		if i == 1 {
			return sendOnce(ctx, hc, url, orderName(n), orderBody(n))
		}
		return sendOnce(ctx, hc, url, "", orderBody(n))
	})
}

func twoKeys(ctx context.Context, hc *http.Client, url string, n int) error {
	return post(ctx, hc, url, orderBody(n), func(req *http.Request) {
		req.Header["Idempotency-Key"] = []string{orderName(n), "sdk-" + orderName(n)}
	})
}

func longKey(ctx context.Context, hc *http.Client, url string, n int) error {
	return sendOnce(ctx, hc, url, orderName(n)+strings.Repeat("x", 300), orderBody(n))
}

func keyPerCall(ctx context.Context, hc *http.Client, url string, n int) error {
	key := string(idem.NewKey())
	return byHand(4, func(int) error { return sendOnce(ctx, hc, url, key, orderBody(n)) })
}

// newKeyAfterError keeps its keys, until a call fails.
func newKeyAfterError(*testing.T) idemtest.CallerCheck {
	keys := make(map[int]string)
	return idemtest.CallerCheck{Call: func(ctx context.Context, hc *http.Client, url string, n int) error {
		if keys[n] == "" {
			keys[n] = string(idem.NewKey())
		}
		err := byHand(4, func(int) error { return sendOnce(ctx, hc, url, keys[n], orderBody(n)) })
		if err != nil {
			delete(keys, n)
		}
		return err
	}}
}

// newKeyAfterBreaker refuses every second call for an intent, and has another
// key in the third.
func newKeyAfterBreaker(*testing.T) idemtest.CallerCheck {
	calls := make(map[int]int)
	return idemtest.CallerCheck{Call: func(ctx context.Context, hc *http.Client, url string, n int) error {
		calls[n]++
		if calls[n] == 2 {
			return errors.New("breaker open")
		}
		return sendOnce(ctx, hc, url, fmt.Sprint(orderName(n), "/", calls[n]), orderBody(n))
	}}
}

func randomInBody(*testing.T) idemtest.CallerCheck {
	return idemtest.CallerCheck{Contract: idem.Contract{Field: "key"}, Call: func(ctx context.Context, hc *http.Client, url string, n int) error {
		return sendOnce(ctx, hc, url, "", fmt.Sprintf(`{"amount":%d,"key":%q}`, n, idem.NewKey()))
	}}
}

func unnamed(t *testing.T) idemtest.CallerCheck {
	c := newCaller(t, idem.Config{})
	return idemtest.CallerCheck{Call: func(ctx context.Context, hc *http.Client, url string, n int) error {
		return sendOnce(ctx, &http.Client{Transport: c.Transport(hc.Transport)}, url, "", orderBody(n))
	}}
}

// checkThenAct looks for a key, and keeps one of its own if there is none; in
// between another call does the same.
func checkThenAct(*testing.T) idemtest.CallerCheck {
	var mu sync.Mutex
	keys := make(map[int]string)
	return idemtest.CallerCheck{Concurrent: true, Call: func(ctx context.Context, hc *http.Client, url string, n int) error {
		mu.Lock()
		key := keys[n]
		mu.Unlock()
		if key == "" {
			key = string(idem.NewKey())
			time.Sleep(time.Millisecond) // in a bubble
			mu.Lock()
			keys[n] = key
			mu.Unlock()
		}
		return byHand(4, func(int) error { return sendOnce(ctx, hc, url, key, orderBody(n)) })
	}}
}

func anyOrder(ctx context.Context, hc *http.Client, url string, n int) error {
	return byHand(4, func(i int) error {
		body := `{"amount":1,"currency":"EUR"}`
		if i == 2 {
			body = `{"currency":"EUR","amount":1}`
		}
		return sendOnce(ctx, hc, url, orderName(n), body)
	})
}

func randomID(ctx context.Context, hc *http.Client, url string, n int) error {
	return sendOnce(ctx, hc, url, orderName(n), fmt.Sprintf(`{"order":{"amount":1,"request":%q}}`, idem.NewKey()))
}

func attemptNumber(ctx context.Context, hc *http.Client, url string, n int) error {
	return byHand(4, func(i int) error {
		return sendOnce(ctx, hc, url, orderName(n), fmt.Sprintf(`{"amount":1,"meta":{"try":[%d]}}`, i))
	})
}

func attemptInQuery(ctx context.Context, hc *http.Client, url string, n int) error {
	return byHand(4, func(i int) error {
		return sendOnce(ctx, hc, fmt.Sprintf("%s/?n=%d&i=%d", url, n, i), orderName(n), orderBody(n))
	})
}

func boundary(ctx context.Context, hc *http.Client, url string, n int) error {
	return byHand(4, func(int) error {
		edge := rand.Text()
		body := "--" + edge + "\r\nContent-Disposition: form-data; name=\"amount\"\r\n\r\n1\r\n--" + edge + "--\r\n"
		return post(ctx, hc, url, body, func(req *http.Request) {
			req.Header.Set("Idempotency-Key", orderName(n))
			req.Header.Set("Content-Type", "multipart/form-data; boundary="+edge)
		})
	})
}

func otherMethod(ctx context.Context, hc *http.Client, url string, n int) error {
	return byHand(4, func(i int) error {
		return post(ctx, hc, url, orderBody(n), func(req *http.Request) {
			req.Header.Set("Idempotency-Key", orderName(n))
			if i > 1 {
				req.Method = http.MethodPatch
			}
		})
	})
}

func otherMedia(ctx context.Context, hc *http.Client, url string, n int) error {
	return byHand(4, func(i int) error {
		return post(ctx, hc, url, orderBody(n), func(req *http.Request) {
			req.Header.Set("Idempotency-Key", orderName(n))
			if i > 1 {
				req.Header.Set("Content-Type", "text/json")
			}
		})
	})
}

func twiceToBeSure(ctx context.Context, hc *http.Client, url string, n int) error {
	_ = sendOnce(ctx, hc, url, orderName(n), orderBody(n))
	return sendOnce(ctx, hc, url, orderName(n), orderBody(n))
}

// behindTheCall hedges, and does not call the hedge off.
func behindTheCall(*testing.T) idemtest.CallerCheck {
	return idemtest.CallerCheck{Call: func(ctx context.Context, hc *http.Client, url string, n int) error {
		if n == 1 {
			go func() {
				time.Sleep(time.Second) // in a bubble
				_ = sendOnce(ctx, hc, url, orderName(n), orderBody(n))
			}()
		}
		return byHand(4, func(int) error { return sendOnce(ctx, hc, url, orderName(n), orderBody(n)) })
	}}
}

func unbelieved(ctx context.Context, hc *http.Client, url string, n int) error {
	if err := sendOnce(ctx, hc, url, orderName(n), orderBody(n)); err != nil {
		return err
	}
	return errors.New("wanted 200")
}

func nothing(context.Context, *http.Client, string, int) error { return errors.New("queue full") }
