package provider_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/keystore/memstore"
	"github.com/idem-go/idem/provider"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var contracts = map[string]idem.Contract{
	"Stripe": provider.Stripe, "StripeV2": provider.StripeV2, "PayPal": provider.PayPal, "PayPalOrders": provider.PayPalOrders,
	"PayPalPayments": provider.PayPalPayments, "PayPalPayouts": provider.PayPalPayouts, "Square": provider.Square, "Adyen": provider.Adyen,
	"Braintree": provider.Braintree, "CheckoutCom": provider.CheckoutCom, "Mollie": provider.Mollie, "GoCardless": provider.GoCardless,
	"Klarna": provider.Klarna, "MercadoPago": provider.MercadoPago, "Rapyd": provider.Rapyd, "Worldpay": provider.Worldpay,
	"AmazonPay": provider.AmazonPay, "ModernTreasury": provider.ModernTreasury, "Dwolla": provider.Dwolla, "Wise": provider.Wise,
	"WiseTransfers": provider.WiseTransfers, "Plaid": provider.Plaid, "Razorpay": provider.Razorpay, "Xendit": provider.Xendit,
	"CoinbaseCDP": provider.CoinbaseCDP, "Increase": provider.Increase, "Column": provider.Column, "Moov": provider.Moov,
	"Circle": provider.Circle, "AIP155": provider.AIP155, "IETF": provider.IETF,
}

// fake is a provider that looks keys up where its fixture says.
type fake struct {
	fixture

	mu      sync.Mutex
	keys    []string
	effects map[string]int
	script  []any // for the next requests: a reply, or an error after the effect
}

var errLost = errors.New("the reply is lost")

func (f *fake) RoundTrip(req *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	key := f.key(req, body)
	f.keys = append(f.keys, key)
	var next any
	if len(f.script) > 0 {
		next, f.script = f.script[0], f.script[1:]
	}
	if r, ok := next.(reply); ok {
		return answer(req, r), nil
	}
	r := reply{status: 201, body: `{"id":"made"}`}
	if f.effects[key]++; f.effects[key] > 1 {
		f.effects[key] = 1 // it honours the key
		if f.repeat.status != 0 {
			r = f.repeat
		}
	}
	if next != nil {
		return nil, next.(error)
	}
	return answer(req, r), nil
}

func (f *fake) key(req *http.Request, body []byte) string {
	kind, name, _ := strings.Cut(f.carrier, " ")
	if kind == "header" {
		return req.Header.Get(name)
	}
	var object map[string]any
	if json.Unmarshal(body, &object) != nil {
		form, _ := url.ParseQuery(string(body))
		return form.Get(name)
	}
	path := strings.Split(name, ".")
	for _, member := range path[:len(path)-1] {
		object, _ = object[member].(map[string]any)
	}
	key, _ := object[path[len(path)-1]].(string)
	return key
}

func answer(req *http.Request, r reply) *http.Response {
	h := http.Header{}
	if name, value, ok := strings.Cut(r.header, ": "); ok {
		h.Set(name, value)
	}
	return &http.Response{StatusCode: r.status, Header: h, Body: io.NopCloser(strings.NewReader(r.body)), Request: req}
}

// pay sends the fixture's request, as the intent o1.
func pay(t *testing.T, c *idem.Client, f *fake) (*http.Response, error) {
	t.Helper()
	ctx := idem.WithIntent(t.Context(), idem.Intent{ID: "o1"})
	req, err := http.NewRequestWithContext(ctx, "POST", "https://api.example.com/v1/payments", strings.NewReader(f.body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	if f.body[0] != '{' {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	return c.Transport(f).RoundTrip(req)
}

// TestContracts runs every contract against a fake of its provider.
func TestContracts(t *testing.T) {
	for name, contract := range contracts {
		fx, ok := fixtures[name]
		if !ok {
			t.Errorf("%s has no fixture", name)
			continue
		}
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := func(script ...any) (*idem.Client, *fake) {
					store, err := memstore.New(memstore.Config{})
					if err != nil {
						t.Fatal(err)
					}
					client, err := idem.New(idem.Config{Store: store, Scope: "shop", Contract: contract})
					if err != nil {
						t.Fatal(err)
					}
					return client, &fake{fixture: fx, effects: map[string]int{}, script: script}
				}
				outcome := func(err error) idem.Outcome {
					var e *idem.Error
					if errors.As(err, &e) {
						return e.Outcome
					}
					return idem.OutcomeExecuted
				}

				client, f := start(errLost)
				resp, err := pay(t, client, f)
				if want := fx.repeat; outcome(err) != idem.OutcomeExecuted || (err == nil) != (want.is == nil) || want.is != nil && !errors.Is(err, want.is) {
					t.Errorf("the reply was lost: %v, %v", resp, err)
				}
				if len(f.keys) != 2 || f.keys[0] != f.keys[1] || f.keys[0] == "" || len(f.effects) != 1 {
					t.Errorf("the reply was lost: keys %q, effects %v", f.keys, f.effects)
				}
				if fx.fits != nil && !fx.fits(f.keys[0]) {
					t.Errorf("it would not take the key %q", f.keys[0])
				}

				if fx.inFlight.status != 0 {
					client, f = start(fx.inFlight, fx.inFlight)
					if _, err = pay(t, client, f); err != nil || len(f.keys) != 3 || f.keys[0] != f.keys[2] {
						t.Errorf("in flight: %v after %d requests", err, len(f.keys))
					}
				}
				if fx.mismatch.status != 0 {
					client, f = start(fx.mismatch, fx.mismatch)
					if _, err = pay(t, client, f); outcome(err) != idem.OutcomeUnknown || len(f.keys) != 1 || fx.mismatch.is != nil && !errors.Is(err, fx.mismatch.is) {
						t.Errorf("mismatch: %v after %d requests", err, len(f.keys))
					}
				}

				// A definite refusal ends the operation: the next one has a new
				// key. A 500 proves nothing: it is sent again under its key, unless
				// it is said to come from a record.
				client, f = start(reply{status: 402})
				if resp, err = pay(t, client, f); err != nil || resp.StatusCode != 402 || len(f.keys) != 1 {
					t.Errorf("402: %v, %v after %d requests", resp, err, len(f.keys))
				}
				if resp, err = pay(t, client, f); err != nil || len(f.keys) != 2 || f.keys[0] == f.keys[1] {
					t.Errorf("after a 402: %v, %v, keys %q", resp, err, f.keys)
				}
				client, f = start(reply{status: 500})
				if _, err = pay(t, client, f); err != nil || len(f.keys) != 2 || f.keys[0] != f.keys[1] {
					t.Errorf("500: %v, keys %q", err, f.keys)
				}
				if name, _, ok := strings.Cut(fx.repeat.header, ": "); ok || fx.stored != "" {
					client, f = start(reply{status: 500, header: cmp.Or(fx.stored, name+": true")})
					if _, err = pay(t, client, f); outcome(err) != idem.OutcomeUnknown || len(f.keys) != 1 {
						t.Errorf("a stored 500: %v after %d requests", err, len(f.keys))
					}
				}

				// Before the provider may forget the key it is sent again, after that
				// it is not.
				client, f = start(reply{status: 500}, reply{status: 500}, reply{status: 500}, reply{status: 500})
				if _, err = pay(t, client, f); outcome(err) != idem.OutcomeUnknown {
					t.Errorf("500: %v", err)
				}
				sent := len(f.keys)
				time.Sleep(contract.Retention - contract.Retention/20)
				f.script = []any{reply{status: 500}, reply{status: 500}, reply{status: 500}, reply{status: 500}}
				if _, err = pay(t, client, f); outcome(err) != idem.OutcomeUnknown || len(f.keys) == sent {
					t.Errorf("still remembered: %v after %d requests", err, len(f.keys)-sent)
				}
				sent = len(f.keys)
				time.Sleep(contract.Retention / 20)
				if _, err = pay(t, client, f); !errors.Is(err, idem.ErrKeyExpired) || len(f.keys) != sent {
					t.Errorf("forgotten: %v after %d requests", err, len(f.keys)-sent)
				}
			})
		})
	}
}

var update = flag.Bool("update", false, "write docs/providers.md")

// TestDocs holds docs/providers.md against the contracts and their comments, of
// which it is made.
func TestDocs(t *testing.T) {
	const path = "../docs/providers.md"
	want := table(t)
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Error("docs/providers.md is out of date: go test ./provider -run TestDocs -update")
	}
}

func table(t *testing.T) string {
	fset := token.NewFileSet()
	var files []*ast.File
	for _, name := range []string{"provider.go", "cards.go", "banks.go", "specs.go"} {
		f, err := parser.ParseFile(fset, name, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	pkg, err := doc.NewFromFiles(fset, files, "github.com/idem-go/idem/provider")
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	b.WriteString("# Providers\n\nMade by `go test ./provider -run TestDocs -update` from package provider. What is not verified is said so.\n\n" +
		"| contract | key goes into | as | at most | remembered for |\n|---|---|---|---|---|\n")
	var notes strings.Builder
	found := 0
	for _, v := range pkg.Vars {
		name := v.Names[0]
		c, ok := contracts[name]
		if !ok {
			t.Errorf("%s is not tested", name)
			continue
		}
		found++
		fmt.Fprintf(&b, "| [`provider.%s`](#%s) | %s | %s | %s | %s |\n", name, strings.ToLower(name), carrier(c), spelling(c), length(c), retention(c))
		fmt.Fprintf(&notes, "\n## %s\n\n%s\n", name, strings.TrimSpace(v.Doc))
	}
	if found != len(contracts) {
		t.Errorf("%d of %d contracts are documented", found, len(contracts))
	}
	return b.String() + notes.String()
}

func carrier(c idem.Contract) string {
	if c.Field != "" {
		return "body `" + c.Field + "`"
	}
	return "header `" + c.Header + "`"
}

func spelling(c idem.Contract) string {
	var as []string
	switch {
	case c.Undashed:
		as = append(as, "32 hex digits")
	case c.Version4:
		as = append(as, "UUID, version 4")
	default:
		as = append(as, "UUID")
	}
	if c.Quoted {
		as = append(as, "in quotes")
	}
	return strings.Join(as, ", ")
}

func length(c idem.Contract) string {
	if c.MaxKeyLen == 0 {
		return "not said"
	}
	if c.KeyChars != "" {
		return fmt.Sprint(c.MaxKeyLen, ", letters, digits and "+strings.TrimLeft(c.KeyChars, letters+digits))
	}
	return fmt.Sprint(c.MaxKeyLen)
}

const (
	letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	digits  = "0123456789"
)

func retention(c idem.Contract) string {
	switch d := c.Retention; {
	case d == provider.Forever:
		return "ever"
	case d == provider.Unpublished && !slices.Contains([]string{"Mollie"}, c.Name):
		return "not said; 1 h is assumed"
	case d >= 48*time.Hour:
		return fmt.Sprintf("%d days", d/(24*time.Hour))
	default:
		return fmt.Sprintf("%d h", d/time.Hour)
	}
}

func Example() {
	client, err := idem.New(idem.Config{Scope: "shop/charge", Contract: provider.Stripe})
	fmt.Println(client != nil, err)

	// A contract is a value: change what your account has agreed.
	checkout := provider.CheckoutCom
	checkout.Retention = 7 * 24 * time.Hour
	client, err = idem.New(idem.Config{Scope: "shop/charge", Contract: checkout})
	fmt.Println(client != nil, err)

	// In a function the key is put into the request by hand, as the provider
	// takes it.
	_, err = idem.Do(context.Background(), client, idem.Intent{ID: "order-17"}, func(_ context.Context, key idem.Key) (int, error) {
		fmt.Println(len(provider.AmazonPay.Spell(key)), len(provider.Stripe.Spell(key)))
		return 0, nil
	})
	fmt.Println(err)
	// Output:
	// true <nil>
	// true <nil>
	// 32 36
	// <nil>
}
