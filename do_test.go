package idem_test

import (
	"context"
	"errors"
	"math"
	"net/http"
	"strings"
	"testing"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/keystore"
)

type hidden struct {
	Amount int
	token  string
}

// TestDoRefuses: a fault of the caller is found before anything is sent or
// stored, and told once.
func TestDoRefuses(t *testing.T) {
	fine := func(context.Context, idem.Key) (receipt, error) { return receipt{}, nil }
	named := func(payload any) idem.Intent { return idem.Intent{Scope: "shop", ID: "o1", Payload: payload} }
	for _, tt := range []struct {
		name string
		in   idem.Intent
		is   error
		text string
	}{
		{"blank key", idem.Intent{Key: " "}, idem.ErrInvalidKey, "blank"},
		{"B065 key with an outer blank", idem.Intent{Key: "k "}, idem.ErrInvalidKey, "blank"},
		{"B038 CR LF in the key", idem.Intent{Key: "a\r\nX: y"}, idem.ErrInvalidKey, `0x0d at 1`},
		{"B038 NUL in the key", idem.Intent{Key: "a\x00b"}, idem.ErrInvalidKey, `0x00`},
		{"B064 key of 256", idem.Intent{Key: idem.Key(strings.Repeat("k", 256))}, idem.ErrInvalidKey, "256"},
		{"ID and key", idem.Intent{Scope: "shop", ID: "o1", Key: "k"}, idem.ErrInvalidIntent, "Intent.ID and Intent.Key"},
		{"ID without a scope", idem.Intent{ID: "o1"}, idem.ErrInvalidIntent, "Config.Scope"},
		{"payload with a channel", named(make(chan int)), idem.ErrInvalidIntent, "chan int"},
		{"payload with NaN", named(math.NaN()), idem.ErrInvalidIntent, "NaN"},
		{"payload that hides a field", named(hidden{}), idem.ErrInvalidIntent, "hidden.token"},
		{"payload that omits a field", named(struct {
			A int `json:"-"`
		}{}), idem.ErrInvalidIntent, "A"},
		{"payload that is not UTF-8", named("\xff"), idem.ErrInvalidIntent, "UTF-8"},
		{"unnamed, with such a payload", idem.Intent{Payload: hidden{}}, idem.ErrInvalidIntent, "hidden.token"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := &events{}
			store := newStore(t)
			s := answers(nil)
			res, err := idem.Do(t.Context(), newClient(t, idem.Config{Store: store, Observer: o}), tt.in, s.call)
			e := wantOutcome(t, err, idem.OutcomeRejected, tt.is, idem.ErrRejected)
			if !strings.Contains(err.Error(), tt.text) || strings.ContainsAny(err.Error(), "\r\n\x00") {
				t.Errorf("text %q, want it to name %q", err, tt.text)
			}
			if res.Outcome != idem.OutcomeRejected || e.ID != tt.in.ID || s.calls() != 0 || len(records(t, store)) != 0 {
				t.Errorf("%v, %d calls, %d records", res.Outcome, s.calls(), len(records(t, store)))
			}
			if got := o.only(t); got.Name != idem.EventRefused || got.Err == nil {
				t.Errorf("event %+v", got)
			}
		})
	}
	t.Run("nil", func(t *testing.T) {
		c := newClient(t, idem.Config{})
		//lint:ignore SA1012 a nil context is what is tested
		_, err := idem.Do[receipt](nil, c, intent, fine)
		wantOutcome(t, err, idem.OutcomeRejected, idem.ErrInvalidIntent)
		_, err = idem.Do(t.Context(), nil, intent, fine)
		wantOutcome(t, err, idem.OutcomeRejected, idem.ErrConfig)
		_, err = idem.Do[receipt](t.Context(), c, intent, nil)
		wantOutcome(t, err, idem.OutcomeRejected, idem.ErrInvalidIntent)
		_, err = idem.Wrap[order, receipt](c, nil, nil)(t.Context(), order{})
		wantOutcome(t, err, idem.OutcomeRejected, idem.ErrInvalidIntent)
		_, err = idem.Wrap[order, receipt](c, func(order) idem.Intent { return intent }, nil)(t.Context(), order{})
		wantOutcome(t, err, idem.OutcomeRejected, idem.ErrInvalidIntent)
	})
}

// TestResultType: with a store, a result must survive it, and that is known
// before the first send.
func TestResultType(t *testing.T) {
	refused := func(t *testing.T, store keystore.Store, err error, field string) {
		t.Helper()
		wantOutcome(t, err, idem.OutcomeRejected, idem.ErrResultType)
		if !strings.Contains(err.Error(), field) || len(records(t, store)) != 0 {
			t.Errorf("%q, want it to name %s; %d records", err, field, len(records(t, store)))
		}
	}
	store := newStore(t)
	c := newClient(t, idem.Config{Store: store})
	_, err := idem.Do(t.Context(), c, intent, never[hidden](t))
	refused(t, store, err, "hidden.token")
	_, err = idem.Do(t.Context(), c, intent, never[struct{ Details any }](t))
	refused(t, store, err, "Details")
	_, err = idem.Do(t.Context(), c, intent, never[*http.Response](t))
	refused(t, store, err, "Response.Body")
	_, err = idem.Do(t.Context(), c, intent, never[func()](t))
	refused(t, store, err, "func()")

	// Without a store, or without a name, nothing is stored.
	for _, do := range []struct {
		c  *idem.Client
		in idem.Intent
	}{{newClient(t, idem.Config{}), intent}, {c, idem.Intent{}}} {
		res, err := idem.Do(t.Context(), do.c, do.in, func(context.Context, idem.Key) (hidden, error) { return hidden{token: "t"}, nil })
		if wantSource(t, res, err, idem.SourceExecuted); res.Value.token != "t" {
			t.Error(res)
		}
	}
}

// never is a decorated function that must not be called.
func never[T any](t *testing.T) func(context.Context, idem.Key) (T, error) {
	return func(context.Context, idem.Key) (T, error) {
		t.Error("called")
		var v T
		return v, nil
	}
}

func TestCancelledBefore(t *testing.T) {
	store := newStore(t)
	c := newClient(t, idem.Config{Store: store})
	cause := errors.New("client gone")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	for _, in := range []idem.Intent{intent, {}} {
		_, err := idem.Do(ctx, c, in, never[receipt](t))
		wantOutcome(t, err, idem.OutcomeNotExecuted, context.Canceled, cause)
	}
	if n := len(records(t, store)); n != 0 {
		t.Errorf("B024: %d records", n)
	}
}

func TestTransportKeys(t *testing.T) {
	for _, tt := range []struct {
		name   string
		header http.Header
		want   idem.Key // "" means refused
	}{
		{"B052 the caller's", http.Header{"Idempotency-Key": {"mine"}}, "mine"},
		{"two header lines", http.Header{"Idempotency-Key": {"a", "b"}}, ""},
		{"B054 two spellings", http.Header{"Idempotency-Key": {"a"}, "idempotency-key": {"b"}}, ""},
		{"empty", http.Header{"Idempotency-Key": {""}}, ""},
		{"blank", http.Header{"Idempotency-Key": {" "}}, ""},
		{"B064 256", http.Header{"Idempotency-Key": {strings.Repeat("k", 256)}}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			store := newStore(t)
			var sent []string
			base := roundTripper(func(req *http.Request) (*http.Response, error) {
				sent = append(sent, req.Header.Values("Idempotency-Key")...)
				return replies(201)(req)
			})
			req, _ := http.NewRequestWithContext(t.Context(), "POST", "http://shop.test/charges", nil)
			req.Header = tt.header
			resp, err := newClient(t, idem.Config{Store: store}).Transport(base).RoundTrip(req)
			if tt.want == "" {
				wantOutcome(t, err, idem.OutcomeRejected, idem.ErrInvalidKey)
				if len(sent) != 0 || len(records(t, store)) != 0 {
					t.Errorf("sent %q, %d records", sent, len(records(t, store)))
				}
				return
			}
			if err != nil || len(sent) != 1 || sent[0] != string(tt.want) || idem.ReportOf(resp).Key != tt.want {
				t.Errorf("sent %q, %v", sent, err)
			}
		})
	}
}

// A contract without keys sends none, but the intent's record is kept.
func TestKeylessIsRecorded(t *testing.T) {
	store := newStore(t)
	base := roundTripper(func(req *http.Request) (*http.Response, error) {
		if k := req.Header.Get("Idempotency-Key"); k != "" {
			t.Errorf("sent the key %q", k)
		}
		return replies(201)(req)
	})
	c := newClient(t, idem.Config{Store: store, Contract: idem.Keyless})
	for _, want := range []idem.Source{idem.SourceExecuted, idem.SourceReplayed} {
		ctx := idem.WithIntent(t.Context(), idem.Intent{Scope: "shop", ID: "o1"})
		req, _ := http.NewRequestWithContext(ctx, "POST", "http://shop.test/charges", nil)
		resp, err := c.Transport(base).RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		if got := idem.ReportOf(resp).Source; got != want {
			t.Errorf("%v, want %v", got, want)
		}
	}
}
