package canon

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestJSONEqual(t *testing.T) {
	for _, tc := range []struct{ name, a, b string }{
		{"white space", `{"a":[1,2],"b":{}}`, " {\t\"a\" :\r\n[ 1 , 2 ] , \"b\" : { } } "},
		{"B121 member order", `{"a":1,"b":{"c":2,"d":3}}`, `{"b":{"d":3,"c":2},"a":1}`},
		{"B121 member order by escaped names", `{"a":1,"b":2}`, `{"\u0062":2,"\u0061":1}`},
		{"B123 escapes", `"a/\"\\\b\f\n\r\té😀"`, `"\u0061\/\u0022\u005C\u0008\u000c\u000A\u000d\u0009\u00E9\uD83D\ude00"`},
		{"B123 escaped NUL", `"\u0000"`, "  \"\\u0000\""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a, okA := canonical([]byte(tc.a))
			b, okB := canonical([]byte(tc.b))
			if !okA || !okB {
				t.Fatalf("canonical: %t, %t", okA, okB)
			}
			if a != b || JSON([]byte(tc.a)) != a {
				t.Error("same meaning, different digests")
			}
		})
	}
}

func TestJSONDiffers(t *testing.T) {
	for _, tc := range []struct {
		name  string
		texts []string
	}{
		{"B122 beyond float64", []string{`{"amount":9007199254740993}`, `{"amount":9007199254740992}`, `{"amount":9007199254740992.0}`}},
		{"B122 spellings of one", []string{`1`, `1.0`, `1e0`, `1E0`, `1e+0`, `10e-1`, `"1"`, `true`}},
		{"B122 overflow and zero", []string{`1e400`, `1e401`, `null`, `0`, `-0`, `1e-400`}},
		{"B122 lone surrogate and its replacement", []string{`"\ud800"`, `"\ufffd"`, `"\udc00"`, `"\ud801"`, `"\ud800\ud800"`, `"\ud800x"`}},
		{"B122 missing member", []string{`{"a":1,"b":null}`, `{"a":1}`, `{"b":null}`, `{}`}},
		{"B123 duplicate members", []string{`{"a":1,"a":2}`, `{"a":2}`, `{"a":1}`, `{"a":2,"a":1}`}},
		{"B123 duplicate members after unescaping", []string{`{"a":1,"\u0061":2}`, `{"\u0061":2,"a":1}`, `{"a":2}`, `{"a":1,"a":2}`}},
		{"B123 names that readers fold", []string{`{"a":1,"A":2}`, `{"A":2,"a":1}`, `{"a":2}`}},
		{"B123 names that fold outside ASCII", []string{`{"k":1,"\u212a":2}`, `{"\u212a":2,"k":1}`}},
		{"B123 names by case", []string{`{"amount":1}`, `{"Amount":1}`}},
		{"B125 element order", []string{`[1,2]`, `[2,1]`, `[[1],2]`, `[[1,2]]`, `[1,[2]]`, `[12]`}},
		{"B125 element order, deep", []string{`{"a":[{"b":[1,2]}]}`, `{"a":[{"b":[2,1]}]}`}},
		{"moved boundaries", []string{`["ab","c"]`, `["a","bc"]`, `["abc"]`, `["ab",["c"]]`, `[["ab"],"c"]`, `{"ab":"c"}`, `{"a":"bc"}`}},
		{"empty things", []string{`{}`, `[]`, `""`, `[{}]`, `[[]]`, `[[],[]]`, `[""]`, `null`, `{"":""}`, `{"":{}}`, ``}},
		{"kinds", []string{`true`, `"true"`, `["true"]`, `false`, `null`, `"null"`, `"t"`, `1`, `"1"`}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			seen := map[[32]byte]string{}
			for _, text := range tc.texts {
				sum := JSON([]byte(text))
				if other, ok := seen[sum]; ok {
					t.Errorf("%s and %s share a digest", text, other)
				}
				seen[sum] = text
			}
		})
	}
}

func TestJSONRaw(t *testing.T) {
	deep := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	mixed := strings.Repeat(`{"a":[`, maxDepth/2)
	for _, text := range []string{
		``, ` `, `{`, `{"a"}`, `{"a":}`, `{"a":1,}`, `{,}`, `{a:1}`, `{"a" 1}`, `{"a":1 "b":2}`, `{"a":1]`, `[1,]`, `[,1]`, `[1 2]`, `[1`, `[1}`,
		`1 2`, `{} x`, `[],`, `nul`, `nulll`, `True`, `NaN`, `01`, `-`, `+1`, `.5`, `1.`, `1e`, `1e+`, `0x1`, `1_0`, `--1`,
		`"`, `"a`, `"\`, `"\"`, `"\x"`, `"\u12"`, `"\u12g4"`, `"\u+123"`, `"\u 123"`, `"\U0041"`, "\"\n\"", "\"\x00\"", "\"\\\n\"", `'a'`,
		`"\ud800"`, `"\udc00"`, `"\udc00\ud800"`, `"\ud800\u0041"`, `"\ud800\n"`,
		"\"\xff\"", "\"\xed\xa0\x80\"", "\"\xc0\x80\"", "\ufeff1", "\u00a01", "1\x00", "/**/1",
		`{"a":1,"a":1}`, `{"a":{"b":1,"\u0062":1}}`, `{"straße":1,"STRAßE":1}`, `{"k":1,"b":1,"K":1}`, `{"s":1,"ſ":1}`,
		deep(maxDepth + 1), strings.Repeat(`{"a":`, maxDepth+1) + "1" + strings.Repeat("}", maxDepth+1), `{"é":1,"É":1}`, mixed + "[1]" + strings.Repeat("]}", maxDepth/2),
	} {
		if _, ok := canonical([]byte(text)); ok {
			t.Errorf("%.40q has a canonical digest", text)
		}
		if JSON([]byte(text)) != raw([]byte(text)) {
			t.Errorf("%.40q does not count by its bytes", text)
		}
	}
	for _, text := range []string{
		deep(maxDepth), mixed + "1" + strings.Repeat("]}", maxDepth/2),
		`-0`, `-0.0e-0`, `1E+2`, `0`, `"\ufffd"`, "\"\u2028\x7f\"", `{"a":{"a":1},"b":{"a":1}}`, `{"":0}`, `[{"a":1},{"a":1}]`, `{"é":1,"è":1}`,
	} {
		if _, ok := canonical([]byte(text)); !ok {
			t.Errorf("%.40q counts by its bytes", text)
		}
	}
}

// Fingerprints outlive the process that made them, so the encoding must not change by accident.
func TestPinned(t *testing.T) {
	sum := [32]byte{1}
	for _, tc := range []struct {
		got  [32]byte
		want string
	}{
		{JSON([]byte(`{"b":[1,"x",true,null],"a":{}}`)), "d407ffdaf991ca0d"},
		{JSON([]byte(`{`)), "78faa01f96b52a27"},
		{HTTP(Request{"https://a", "POST", "/p", "q=1", "application/json", []byte(`{}`), &sum}), "96a1c4292b8bf37b"},
	} {
		if got := fmt.Sprintf("%x", tc.got[:8]); got != tc.want {
			t.Errorf("got %s, want %s", got, tc.want)
		}
	}
}

var surrogate = regexp.MustCompile(`\\u[dD][89a-fA-F]`)

// FuzzJSON holds canonical against encoding/json: what one accepts the other does, and two texts share a digest exactly
// if they decode to the same thing with number literals kept.
func FuzzJSON(f *testing.F) {
	for _, s := range []string{
		`{"a":1,"b":[1,2,{"c":"\u0041\ud83d\ude00"}]}`, `{"b":2,"a":{"d":null,"c":true}}`, `[1,1.0,1e0,-0]`, `"\ud800"`, `{"a":1,"A":2}`,
		`{"a":1,"\u0061":1}`, ` [ ] `, `[[[[]]]]`, "\"\xff\"", `9007199254740993`, `{"k":1,"\u212a":2}`, `"\/\b\f\n\r\t\"\\"`,
	} {
		f.Add([]byte(s), []byte(s))
		f.Add([]byte(s), []byte(`{"a":1}`))
	}
	f.Fuzz(func(t *testing.T, a, b []byte) {
		sumA, okA := canonical(a)
		if got, want := JSON(a), reference(t, a); got != want {
			t.Fatalf("%q: got %x, want %x", a, got, want)
		}
		if !okA {
			if json.Valid(a) && !ambiguous(t, a) {
				t.Fatalf("%q is plain JSON, but counts by its bytes", a)
			}
			return
		}
		if !json.Valid(a) || ambiguous(t, a) {
			t.Fatalf("%q is accepted", a)
		}
		va := decode(t, a)
		var compact, indented bytes.Buffer
		if err := json.Compact(&compact, a); err != nil {
			t.Fatal(err)
		}
		if err := json.Indent(&indented, a, "\t", "  "); err != nil {
			t.Fatal(err)
		}
		for _, same := range [][]byte{compact.Bytes(), indented.Bytes(), reversed(va)} {
			if sum, ok := canonical(same); !ok || sum != sumA {
				t.Fatalf("%q and %q say the same but differ", a, same)
			}
		}
		if sumB, okB := canonical(b); okB && (sumA == sumB) != reflect.DeepEqual(va, decode(t, b)) {
			t.Fatalf("%q and %q: same digest %t", a, b, sumA == sumB)
		}
	})
}

func decode(t *testing.T, text []byte) (v any) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	return v
}

// reversed writes v with its members in falling order and every rune escaped.
func reversed(v any) []byte {
	switch v := v.(type) {
	case map[string]any:
		var parts [][]byte
		for name, value := range v {
			parts = append(parts, append(append(escaped(name), ':'), reversed(value)...))
		}
		slices.SortFunc(parts, func(a, b []byte) int { return bytes.Compare(b, a) })
		return append(append([]byte("{"), bytes.Join(parts, []byte(" , "))...), '}')
	case []any:
		var parts [][]byte
		for _, value := range v {
			parts = append(parts, reversed(value))
		}
		return append(append([]byte("["), bytes.Join(parts, []byte(",\n"))...), ']')
	case string:
		return escaped(v)
	default:
		text, _ := json.Marshal(v)
		return text
	}
}

func escaped(s string) []byte {
	out := []byte{'"'}
	for _, r := range s {
		if r > 0xffff {
			r -= 0x10000
			out = fmt.Appendf(out, `\u%04x\u%04X`, 0xd800+r>>10, 0xdc00+r&0x3ff)
		} else {
			out = fmt.Appendf(out, `\u%04x`, r)
		}
	}
	return append(out, '"')
}

// ambiguous reports, by way of encoding/json's tokens, whether valid JSON has names that fold to one, lone surrogates,
// invalid UTF-8 or too much nesting. Surrogates are judged by whether encoding/json has replaced one.
func ambiguous(t *testing.T, text []byte) bool {
	if !utf8.Valid(text) {
		return true
	}
	if surrogate.Match(text) {
		// With every genuine U+FFFD taken out, one that is left after decoding was a lone surrogate.
		plain := regexp.MustCompile(`(?i)\\\\|\\ufffd|\x{fffd}`).ReplaceAllFunc(text, func(m []byte) []byte {
			if string(m) == `\\` {
				return m
			}
			return []byte("?")
		})
		var names []any
		d := json.NewDecoder(bytes.NewReader(plain))
		for {
			token, err := d.Token()
			if err != nil {
				break
			}
			names = append(names, token)
		}
		for _, token := range names {
			if s, ok := token.(string); ok && strings.ContainsRune(s, utf8.RuneError) {
				return true
			}
		}
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	found := false
	var value func(depth int)
	value = func(depth int) {
		token, err := d.Token()
		if err != nil {
			t.Fatal(err)
		}
		open, ok := token.(json.Delim)
		if !ok {
			return
		}
		found = found || depth == maxDepth
		var names []string
		for d.More() {
			if open == '{' {
				name, err := d.Token()
				if err != nil {
					t.Fatal(err)
				}
				same := func(n string) bool { return strings.EqualFold(n, name.(string)) }
				found = found || slices.ContainsFunc(names, same)
				names = append(names, name.(string))
			}
			value(depth + 1)
		}
		if _, err := d.Token(); err != nil {
			t.Fatal(err)
		}
	}
	value(0)
	return found
}

func BenchmarkJSON1KiB(b *testing.B) {
	text := order1KiB()
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		JSON(text)
	}
}

// order1KiB is a typical body of about 1 KiB.
func order1KiB() []byte {
	items := strings.Repeat(`{"sku":"A-1001","name":"Widget \"small\"","quantity":3,"unit_price":"19.99","taxed":true},`, 9)
	return []byte(`{"order_id":"ord_123","amount":9007199254740993,"currency":"EUR","customer":{"id":"cus_9","email":"a@example.com",` +
		`"address":{"city":"Köln","zip":"50667"}},"note":null,"items":[` + strings.TrimSuffix(items, ",") + `]}`)
}
