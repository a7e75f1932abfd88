package idemtest_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/idem-go/idem/idemtest"
	"github.com/idem-go/idem/keystore"
	"github.com/idem-go/idem/server"
)

// Orders is the application's handler. Billing is what it charges through.
type Orders struct{ Billing func(order string) error }

func (o Orders) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if err := server.BeginEffect(r.Context()); err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	if err := o.Billing(r.FormValue("order")); err != nil {
		http.Error(w, "not charged", http.StatusBadGateway)
		return
	}
	w.WriteHeader(http.StatusCreated)
	fmt.Fprintln(w, "charged for", r.FormValue("order"))
}

// In a test, t is its *testing.T. The ledger stands in for what is charged.
func ExampleCheckHandler() {
	t := printer{}

	var ledger idemtest.Ledger
	idemtest.CheckHandler(t, idemtest.HandlerCheck{
		New: func(store keystore.Store, reached func()) http.Handler {
			srv, err := server.New(server.Config{Store: store, Effects: server.Marked, Scope: server.SingleTenant})
			if err != nil {
				t.Errorf("server: %v", err)
			}
			return srv.Handler(Orders{Billing: func(order string) error {
				ledger.Record(order)
				reached()
				return nil
			}})
		},
		Request: func(n int) *http.Request {
			return httptest.NewRequest(http.MethodPost, fmt.Sprintf("/orders?order=order-%d", n), strings.NewReader("{}"))
		},
		Effects: func(n int) int { return ledger.Count(fmt.Sprint("order-", n)) },
	})
	fmt.Println("effects of the first order:", ledger.Count("order-1"))
	// Output:
	// effects of the first order: 1
}

// A handler that looks at no key is found out.
func ExampleCheckHandler_found() {
	charges := map[string]int{}
	idemtest.CheckHandler(printer{}, idemtest.HandlerCheck{
		New: func(keystore.Store, func()) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				charges[r.FormValue("order")]++
				fmt.Fprintln(w, "charged")
			})
		},
		Request: func(n int) *http.Request {
			return httptest.NewRequest(http.MethodPost, fmt.Sprintf("/orders?order=%d", n), nil)
		},
		Effects: func(n int) int { return charges[fmt.Sprint(n)] },
		Except:  []string{"concurrent", "payload", "missing-key", "bad-key", "hang-up", "panic", "slow", "restart"},
	})
	// Output:
	// CheckHandler: replay: after a request and its retry, the intent has had 2 effects
	// 	want: 1 effect
	// 	Usual cause: the handler does not look at the key, or forgets it. Claim the key before the effect and keep the answer under it, as server.Handler does.
}
