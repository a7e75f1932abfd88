package idemtest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"time"
)

// differBodies names the first difference of two bodies, and what it may come
// from.
func differBodies(a, b []byte) (what, cause string) {
	var x, y any
	if decodeJSON(a, &x) != nil || decodeJSON(b, &y) != nil {
		return differ("the payload", string(a), string(b))
	}
	path, was, is := differJSON("", x, y)
	if path == "" && was == is {
		what, _ = differ("the payload", string(a), string(b))
		return what, "the same JSON in other bytes: members in the order of a map, or other white space"
	}
	if path == "" {
		path = "the payload"
	}
	return fmt.Sprintf("%s was %s, and is %s", path, was, is), guess("the payload", was, is)
}

// decodeJSON keeps the digits of numbers.
func decodeJSON(b []byte, v *any) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	return d.Decode(v)
}

// absent is how a member is spelled that is not there.
const absent = "absent"

// differJSON returns the path of the first difference, and both values; equal
// ones have none.
func differJSON(path string, a, b any) (at, was, is string) {
	switch x := a.(type) {
	case map[string]any:
		y, ok := b.(map[string]any)
		if !ok {
			break
		}
		var names []string
		for name := range x {
			names = append(names, name)
		}
		for name := range y {
			if _, both := x[name]; !both {
				names = append(names, name)
			}
		}
		slices.Sort(names)
		for _, name := range names {
			deeper := path + "." + name
			if path == "" {
				deeper = name
			}
			v, before := x[name]
			w, now := y[name]
			switch {
			case !before:
				return deeper, absent, spell(w)
			case !now:
				return deeper, spell(v), absent
			}
			if at, was, is = differJSON(deeper, v, w); was != is {
				return at, was, is
			}
		}
		return "", "", ""
	case []any:
		y, ok := b.([]any)
		if !ok || len(x) != len(y) {
			break
		}
		for i := range x {
			if at, was, is = differJSON(fmt.Sprintf("%s[%d]", path, i), x[i], y[i]); was != is {
				return at, was, is
			}
		}
		return "", "", ""
	}
	if was, is = spell(a), spell(b); was != is {
		return path, was, is
	}
	return "", "", ""
}

// spell is a value as JSON, cut where it is long.
func spell(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(b)
}

// differ shows two texts from shortly before their first difference.
func differ(name, a, b string) (what, cause string) {
	i := 0
	for i < min(len(a), len(b)) && a[i] == b[i] {
		i++
	}
	from := max(0, i-12)
	was, is := excerpt(a[from:]), excerpt(b[from:])
	return fmt.Sprintf("%s differs from byte %d on: there was %q, and is %q", name, i, was, is), guess(name, was, is)
}

const maxExcerpt = 60

func excerpt(s string) string {
	if len(s) > maxExcerpt {
		return s[:maxExcerpt] + "…"
	}
	return s
}

var (
	timeLike   = regexp.MustCompile(`\d{4}-\d\d-\d\d|\d\d:\d\d:\d\d`)
	uuidLike   = regexp.MustCompile(`(?i)[0-9a-f]{8}-[0-9a-f]{4}|[0-9a-f]{16,}`)
	digitsLike = regexp.MustCompile(`\d+`)
)

// guess says what the values that differ may be.
func guess(where, was, is string) string {
	switch {
	case timeLike.MatchString(was) && timeLike.MatchString(is), epoch(was) && epoch(is):
		return "a timestamp in " + where + ": the time of the attempt instead of the intent's"
	case uuidLike.MatchString(was) && uuidLike.MatchString(is):
		return "a random ID in " + where + ", such as a request ID or a nonce, that is made for each attempt"
	case digitsLike.FindString(was) != "" && digitsLike.FindString(is) != "":
		return "a counter in " + where + ", such as an attempt number; or an amount that is worked out anew"
	}
	return ""
}

// epoch finds a number that counts seconds, or parts of them, since 1970: of
// the years from 2000 on.
func epoch(s string) bool {
	n, err := json.Number(digitsLike.FindString(s)).Int64()
	return err == nil && n >= time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).Unix()
}
