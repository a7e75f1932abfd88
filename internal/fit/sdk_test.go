package fit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mercadopago/sdk-go/pkg/config"
	"github.com/mercadopago/sdk-go/pkg/payment"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/provider"
)

// remote is a server that honours keys in its header, whatever the URL's host.
type remote struct {
	header string
	script []any // of the next requests: a status, or an error after the effect

	mu      sync.Mutex
	keys    []string
	effects map[string]int
}

var errLost = errors.New("the reply is lost")

func (s *remote) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Body != nil {
		_, _ = io.Copy(io.Discard, req.Body)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	key := req.Header.Get(s.header)
	s.keys = append(s.keys, key)
	var next any
	if len(s.script) > 0 {
		next, s.script = s.script[0], s.script[1:]
	}
	status, body := http.StatusCreated, ""
	switch next := next.(type) {
	case int:
		status, body = next, `{"message":"see the status"}`
	default:
		if s.effects == nil {
			s.effects = map[string]int{}
		}
		if s.effects[key] == 0 {
			s.effects[key] = len(s.effects) + 1
		}
		body = fmt.Sprintf(`{"id":%d,"status":"approved"}`, s.effects[key])
		if err, ok := next.(error); ok {
			return nil, err
		}
	}
	return &http.Response{StatusCode: status, Header: http.Header{"Content-Type": {"application/json"}}, ContentLength: int64(len(body)),
		Body: io.NopCloser(strings.NewReader(body)), Request: req}, nil
}

func httpClient(t *testing.T, contract idem.Contract, s *remote) *http.Client {
	t.Helper()
	client, err := idem.New(idem.Config{Scope: "shop/charge", Contract: contract,
		Policy: idem.Policy{BaseDelay: time.Millisecond, MaxDelay: time.Millisecond}})
	if err != nil {
		t.Fatal(err)
	}
	return &http.Client{Transport: client.Transport(s)}
}

func intent(t *testing.T) context.Context {
	return idem.WithIntent(t.Context(), idem.Intent{ID: "order-17"})
}

var intentKey = string(idem.DeriveKey("intent", "shop/charge", "order-17"))

// Mercado Pago's SDK takes an http.Client, and draws a key for each call. The
// intent's outranks it.
func TestMercadoPago(t *testing.T) {
	s := &remote{header: "X-Idempotency-Key", script: []any{errLost, 423, 500}}
	cfg, err := config.New("TEST-token", config.WithHTTPClient(httpClient(t, provider.MercadoPago, s)))
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		got, err := payment.NewClient(cfg).Create(intent(t), payment.Request{TransactionAmount: 105.1, Description: "a chair"})
		if err != nil || got.ID != 1 {
			t.Fatalf("%+v, %v", got, err)
		}
	}
	if len(s.keys) != 5 || len(s.effects) != 1 || s.keys[0] != intentKey || s.keys[4] != intentKey {
		t.Errorf("keys %q, want %s; effects %v", s.keys, intentKey, s.effects)
	}
	// Without an intent each call is an operation of its own, under the SDK's
	// key on every attempt.
	s.script = []any{errLost}
	for range 2 {
		if _, err := payment.NewClient(cfg).Create(t.Context(), payment.Request{TransactionAmount: 1}); err != nil {
			t.Fatal(err)
		}
	}
	if len(s.effects) != 3 || s.keys[5] != s.keys[6] || s.keys[6] == s.keys[7] {
		t.Errorf("keys %q, effects %v", s.keys, s.effects)
	}
}

// An SDK as Stainless generates them, with its own retries off.
func TestStainless(t *testing.T) {
	s := &remote{header: "Idempotency-Key", script: []any{errLost, 503}}
	sdk := openai.NewClient(option.WithAPIKey("test"), option.WithBaseURL("https://api.example.com/v1/"),
		option.WithHTTPClient(httpClient(t, idem.IETF, s)), option.WithMaxRetries(0))
	var got struct{ ID int }
	for range 2 {
		if err := sdk.Post(intent(t), "charges", map[string]any{"amount": 100}, &got); err != nil || got.ID != 1 {
			t.Fatalf("%+v, %v", got, err)
		}
	}
	if len(s.keys) != 4 || len(s.effects) != 1 || s.keys[0] != intentKey {
		t.Errorf("keys %q, want %s; effects %v", s.keys, intentKey, s.effects)
	}
	// With its retries left on, its layer sends what ours has given up, still
	// under the intent's key: more requests, no second effect.
	s.script, s.keys = []any{500, 500, 500, 500, 500}, nil
	twice := openai.NewClient(option.WithAPIKey("test"), option.WithBaseURL("https://api.example.com/v1/"),
		option.WithHTTPClient(httpClient(t, idem.IETF, s)), option.WithMaxRetries(1))
	if err := twice.Post(intent(t), "charges", map[string]any{"amount": 100}, &got); err != nil || got.ID != 1 {
		t.Errorf("%+v, %v", got, err)
	}
	if len(s.keys) != 6 || len(s.effects) != 1 {
		t.Errorf("keys %q, effects %v", s.keys, s.effects)
	}
}
