package idemtest_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemtest"
)

// callerReports is what CheckCaller reports to.
type callerReports struct{ reports []string }

func (r *callerReports) Helper() {}

func (r *callerReports) Errorf(format string, args ...any) {
	r.reports = append(r.reports, fmt.Sprintf(format, args...))
}

// rules are the names of the rules that were reported, sorted.
func (r *callerReports) rules() (rules []string) {
	for _, report := range r.reports {
		fields := strings.SplitN(report, ": ", 3)
		rules = append(rules, fields[1])
	}
	slices.Sort(rules)
	return rules
}

// checkCaller checks in a bubble, where waits take no time.
func checkCaller(t *testing.T, c idemtest.CallerCheck) *callerReports {
	t.Helper()
	r := &callerReports{}
	synctest.Test(t, func(*testing.T) { idemtest.CheckCaller(r, c) })
	return r
}

// wantRules holds the reports against the rules that a caller breaks, and no
// others.
func wantRules(t *testing.T, r *callerReports, rules ...string) {
	t.Helper()
	slices.Sort(rules)
	if !slices.Equal(r.rules(), rules) {
		t.Errorf("found %q, want %q; the reports:\n%s", r.rules(), rules, strings.Join(r.reports, "\n"))
	}
	for _, report := range r.reports {
		for _, part := range []string{"when:", "expected:", "usual cause:", "mend:"} {
			if !strings.Contains(report, part) {
				t.Errorf("a report without %q:\n%s", part, report)
			}
		}
	}
}

// orderName is the application's name for the n-th intent.
func orderName(n int) string { return fmt.Sprint("order-", n) }

// orderBody is what the application sends for it.
func orderBody(n int) string {
	return fmt.Sprintf(`{"reference":%q,"amount":%d,"currency":"EUR"}`, orderName(n), 100*n)
}

// sendOnce sends one request; key "" sends none.
func sendOnce(ctx context.Context, hc *http.Client, url, key, body string) error {
	return post(ctx, hc, url, body, func(req *http.Request) {
		if key != "" {
			req.Header.Set("Idempotency-Key", key)
		}
	})
}

// post sends one request of the application, as change leaves it.
func post(ctx context.Context, hc *http.Client, url, body string, change func(*http.Request)) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	change(req)
	resp, err := hc.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return err
	}
	if resp.StatusCode/100 != 2 {
		return fmt.Errorf("answered %s", resp.Status)
	}
	return nil
}

// byHand is a retry loop such as applications have: it waits, and tries again.
func byHand(attempts int, try func(attempt int) error) (err error) {
	for i := range attempts {
		if err = try(i + 1); err == nil {
			return nil
		}
		time.Sleep(100 * time.Millisecond) // in a bubble
	}
	return err
}

// callOrder sends an order through a client that has idem's Transport.
func callOrder(ctx context.Context, c *idem.Client, hc *http.Client, url string, n int) error {
	hc.Transport = c.Transport(hc.Transport)
	return sendOnce(idem.WithIntent(ctx, idem.Intent{ID: orderName(n)}), hc, url, "", orderBody(n))
}

func newCaller(t *testing.T, cfg idem.Config) *idem.Client {
	t.Helper()
	cfg.Scope = "shop/charge"
	c, err := idem.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c
}
