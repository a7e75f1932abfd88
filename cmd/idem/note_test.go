package main

import (
	"bytes"
	"encoding/json"
	"maps"
	"net/http"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/stored"
	"github.com/idem-go/idem/keystore"
)

// TestNextNote: after -rejected a record's note is, byte for byte, the one that
// the client half writes after a refusal.
func TestNextNote(t *testing.T) {
	call := func(cfg idem.Config, in idem.Intent) func(*world, bool) {
		return func(w *world, refused bool) {
			err := idem.Unknown(errLost)
			if refused {
				err = idem.Rejected(errLost)
			}
			_, _, _ = w.do(cfg, in, err)
		}
	}
	send := func(cfg idem.Config, in idem.Intent) func(*world, bool) {
		return func(w *world, refused bool) {
			status := 500
			if refused {
				status = 422
			}
			_, _, _ = w.send(cfg, in, status)
		}
	}
	quoted, kept := idem.Config{Contract: idem.Contract{Quoted: true}}, idem.Config{MaxPayload: 1000}
	named := idem.Intent{Scope: "a<b>&", ID: "o1", Payload: map[string]string{"a": "<>&"}}
	for name, attempt := range map[string]func(*world, bool){
		"derived":             call(idem.Config{}, named),
		"in quotes":           call(quoted, named),
		"with its payload":    call(kept, named),
		"given":               call(idem.Config{}, idem.Intent{Key: "mine"}),
		"given, needs quotes": call(idem.Config{}, idem.Intent{Scope: "s", Key: `a "b" c`}),
		"request":             send(idem.Config{}, named),
		"request, in quotes":  send(quoted, named),
		"request, given":      send(idem.Config{}, idem.Intent{Key: "mine"}),
	} {
		t.Run(name, func(t *testing.T) {
			refused, resolved := newWorld(t), newWorld(t)
			for generation := range uint32(3) {
				attempt(refused, true)
				attempt(resolved, false)
				resolved.must("resolve", hexOf(only(t, resolved).ID), "-rejected", "-yes")
				want, got := only(t, refused), only(t, resolved)
				if want.State != keystore.Free || want.Generation != generation+1 {
					t.Fatalf("the client half left %+v", want)
				}
				if got.State != keystore.Free || got.Generation != want.Generation || !bytes.Equal(got.Meta, want.Meta) {
					t.Fatalf("got generation %d, %s\nwant %d, %s", got.Generation, got.Meta, want.Generation, want.Meta)
				}
			}
		})
	}
}

func only(t *testing.T, w *world) keystore.Record {
	t.Helper()
	recs, err := w.store.Records(t.Context(), keystore.Query{})
	if err != nil || len(recs) != 1 {
		t.Fatalf("%d records, %v", len(recs), err)
	}
	return recs[0]
}

// TestNextRandomKey: where keys are drawn, the next one is drawn too.
func TestNextRandomKey(t *testing.T) {
	w := newWorld(t)
	cfg := idem.Config{RandomKeys: true}
	_, first, _ := w.do(cfg, order, idem.Unknown(errLost))
	w.must("resolve", hexOf(o1), "-rejected", "-yes")
	v := viewOf(w.record(o1))
	if v.broken != nil || v.key == first || v.key == idem.DeriveKey("intent", "shop", "o1", "1") || v.key.Validate() != nil || v.client.Wire != string(v.key) {
		t.Errorf("%+v, %v", v.client, v.broken)
	}
	if _, sent, err := w.do(cfg, order, nil); err != nil || sent != v.key {
		t.Errorf("sent %q, noted %q, %v", sent, v.key, err)
	}
}

// TestRespell: a key is written as the one before it.
func TestRespell(t *testing.T) {
	first, next := clientNote{Scope: "s", ID: "i"}, clientNote{Scope: "s", ID: "i", Generation: 1}
	for _, form := range []idem.Contract{{}, {Undashed: true}, {Version4: true}, {Undashed: true, Version4: true}, {Quoted: true}} {
		n := first
		n.Wire = form.Spell(first.derivedKey())
		n.Key = idem.Key(strings.Trim(n.Wire, `"`))
		want := form.Spell(next.derivedKey())
		if got := n.next(); got.Wire != want || string(got.Key) != strings.Trim(want, `"`) {
			t.Errorf("after %s comes %s as %s, want %s", n.Wire, got.Key, got.Wire, want)
		}
	}
	drawn := clientNote{Scope: "s", ID: "i", Key: "0123456789abcdef0123456789abcdef"}
	if got := drawn.next().Key; len(got) != 32 || strings.Contains(string(got), "-") {
		t.Errorf("after a drawn key without dashes comes %s", got)
	}
}

// TestLargePayload: where the next note has no room for a payload, it goes
// without.
func TestLargePayload(t *testing.T) {
	n := clientNote{Version: 1, Scope: "s", ID: "i", Payload: json.RawMessage(`"` + strings.Repeat("a", keystore.MaxMeta) + `"`)}
	if b := n.encode(); len(b) > keystore.MaxMeta || bytes.Contains(b, []byte("aaa")) {
		t.Errorf("%d bytes", len(b))
	}
}

var (
	tags     = regexp.MustCompile("`json:\"([^\"]+)\"`")
	literals = regexp.MustCompile(`"([^"]+)"`)
)

// between is the part of a source file that begins with start, up to end.
func between(t *testing.T, file, start, end string) string {
	t.Helper()
	source, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(source), start)
	part, _, closed := strings.Cut(rest, end)
	if !ok || !closed {
		t.Fatalf("%s has no %q any more; find out what it has become", file, start)
	}
	return part
}

// TestNotesOfTheHalves: the notes have the fields that both halves write. The
// client half's is written anew, and must lose none.
func TestNotesOfTheHalves(t *testing.T) {
	for _, tt := range []struct {
		file  string
		note  any
		loses []string // which are not of interest here
	}{
		{"../../meta.go", clientNote{}, nil},
		{"../../server/meta.go", serverNote{}, []string{"next,omitempty"}},
	} {
		var want, got []string
		for _, m := range tags.FindAllStringSubmatch(between(t, tt.file, "type meta struct {", "\n}"), -1) {
			if !slices.Contains(tt.loses, m[1]) {
				want = append(want, m[1])
			}
		}
		for i := range reflect.TypeOf(tt.note).NumField() {
			got = append(got, reflect.TypeOf(tt.note).Field(i).Tag.Get("json"))
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s has the fields %q, %T has %q", tt.file, want, tt.note, got)
		}
	}
}

// TestHeaders: what is kept of a header is what the server half keeps.
func TestHeaders(t *testing.T) {
	var want []string
	for _, m := range literals.FindAllStringSubmatch(between(t, "../../server/replay.go", "neverStored = map[string]bool{", "\n}"), -1) {
		want = append(want, m[1])
	}
	got := slices.Sorted(maps.Keys(perExchange))
	if want = append(want, "Idempotent-Replayed"); !slices.Equal(got, slices.Sorted(slices.Values(want))) {
		t.Errorf("the server half never stores\n%q\nthis\n%q", want, got)
	}
	var prefixes []string
	for _, m := range literals.FindAllStringSubmatch(between(t, "../../server/replay.go", "neverStoredPrefixes = []string{", "}"), -1) {
		prefixes = append(prefixes, m[1])
	}
	if prefixes = append(prefixes, http.TrailerPrefix); !slices.Equal(prefixes, perExchangePrefixes) {
		t.Errorf("the server half never stores what begins with %q, this with %q", prefixes, perExchangePrefixes)
	}
}

// TestDefinitive: the statuses that are taken are those that the server half
// settles a record with.
func TestDefinitive(t *testing.T) {
	w := newWorld(t)
	for status := 200; status < 600; status++ {
		w.exec(`DELETE FROM idem_records`)
		_, _ = w.serve("k", "POST", status)
		if stores := only(t, w).State == keystore.Done; stores != definitive(status) {
			t.Errorf("%d: the server half settles: %v", status, stores)
		}
	}
}

// TestStoredAlike: a handler's answer, and the same one given by an operator,
// are one in the store.
func TestStoredAlike(t *testing.T) {
	given, handled := newWorld(t), newWorld(t)
	_, _ = handled.serve("k", "POST", 204)
	_, _ = given.serve("k", "POST", 500)
	given.must("resolve", hexOf(only(t, given).ID), "-yes", "-done", given.file("HTTP/1.1 204 No Content\r\nDate: now\r\n\r\n"))
	a, err := stored.Decode(only(t, handled).Result)
	if err != nil {
		t.Fatal(err)
	}
	b, err := stored.Decode(only(t, given).Result)
	if err != nil || a.Kind != b.Kind || a.Status != b.Status || len(b.Header) != len(a.Header) || len(b.Body) != 0 {
		t.Errorf("got %+v, want %+v, %v", b, a, err)
	}
}
