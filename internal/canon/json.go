package canon

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// maxDepth is how deeply arrays and objects may nest before a text is compared by its bytes.
const maxDepth = 1000

// JSON returns the digest of what a JSON text says. White space and the order of members do not count, the order of
// elements does. Strings are compared after unescaping, numbers by their literal text: 1, 1.0 and 1e0 are three
// numbers, and none ever becomes a float64.
//
// A text on whose meaning readers may disagree counts by its bytes, under another domain tag: invalid JSON, trailing
// data, invalid UTF-8, lone surrogates, nesting deeper than 1000, and two members of one object whose names are equal
// or differ only in case (encoding/json lets the last of them win, so there their order counts).
func JSON(text []byte) [32]byte {
	if sum, ok := canonical(text); ok {
		return sum
	}
	return raw(text)
}

// canonical returns the digest of a text whose meaning is beyond doubt.
func canonical(text []byte) (sum [32]byte, ok bool) {
	if !utf8.Valid(text) {
		return sum, false
	}
	s := scanner{in: text, out: append(make([]byte, 0, 512), jsonTag...)}
	if !s.value(0) {
		return sum, false
	}
	if s.space(); s.at != len(text) {
		return sum, false
	}
	return sha256.Sum256(s.out), true
}

// scanner reads a JSON text strictly (RFC 8259) and writes what it says as pieces that begin with a kind and delimit
// themselves. Its methods answer false where the text is invalid or ambiguous.
type scanner struct {
	in      []byte
	at      int
	out     []byte
	members []member // of all objects now open, the innermost last
}

// member is one member of an object. Its value is held as a digest, so that sorting moves no values and deep nesting
// costs no copies.
type member struct {
	name  []byte
	value [32]byte
}

// value reads one value that stands inside depth arrays and objects.
func (s *scanner) value(depth int) bool {
	s.space()
	if s.at == len(s.in) {
		return false
	}
	switch s.in[s.at] {
	case '{':
		return depth < maxDepth && s.object(depth+1)
	case '[':
		return depth < maxDepth && s.array(depth+1)
	case '"':
		text, ok := s.text()
		s.out = appendText(append(s.out, 's'), text)
		return ok
	case 't':
		return s.word("true")
	case 'f':
		return s.word("false")
	case 'n':
		return s.word("null")
	default:
		return s.number()
	}
}

func (s *scanner) object(depth int) bool {
	s.at++
	first, start := len(s.members), len(s.out)
	for open := !s.next('}'); open; {
		if s.space(); s.at == len(s.in) || s.in[s.at] != '"' {
			return false
		}
		name, ok := s.text()
		if !ok || !s.next(':') || !s.value(depth) {
			return false
		}
		s.members = append(s.members, member{name, sha256.Sum256(s.out[start:])})
		s.out = s.out[:start]
		if !s.next(',') {
			if !s.next('}') {
				return false
			}
			open = false
		}
	}
	members := s.members[first:]
	slices.SortFunc(members, func(a, b member) int { return compareFold(a.name, b.name) })
	s.out = binary.AppendUvarint(append(s.out, '{'), uint64(len(members)))
	for i, m := range members {
		if i > 0 && compareFold(members[i-1].name, m.name) == 0 {
			return false
		}
		s.out = append(appendText(s.out, m.name), m.value[:]...)
	}
	s.members = s.members[:first]
	return true
}

func (s *scanner) array(depth int) bool {
	s.at++
	s.out = append(s.out, '[')
	for open := !s.next(']'); open; {
		if !s.value(depth) {
			return false
		}
		if !s.next(',') {
			if !s.next(']') {
				return false
			}
			open = false
		}
	}
	s.out = append(s.out, ']') // no value begins with it, so it ends the elements
	return true
}

// text reads a string and returns it unescaped. The result may share the input's memory.
func (s *scanner) text() ([]byte, bool) {
	s.at++
	start, escaped := s.at, false
	for ; s.at < len(s.in); s.at++ {
		switch c := s.in[s.at]; {
		case c == '"':
			text := s.in[start:s.at]
			s.at++
			if escaped {
				return unescape(text)
			}
			return text, true
		case c == '\\':
			escaped = true
			s.at++ // whatever it escapes does not end the string
		case c < ' ':
			return nil, false
		}
	}
	return nil, false
}

// unescape decodes the inside of a string, in which every backslash has a follower.
func unescape(text []byte) ([]byte, bool) {
	out := make([]byte, 0, len(text))
	for {
		i := bytes.IndexByte(text, '\\')
		if i < 0 {
			return append(out, text...), true
		}
		out = append(out, text[:i]...)
		c := text[i+1]
		if c == 'u' {
			r, n := escapedRune(text[i:])
			if n == 0 {
				return nil, false
			}
			out = utf8.AppendRune(out, r)
			text = text[i+n:]
			continue
		}
		j := strings.IndexByte(`"\/bfnrt`, c)
		if j < 0 {
			return nil, false
		}
		out = append(out, "\"\\/\b\f\n\r\t"[j])
		text = text[i+2:]
	}
}

// escapedRune decodes the \u escape, or the surrogate pair of two, at the start of text and returns its length; 0 if
// it is malformed or a surrogate stands alone.
func escapedRune(text []byte) (rune, int) {
	r, ok := escapedUnit(text)
	if !ok {
		return 0, 0
	}
	if !utf16.IsSurrogate(r) {
		return r, 6
	}
	low, ok := escapedUnit(text[6:])
	if r = utf16.DecodeRune(r, low); !ok || r == unicode.ReplacementChar {
		return 0, 0
	}
	return r, 12
}

func escapedUnit(text []byte) (rune, bool) {
	if len(text) < 6 || text[0] != '\\' || text[1] != 'u' {
		return 0, false
	}
	u, err := strconv.ParseUint(string(text[2:6]), 16, 16)
	return rune(u), err == nil
}

func (s *scanner) number() bool {
	start := s.at
	s.accept("-")
	if !s.accept("0") && !s.digits() {
		return false
	}
	if s.accept(".") && !s.digits() {
		return false
	}
	if s.accept("eE") {
		s.accept("+-")
		if !s.digits() {
			return false
		}
	}
	s.out = appendText(append(s.out, 'd'), s.in[start:s.at])
	return true
}

func (s *scanner) digits() bool {
	start := s.at
	for s.accept("0123456789") {
	}
	return s.at > start
}

// word reads true, false or null; its first letter is its kind.
func (s *scanner) word(w string) bool {
	if !bytes.HasPrefix(s.in[s.at:], []byte(w)) {
		return false
	}
	s.at += len(w)
	s.out = append(s.out, w[0])
	return true
}

// accept steps over the next byte if it is one of set.
func (s *scanner) accept(set string) bool {
	if s.at == len(s.in) || strings.IndexByte(set, s.in[s.at]) < 0 {
		return false
	}
	s.at++
	return true
}

// next steps over white space, and then over c if it stands there.
func (s *scanner) next(c byte) bool {
	if s.space(); s.at == len(s.in) || s.in[s.at] != c {
		return false
	}
	s.at++
	return true
}

func (s *scanner) space() {
	for s.at < len(s.in) {
		switch s.in[s.at] {
		case ' ', '\t', '\n', '\r':
			s.at++
		default:
			return
		}
	}
}

// compareFold orders names by their letters without case. No two members of an accepted object compare equal, so it
// is a full order there, and names that some reader takes for one stand side by side.
func compareFold(a, b []byte) int {
	for len(a) > 0 && len(b) > 0 {
		if a[0] == b[0] && a[0] < utf8.RuneSelf { // most bytes of most names
			a, b = a[1:], b[1:]
			continue
		}
		ra, na := utf8.DecodeRune(a)
		rb, nb := utf8.DecodeRune(b)
		if c := cmp.Compare(foldRune(ra), foldRune(rb)); c != 0 {
			return c
		}
		a, b = a[na:], b[nb:]
	}
	return cmp.Compare(len(a), len(b))
}

// foldRune returns the smallest of the runes that differ from r only in case, as encoding/json does.
func foldRune(r rune) rune {
	for {
		next := unicode.SimpleFold(r)
		if next <= r {
			return next
		}
		r = next
	}
}
