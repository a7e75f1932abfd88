package canon

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"
)

// reference is what JSON is to return, made from what encoding/json reads: slow, and independent of the scanner.
func reference(t *testing.T, text []byte) [32]byte {
	if !json.Valid(text) || ambiguous(t, text) {
		return sha256.Sum256(append([]byte(rawTag), text...))
	}
	return sha256.Sum256(appendMeaning([]byte(jsonTag), decode(t, text)))
}

func appendMeaning(b []byte, v any) []byte {
	switch v := v.(type) {
	case map[string]any:
		names := make([]string, 0, len(v))
		for name := range v {
			names = append(names, name)
		}
		slices.SortFunc(names, func(a, b string) int { return slices.Compare(folded(a), folded(b)) })
		b = binary.AppendUvarint(append(b, '{'), uint64(len(names)))
		for _, name := range names {
			value := sha256.Sum256(appendMeaning(nil, v[name]))
			b = append(appendText(b, name), value[:]...)
		}
		return b
	case []any:
		b = append(b, '[')
		for _, element := range v {
			b = appendMeaning(b, element)
		}
		return append(b, ']')
	case string:
		return appendText(append(b, 's'), v)
	case json.Number:
		return appendText(append(b, 'd'), string(v))
	case bool:
		return append(b, strconv.FormatBool(v)[0])
	default:
		return append(b, 'n')
	}
}

// folded returns the runes of a name, each as the smallest of those that differ from it only in case.
func folded(name string) []rune {
	runes := []rune(name)
	for i, first := range runes {
		for r := unicode.SimpleFold(first); r != first; r = unicode.SimpleFold(r) {
			runes[i] = min(runes[i], r)
		}
	}
	return runes
}

// corpus has every kind of text that fingerprints distinguish, small and large.
func corpus() []string {
	texts := []string{
		``, ` `, `null`, `true`, `false`, `0`, `-0`, `1.0`, `1e400`, `-1E-400`, `1e+0`, `9007199254740993`, strings.Repeat("9", 2000), `01`, `1.`, `-`, `2 `, `2x`,
		`""`, `"a"`, `"\u0041\u00e9\ud83d\ude00"`, `"\ud800"`, `"\udc00x"`, `"\ud800\ud800"`, `"\/\b\f\n\r\t\"\\"`, `"\x"`, `"\u12g4"`, `"\`, `"a`, "\"\x1f\"", "\"\x7f\u2028\"",
		"\"\xff\"", "\xff", "{\"\xc0\x80\":1}", "\ufeff1", `[]`, `{}`, `[{}]`, `{"":{}}`, `[1,]`, `{"a":1,}`, `{"a" 1}`, `[1}`, `{"a":1]`,
		`{"a":1,"b":2}`, `{"b":2,"a":1}`, `{"B":1,"a":2,"_":3,"Z":4,"z_":5}`, `{"\u0062":1,"a\u0000":2,"a":3}`, `{"a":1,"a":2}`, `{"a":1,"A":1}`, `{"a":1,"b":2,"\u0041":3}`,
		`{"é":1,"e":2,"z":3,"Ê":4}`, `{"s":1,"ſ":1}`, `{"k":1,"` + "\u212a" + `":2}`, `{"` + "\u212a" + `b":1,"ka":2,"kc":3}`, `{"ß":1,"ẞ":2}`, `{"😀":1,"` + "\uffee" + `":2}`,
		string(order1KiB()), " { \"a\" :\r\n[ 1 ,\t2 ] } ", `["<a href=\"x\">&amp;"]`, `{"a":{"b":{"c":[{"d":1,"c":2}]}}}`,
	}
	for _, n := range []int{1, 7, 8, 9, 54, 55, 56, 63, 64, 127, 128, 129, 5000, 20_000} { // lengths at which something is done in another way
		plain, escapes := strings.Repeat("x", n), strings.Repeat(`\u00e9`, n)
		texts = append(texts, `"`+plain+`"`, `"`+escapes+`"`, `{"`+plain+`":1,"`+plain+`y":2,"`+escapes+`":3}`, `[[`+strings.Repeat(`"ab",`, n)+`1],[2]]`,
			`{"z":[`+strings.Repeat(`{"b":1,"a":[2]},`, n)+`{}],"a":0}`, `"`+plain+"\xc3\"", `"`+plain+`\q"`, `"`+plain+"\x01\"", `[`+plain+`]`, members(n, func(i int) int { return i }),
			members(n, func(i int) int { return n - i }), members(n, func(i int) int { return i * 7919 % n }), members(n, func(i int) int { return i % (n/2 + 1) }))
	}
	for _, depth := range []int{999, 1000, 1001} {
		texts = append(texts, strings.Repeat("[", depth)+strings.Repeat("]", depth), strings.Repeat(`{"a":`, depth)+"1"+strings.Repeat("}", depth),
			strings.Repeat(`{"b":1,"a":[`, depth/2)+strings.Repeat(`],"c":2}`, depth/2))
	}
	return texts
}

// members is an object of n members, the i-th of which is named after name(i).
func members(n int, name func(i int) int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `,"name%06d":[%d,"%d",true]`, name(i), i, i)
	}
	return "{" + b.String()[1:] + "}"
}

func TestReference(t *testing.T) {
	for _, text := range corpus() {
		if len(text) > 1<<17 {
			continue // ambiguous is too slow for it
		}
		if got, want := JSON([]byte(text)), reference(t, []byte(text)); got != want {
			t.Errorf("%.60q (%d bytes): got %x, want %x", text, len(text), got[:4], want[:4])
		}
	}
}

// What was stored under the first release must still be found.
func TestPinnedCorpus(t *testing.T) {
	all := sha256.New()
	for _, text := range corpus() {
		sum := JSON([]byte(text))
		all.Write(sum[:])
	}
	if got, want := hex.EncodeToString(all.Sum(nil)), "86ddc7807fdad9fa26b7e36791c620e0f5a8316a7aa6ff00d66f9302ce76b5e9"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
