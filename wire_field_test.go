package idem_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/idem-go/idem"
)

// fieldBase keeps the bodies that it is sent, and answers status by status.
type fieldBase struct {
	bodies  []string
	headers []http.Header
	answers []int
}

func (b *fieldBase) RoundTrip(req *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return nil, err
	}
	b.bodies = append(b.bodies, string(body))
	b.headers = append(b.headers, req.Header)
	if int(req.ContentLength) != len(body) {
		return nil, fmt.Errorf("ContentLength %d of %d bytes", req.ContentLength, len(body))
	}
	return wireAnswer(req, b.answers[min(len(b.bodies), len(b.answers))-1], "{}"), nil
}

func fieldRequest(t *testing.T, ctx context.Context, contentType, body string) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, "POST", "http://example.com/pay", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	return req
}

const asJSON, asForm = "application/json; charset=utf-8", "application/x-www-form-urlencoded"

// TestFieldKey: where the key goes in a body, of which nothing else changes.
// KEY stands for it.
func TestFieldKey(t *testing.T) {
	for _, tt := range []struct{ field, contentType, body, want string }{
		{"key", asJSON, `{"a":1}`, `{"key":"KEY","a":1}`},
		{"key", asJSON, "{\n  \"a\" : 1.50,\n  \"b\": [ ]\n}\n", "{\"key\":\"KEY\",\n  \"a\" : 1.50,\n  \"b\": [ ]\n}\n"},
		{"key", asJSON, ` {}`, ` {"key":"KEY"}`},
		{"key", asJSON, ` { } `, ` {"key":"KEY" } `},
		{"key", "application/vnd.api+json", `{"a":{"key":"other"}}`, `{"key":"KEY","a":{"key":"other"}}`},
		{"key", "", `{"a":1}`, `{"key":"KEY","a":1}`},
		{"input.key", asJSON, `{"query":"…","input": {"x":"é"}, "n":9007199254740993}`, `{"query":"…","input": {"key":"KEY","x":"é"}, "n":9007199254740993}`},
		{"v.input.key", asJSON, `{"v":{"a":{},"input":{}}}`, `{"v":{"a":{},"input":{"key":"KEY"}}}`},
		{"we\"ird", asJSON, `{"a":1}`, `{"we\"ird":"KEY","a":1}`},
		{"IdempotencyKey", asForm, `a=1&b=%20x+y`, `a=1&b=%20x+y&IdempotencyKey=KEY`},
	} {
		t.Run(tt.field+" in "+tt.body, func(t *testing.T) {
			base := &fieldBase{answers: []int{500, 200}}
			w := wireClient(t, idem.Config{Contract: idem.Contract{Name: "test", Field: tt.field}}, base)
			ctx := idem.WithIntent(t.Context(), idem.Intent{Scope: "shop", ID: "o1"})
			r := w.do(t, fieldRequest(t, ctx, tt.contentType, tt.body))
			if r.err != nil || len(base.bodies) != 2 || base.bodies[0] != base.bodies[1] {
				t.Fatalf("%v, sent %q", r.err, base.bodies)
			}
			key := string(idem.DeriveKey("intent", "shop", "o1"))
			if got := strings.ReplaceAll(base.bodies[0], key, "KEY"); got != tt.want {
				t.Errorf("sent %s, want %s", got, tt.want)
			}
			if base.headers[0].Get("Idempotency-Key") != "" {
				t.Error("the key is in a header too")
			}
		})
	}
}

// A body that can't carry the key is refused before anything is sent.
func TestFieldRefused(t *testing.T) {
	for name, tt := range map[string]struct{ field, contentType, body string }{
		"no body":       {"key", asJSON, ``},
		"text":          {"key", "text/plain", `{"a":1}`},
		"untyped text":  {"key", "", `a=1`},
		"bad type":      {"key", "application/json;=", `{}`},
		"array":         {"key", asJSON, `[]`},
		"string":        {"key", asJSON, `"{}"`},
		"broken":        {"key", asJSON, `{"a":1`},
		"two values":    {"key", asJSON, `{} {}`},
		"null":          {"key", asJSON, `{"key":null}`},
		"number":        {"key", asJSON, `{"key":1}`},
		"empty":         {"key", asJSON, `{"key":""}`},
		"twice":         {"key", asJSON, `{"key":"a","key":"a"}`},
		"no object":     {"in.key", asJSON, `{"a":1}`},
		"not an object": {"in.key", asJSON, `{"in":1}`},
		"object twice":  {"in.key", asJSON, `{"in":{},"in":{}}`},
		"form twice":    {"key", asForm, `key=a&key=b`},
		"form empty":    {"key", asForm, `key=&a=1`},
		"broken form":   {"key", asForm, `a=%zz`},
		"control":       {"key", asJSON, `{"key":"a\u0001"}`},
	} {
		t.Run(name, func(t *testing.T) {
			base := &fieldBase{answers: []int{200}}
			w := wireClient(t, idem.Config{Contract: idem.Contract{Name: "test", Field: tt.field}}, base)
			ctx := idem.WithIntent(t.Context(), idem.Intent{Scope: "shop", ID: "o1"})
			if name == "control" {
				ctx = t.Context()
			}
			r := w.do(t, fieldRequest(t, ctx, tt.contentType, tt.body))
			if r.outcome() != idem.OutcomeRejected || !(r.is(idem.ErrInvalidIntent) || r.is(idem.ErrInvalidKey)) || len(base.bodies) > 0 {
				t.Errorf("%v, sent %q", r.err, base.bodies)
			}
		})
	}
}

// What nobody has named, and has no place for a key, goes out without one: it is
// repeated only where nothing was executed.
func TestFieldNoPlace(t *testing.T) {
	for _, tt := range []struct{ contentType, body string }{{"", ""}, {"text/plain", "text"}, {asJSON, "[1]"}, {asJSON, ""}, {asJSON, `{"a":`}} {
		for status, requests := range map[int]int{200: 1, 500: 1, 429: 2} {
			base := &fieldBase{answers: []int{status, 200}}
			w := wireClient(t, idem.Config{Contract: idem.Contract{Name: "test", Field: "in.key"}, Policy: idem.Policy{BaseDelay: 1, MaxDelay: 1}}, base)
			r := w.do(t, fieldRequest(t, t.Context(), tt.contentType, tt.body))
			if r.err != nil || len(base.bodies) != requests || base.bodies[0] != tt.body || base.headers[0].Get("Idempotency-Key") != "" {
				t.Errorf("%q answered %d: %v, sent %q", tt.body, status, r.err, base.bodies)
			}
		}
	}
	// A field that is there, but no key, is a mistake in any case.
	base := &fieldBase{answers: []int{200}}
	w := wireClient(t, idem.Config{Contract: idem.Contract{Name: "test", Field: "key"}}, base)
	if r := w.do(t, fieldRequest(t, t.Context(), asJSON, `{"key":null}`)); r.outcome() != idem.OutcomeRejected || len(base.bodies) > 0 {
		t.Errorf("%v, sent %q", r.err, base.bodies)
	}
}

// B052: a key that the caller has put into the field is taken as it is, on every
// attempt; beside an intent it is refused, unless it is the intent's.
func TestFieldOwnKey(t *testing.T) {
	const body = `{"a":1,"key":"mine-1"}`
	base := &fieldBase{answers: []int{500, 200}}
	w := wireClient(t, idem.Config{Contract: idem.Contract{Name: "test", Field: "key"}, Store: newStore(t), Scope: "shop"}, base)
	for range 2 { // and it names the record
		if r := w.do(t, fieldRequest(t, t.Context(), asJSON, body)); r.err != nil || idem.ReportOf(r.resp).Key != "mine-1" {
			t.Fatalf("%v", r.err)
		}
	}
	if len(base.bodies) != 2 || base.bodies[0] != body || base.bodies[1] != body {
		t.Errorf("sent %q", base.bodies)
	}
	ctx := idem.WithIntent(t.Context(), idem.Intent{Key: "mine-1"})
	if r := w.do(t, fieldRequest(t, ctx, asJSON, body)); r.err != nil {
		t.Error(r.err)
	}
	ctx = idem.WithIntent(t.Context(), idem.Intent{ID: "o1"})
	if r := w.do(t, fieldRequest(t, ctx, asJSON, body)); r.outcome() != idem.OutcomeRejected || !r.is(idem.ErrInvalidIntent) {
		t.Error(r.err)
	}
}

// Inside Do the key is put into the body as well; one that the function puts
// there has to be the call's.
func TestFieldWithinDo(t *testing.T) {
	base := &fieldBase{answers: []int{200}}
	c := newClient(t, idem.Config{Contract: idem.Contract{Name: "test", Field: "key", Undashed: true}, Scope: "shop"})
	hc := &http.Client{Transport: c.Transport(base)}
	send := func(id string, put func(idem.Key) string) error {
		_, err := idem.Do(t.Context(), c, idem.Intent{ID: id}, func(ctx context.Context, key idem.Key) (int, error) {
			resp, err := hc.Do(fieldRequest(t, ctx, asJSON, put(key)))
			if err != nil {
				return 0, err
			}
			return resp.StatusCode, resp.Body.Close()
		})
		return err
	}
	if err := send("o1", func(idem.Key) string { return `{}` }); err != nil {
		t.Error(err)
	}
	own := func(key idem.Key) string {
		return `{"key":"` + idem.Contract{Undashed: true}.Spell(key) + `"}`
	}
	if err := send("o2", own); err != nil {
		t.Error(err)
	}
	if err := send("o3", func(idem.Key) string { return `{"key":"another"}` }); !errors.Is(err, idem.ErrInvalidIntent) {
		t.Error(err)
	}
	if len(base.bodies) != 2 {
		t.Fatalf("sent %q", base.bodies)
	}
	for i, id := range []string{"o1", "o2"} {
		want := `{"key":"` + strings.ReplaceAll(string(idem.DeriveKey("intent", "shop", id)), "-", "") + `"}`
		if base.bodies[i] != want {
			t.Errorf("sent %s, want %s", base.bodies[i], want)
		}
	}
}

// A key that idem has made goes out without dashes where the server wants it
// so, and fits into 32 characters then; a given one goes out as it is.
func TestUndashed(t *testing.T) {
	base := &fieldBase{answers: []int{200}}
	contract := idem.Contract{Name: "test", Undashed: true, MaxKeyLen: 32}
	w := wireClient(t, idem.Config{Contract: contract, Scope: "shop"}, base)
	for _, in := range []idem.Intent{{ID: "o1"}, {Key: "given-key"}} {
		if r := w.do(t, fieldRequest(t, idem.WithIntent(t.Context(), in), asJSON, `{}`)); r.err != nil {
			t.Fatal(r.err)
		}
	}
	want := strings.ReplaceAll(string(idem.DeriveKey("intent", "shop", "o1")), "-", "")
	if got := base.headers[0].Get("Idempotency-Key"); got != want || len(got) != 32 {
		t.Errorf("sent %q, want %q", got, want)
	}
	if got := base.headers[1].Get("Idempotency-Key"); got != "given-key" {
		t.Errorf("sent %q", got)
	}
	if _, err := idem.New(idem.Config{Contract: idem.Contract{Header: "X-Key", Field: "key"}}); !errors.Is(err, idem.ErrConfig) {
		t.Error(err)
	}
	if _, err := idem.New(idem.Config{Contract: idem.Contract{Field: "a..b"}}); !errors.Is(err, idem.ErrConfig) {
		t.Error(err)
	}
}

// Sign signs each attempt anew, over the body with the key in it, and outside
// the fingerprint; what it does to the request beyond the header does not count.
func TestSign(t *testing.T) {
	signed := 0
	cfg := idem.Config{Contract: idem.Contract{Name: "test", Field: "key"}, Scope: "shop", Store: newStore(t), Sign: func(req *http.Request) error {
		signed++
		body, err := io.ReadAll(req.Body)
		if err != nil || !json.Valid(body) || !strings.Contains(string(body), `"key"`) {
			return fmt.Errorf("to sign: %q, %v", body, err)
		}
		req.Header.Set("Signature", fmt.Sprintf("%d over %d", signed, len(body)))
		req.URL, req.Body = &url.URL{}, nil
		return nil
	}}
	base := &fieldBase{answers: []int{500, 200}}
	ctx := idem.WithIntent(t.Context(), idem.Intent{ID: "o1"})
	if r := wireClient(t, cfg, base).do(t, fieldRequest(t, ctx, asJSON, `{}`)); r.err != nil {
		t.Fatal(r.err)
	}
	if len(base.bodies) != 2 || base.headers[0].Get("Signature") != fmt.Sprintf("1 over %d", len(base.bodies[0])) || base.headers[1].Get("Signature") != fmt.Sprintf("2 over %d", len(base.bodies[0])) {
		t.Errorf("signed %v and %v", base.headers[0], base.headers[1])
	}
	// Another signature is the same request.
	ctx = idem.WithIntent(t.Context(), idem.Intent{ID: "o1"})
	if r := wireClient(t, cfg, base).do(t, fieldRequest(t, ctx, asJSON, `{}`)); r.err != nil || idem.ReportOf(r.resp).Source != idem.SourceReplayed {
		t.Error(r.err)
	}
}

// A signer that fails, or panics, is a local fault: nothing was sent.
func TestSignFails(t *testing.T) {
	for name, sign := range map[string]func(*http.Request) error{
		"error": func(*http.Request) error { return errBoom },
		"panic": func(*http.Request) error { panic(errBoom) },
	} {
		for _, method := range []string{"POST", "PUT"} {
			t.Run(name+" "+method, func(t *testing.T) {
				base := &fieldBase{answers: []int{200}}
				req := fieldRequest(t, t.Context(), asJSON, `{}`)
				req.Method = method
				r := wireClient(t, idem.Config{Sign: sign}, base).do(t, req)
				if r.outcome() != idem.OutcomeRejected || !r.is(errBoom) || len(base.bodies) > 0 {
					t.Errorf("%v, sent %q", r.err, base.bodies)
				}
			})
		}
	}
}
