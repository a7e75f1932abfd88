package idemtest_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/idem-go/idem/idemtest"
	"github.com/idem-go/idem/keystore"
)

// notes is a TB that keeps what it is told.
type notes struct {
	mu    sync.Mutex
	texts []string
}

func (n *notes) Helper() {}
func (n *notes) Errorf(format string, args ...any) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.texts = append(n.texts, fmt.Sprintf(format, args...))
}

// rules returns the names of the rules that were reported, each once.
func (n *notes) rules(t *testing.T) []string {
	var rules []string
	for _, text := range n.texts {
		parts := strings.SplitN(text, ": ", 3)
		if len(parts) < 3 || parts[0] != "CheckHandler" {
			t.Errorf("a report without its rule: %s", text)
			continue
		}
		if !slices.Contains(rules, parts[1]) {
			rules = append(rules, parts[1])
		}
	}
	return rules
}

func order(n int) string { return fmt.Sprint("order-", n) }

// orderRequest is the request for the n-th order, whose answer has so many
// pages.
func orderRequest(n, pages int) *http.Request {
	body := fmt.Sprintf(`{"order":%q,"pages":%d}`, order(n), pages)
	r := httptest.NewRequest(http.MethodPost, "/charges", strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Tenant", "acme")
	return r
}

// checkOf is the check of a handler that takes orders, and writes into ledger.
func checkOf(ledger *idemtest.Ledger, handler func(keystore.Store, func()) http.Handler) idemtest.HandlerCheck {
	return idemtest.HandlerCheck{
		New:       handler,
		Request:   func(n int) *http.Request { return orderRequest(n, 0) },
		Large:     func(n int) *http.Request { return orderRequest(n, 4) },
		Effects:   func(n int) int { return ledger.Count(order(n)) },
		AsAnother: func(r *http.Request) { r.Header.Set("Tenant", "evil") },
	}
}

// checkOwn checks an own handler with this flaw.
func checkOwn(t idemtest.TB, f flaw) {
	var ledger idemtest.Ledger
	shared := &book{records: map[string]*entry{}}
	idemtest.CheckHandler(t, checkOf(&ledger, func(_ keystore.Store, reached func()) http.Handler {
		b := shared
		if f == "in memory" {
			b = &book{records: map[string]*entry{}}
		}
		return &own{f, &ledger, reached, b}
	}))
}

func TestCheckHandlerFindsFlaws(t *testing.T) {
	effects := []string{"replay", "concurrent", "payload", "hang-up", "panic", "slow", "large", "restart", "other-key", "other-scope"}
	for f, want := range map[flaw][]string{ // the first one is what the flaw breaks, the rest follows
		"":                         nil,
		"no keys":                  effects,
		"claims late":              {"concurrent", "panic", "slow"},
		"another status":           {"replay"},
		"another body":             {"replay"},
		"no headers":               {"replay"},
		"never replayed":           {"replay"},
		"any payload":              {"payload"},
		"shrugs":                   {"payload"},
		"leaks":                    {"payload"},
		"no key needed":            {"missing-key"},
		"any key":                  {"bad-key", "missing-key"},
		"in memory":                {"restart"},
		"frees after a panic":      {"panic"},
		"stuck":                    {"panic"},
		"answers first":            {"panic", "hang-up"},
		"keeps 500s":               {"panic"},
		"undone by its client":     {"hang-up", "slow"},
		"undone by a failed write": {"hang-up"},
		"ends with its client":     {"slow", "hang-up"},
		"one answer":               {"other-key", "payload", "other-scope"},
		"no tenants":               {"other-scope"},
		"cuts keys":                {"other-key"},
		"cuts":                     {"large"},
		"empty 200":                {"concurrent", "slow"},
	} {
		t.Run(string(f), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var n notes
				checkOwn(&n, f)
				if got := n.rules(t); !slices.Equal(slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(want))) {
					t.Errorf("reported were %v, want %v:\n%s", got, want, strings.Join(n.texts, "\n"))
				}
			})
		})
	}
}
