package idem_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/keystore"
)

func TestKeyValidate(t *testing.T) {
	for _, tt := range []struct {
		name string
		key  idem.Key
		ok   bool
	}{
		{"plain", "order-7/charge", true},
		{"blank inside", "a b", true},
		{"quotes and backslash", `a"b\c,d;e~!`, true},
		{"B064 255 characters", idem.Key(strings.Repeat("k", 255)), true},
		{"B064 256 characters", idem.Key(strings.Repeat("k", 256)), false},
		{"empty", "", false},
		{"blank", " ", false},
		{"B065 blank before", " k", false},
		{"B065 blank after", "k ", false},
		{"B038 CR LF", "a\r\nX: y", false},
		{"B038 LF", "a\nb", false},
		{"B038 NUL", "a\x00b", false},
		{"tab", "a\tb", false},
		{"DEL", "a\x7f", false},
		{"B062 abbreviated by a formatter", "0xb7ef…375a", false},
		{"not UTF-8", "a\xff", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := tt.key.Validate()
			if (err == nil) != tt.ok {
				t.Fatalf("Validate: %v", err)
			}
			if err == nil {
				return
			}
			if !errors.Is(err, idem.ErrInvalidKey) {
				t.Errorf("%v is not ErrInvalidKey", err)
			}
			if strings.ContainsFunc(err.Error(), func(r rune) bool { return r < 0x20 || r > 0x7e }) {
				t.Errorf("B038: unescaped in the error: %q", err)
			}
		})
	}
}

func TestParseKey(t *testing.T) {
	for _, tt := range []struct{ name, header, want string }{
		{"B062 bare", `abc`, "abc"},
		{"B062 quoted", `"abc"`, "abc"},
		{"outer blanks", "\t \"abc\" ", "abc"},
		{"quoted blank, comma, semicolon", `"a b,c;d"`, "a b,c;d"},
		{"escapes", `"a\"b\\c"`, `a"b\c`},
		{"255", strings.Repeat("k", 255), strings.Repeat("k", 255)},
		{"256", strings.Repeat("k", 256), ""},
		{"B063 quoted 256", `"` + strings.Repeat("k", 256) + `"`, ""},
		{"empty", ``, ""},
		{"blank", `  `, ""},
		{"quoted empty", `""`, ""},
		{"quoted blank", `" "`, ""},
		{"quoted outer blank", `" k"`, ""},
		{"B054 two header lines, joined", `a, b`, ""},
		{"B054 joined without blank", `a,b`, ""},
		{"B054 joined strings", `"a", "b"`, ""},
		{"parameter", `"a";v=1`, ""},
		{"bare parameter", `a;v=1`, ""},
		{"bare blank", `a b`, ""},
		{"bare backslash", `a\b`, ""},
		{"quote inside", `a"b`, ""},
		{"no closing quote", `"abc`, ""},
		{"lone quote", `"`, ""},
		{"escaped closing quote", `"abc\"`, ""},
		{"unknown escape", `"a\nb"`, ""},
		{"control character", "a\x01b", ""},
		{"quoted control character", "\"a\nb\"", ""},
		{"not ASCII", `é`, ""},
		{"quoted not ASCII", `"é"`, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			key, err := idem.ParseKey(tt.header)
			if string(key) != tt.want || (err == nil) != (tt.want != "") {
				t.Errorf("ParseKey(%q) = %q, %v; want %q", tt.header, key, err, tt.want)
			}
			if err != nil && !errors.Is(err, idem.ErrInvalidKey) {
				t.Errorf("%v is not ErrInvalidKey", err)
			}
		})
	}
}

func TestNewKey(t *testing.T) {
	a, b := idem.NewKey(), idem.NewKey()
	if a == b || len(a) != 36 || a[14] != '4' || a.Validate() != nil {
		t.Errorf("%q, %q; want two UUIDs version 4", a, b)
	}
}

func TestDeriveKey(t *testing.T) {
	seen := map[idem.Key][]string{}
	for _, parts := range [][]string{{"ab", "c"}, {"a", "bc"}, {"abc"}, {"a", "b", "c"}, {"A", "bc"}, {"a", "bc "}, {"c", "ab"}} {
		key := idem.DeriveKey(parts...)
		if key != idem.DeriveKey(parts...) || key.Validate() != nil || len(key) != 36 || key[14] != '8' {
			t.Errorf("DeriveKey(%q) = %q; want a UUID version 8, always the same", parts, key)
		}
		if other := seen[key]; other != nil {
			t.Errorf("%q and %q give one key", parts, other)
		}
		seen[key] = parts
	}
	// The recipe is part of what servers remember: it can't change.
	if got := idem.DeriveKey("shop", "o1"); got != "e99aa3cf-583d-8b47-8910-3df6554df509" {
		t.Errorf("the recipe has changed: %s", got)
	}
	for _, parts := range [][]string{nil, {""}, {"invoice", ""}, {"", "invoice"}} {
		if key := idem.DeriveKey(parts...); key != "" {
			t.Errorf("B056: DeriveKey(%q) = %q; a missing part must not give a key", parts, key)
		}
	}
}

func TestChild(t *testing.T) {
	flow := idem.DeriveKey("order", "o1")
	reserve, capture := flow.Child("reserve"), flow.Child("capture")
	if reserve == capture || reserve == flow || reserve != flow.Child("reserve") || reserve.Validate() != nil {
		t.Errorf("%s has the children %s and %s", flow, reserve, capture)
	}
	if idem.DeriveKey("order", "o2").Child("reserve") == reserve {
		t.Error("two flows share a child")
	}
	if k := idem.Key("").Child("reserve"); k != "" {
		t.Errorf("the zero Key has the child %q", k)
	}
	if k := flow.Child(""); k != "" {
		t.Errorf("a step without name has the key %q", k)
	}
}

func TestKeyString(t *testing.T) {
	key := idem.Key(strings.Repeat("long", 50))
	if fmt.Sprint(key) != string(key) || fmt.Sprintf("%v", key) != string(key) || key.String() != string(key) {
		t.Error("B062: a key must not be abbreviated")
	}
	if d := key.Digest(); len(d) != 12 || d != key.Digest() || d == (key+"x").Digest() {
		t.Errorf("digest %q", d)
	}
}

// keyOf makes a call and returns the key that it was sent under.
func keyOf(t *testing.T, c *idem.Client, in idem.Intent) idem.Key {
	t.Helper()
	s := answers(nil)
	res, err := idem.Do(t.Context(), c, in, s.call)
	if err != nil {
		t.Fatal(err)
	}
	if s.calls() > 0 && s.sent(t) != res.Key {
		t.Fatalf("sent %q, reported %q", s.sent(t), res.Key)
	}
	return res.Key
}

func TestOrdersHaveKeys(t *testing.T) {
	const n = 10_000
	c := newClient(t, idem.Config{Scope: "shop"})
	orders := map[idem.Key]string{}
	for i := range n {
		id := fmt.Sprint("o", i)
		key := keyOf(t, c, idem.Intent{ID: id, Payload: "the same"})
		if other, taken := orders[key]; taken {
			t.Fatalf("B059: %s and %s share a key", id, other)
		}
		orders[key] = id
	}
	// B057, B167: the same orders after a restart, from another caller's loop.
	again := newClient(t, idem.Config{Scope: "shop"})
	for key, id := range orders {
		if id[len(id)-1] != '7' { // one in ten will do
			continue
		}
		if got := keyOf(t, again, idem.Intent{ID: id}); got != key {
			t.Fatalf("%s: %s after a restart, %s before", id, got, key)
		}
	}
}

func TestIntentKeys(t *testing.T) {
	c := newClient(t, idem.Config{Scope: "shop"})
	base := keyOf(t, c, idem.Intent{ID: "o1"})
	if base != "62436cb9-d7e8-8c06-81bb-88f7eb5d2f37" {
		t.Errorf("the recipe has changed: %s", base)
	}
	for _, tt := range []struct {
		name string
		in   idem.Intent
		same bool
	}{
		{"B058 not of the payload", idem.Intent{ID: "o1", Payload: map[string]any{"at": "12:03", "csrf": 7}}, true},
		{"the scope given twice", idem.Intent{ID: "o1", Scope: "shop"}, true},
		{"another scope", idem.Intent{ID: "o1", Scope: "shop2"}, false},
		{"scope and ID cut elsewhere", idem.Intent{ID: "1", Scope: "shopo"}, false},
		{"B065 case", idem.Intent{ID: "O1"}, false},
		{"B065 a blank", idem.Intent{ID: "o1 "}, false},
		{"B065 composed", idem.Intent{ID: "\u00e9"}, false},
	} {
		if got := keyOf(t, c, tt.in); (got == base) != tt.same {
			t.Errorf("%s: %s and %s", tt.name, got, base)
		}
	}
	if keyOf(t, c, idem.Intent{ID: "\u00e9"}) == keyOf(t, c, idem.Intent{ID: "e\u0301"}) {
		t.Error("B065: NFC and NFD of an ID are two IDs")
	}
	if keyOf(t, c, idem.Intent{Key: "mine"}) != "mine" {
		t.Error("B052: the caller's key is not sent as it is")
	}
}

func TestNoName(t *testing.T) {
	store := newStore(t)
	c := newClient(t, idem.Config{Store: store, Scope: "shop"})
	unnamed := idem.Intent{Payload: 1}
	if first, second := keyOf(t, c, unnamed), keyOf(t, c, unnamed); first == second {
		t.Error("B056: two calls without a name share a key")
	}
	if n := len(records(t, store)); n != 0 {
		t.Errorf("B056: %d records", n)
	}
}

// An ID and a key of the same text name two intents.
func TestIDIsNoKey(t *testing.T) {
	store := newStore(t)
	c := newClient(t, idem.Config{Store: store, Scope: "shop"})
	keyOf(t, c, idem.Intent{ID: "o1"})
	keyOf(t, c, idem.Intent{Key: "o1"})
	if n := len(records(t, store)); n != 2 {
		t.Errorf("%d records, want 2", n)
	}
}

func TestKeyFrom(t *testing.T) {
	c := newClient(t, idem.Config{Scope: "shop"})
	for _, in := range []idem.Intent{{ID: "o1"}, {}} {
		_, err := idem.Do(t.Context(), c, in, func(ctx context.Context, key idem.Key) (int, error) {
			if got, ok := idem.KeyFrom(ctx); !ok || got != key {
				t.Errorf("KeyFrom: %q, %v; want %q", got, ok, key)
			}
			return 0, nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if key, ok := idem.KeyFrom(t.Context()); ok {
		t.Errorf("a key from nowhere: %q", key)
	}
}

func TestRandomKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t)
		random := idem.Config{Store: store, Scope: "shop", RandomKeys: true}
		s := answers(idem.Unknown(errBoom))
		res, err := idem.Do(t.Context(), newClient(t, random), idem.Intent{ID: "o1"}, s.call)
		wantOutcome(t, err, idem.OutcomeUnknown)
		key := s.sent(t)
		if key == keyOf(t, newClient(t, idem.Config{Scope: "shop"}), idem.Intent{ID: "o1"}) || keyIn(t, record(t, store)) != key || res.Key != key {
			t.Fatalf("%s was sent, %s reported, %s is in the record", key, res.Key, keyIn(t, record(t, store)))
		}
		// After a restart, and even without RandomKeys: what was sent wins.
		for _, cfg := range []idem.Config{random, {Store: store, Scope: "shop"}} {
			s := answers(idem.Unknown(errBoom))
			_, err := idem.Do(t.Context(), newClient(t, cfg), idem.Intent{ID: "o1"}, s.call)
			wantOutcome(t, err, idem.OutcomeUnknown)
			if s.sent(t) != key {
				t.Errorf("sent %s, then %s", key, s.sent(t))
			}
		}
		// A refused intent gets another random key, which is kept as well.
		s = answers(idem.Rejected(errBoom))
		in := idem.Intent{ID: "o2"}
		idem.Do(t.Context(), newClient(t, random), in, s.call)
		next := keyOf(t, newClient(t, random), in)
		if next == s.sent(t) || next != keyOf(t, newClient(t, random), in) {
			t.Errorf("generation 0 had %s, 1 has %s", s.sent(t), next)
		}
	})
}

// A key that a caller gives can't rotate: after a refusal it is sent again.
func TestGivenKeyStays(t *testing.T) {
	store := newStore(t)
	c := newClient(t, idem.Config{Store: store})
	in := idem.Intent{Key: "mine"}
	idem.Do(t.Context(), c, in, answers(idem.Rejected(errBoom)).call)
	if rec := record(t, store); rec.State != keystore.Free || rec.Generation != 1 {
		t.Fatalf("%v, generation %d", rec.State, rec.Generation)
	}
	if key := keyOf(t, c, in); key != "mine" {
		t.Error(key)
	}
}
