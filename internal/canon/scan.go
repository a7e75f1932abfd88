package canon

import (
	"bytes"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// scanner steps through the tokens of a JSON text (RFC 8259). Its methods begin at the next byte and answer false where
// the text is invalid.
type scanner struct {
	in []byte
	at int
}

// peek steps over white space and returns the byte that comes then, or 0, which begins nothing, at the end.
func (s *scanner) peek() byte {
	for s.at < len(s.in) {
		c := s.in[s.at]
		if c > ' ' || c != ' ' && c != '\n' && c != '\r' && c != '\t' {
			return c
		}
		s.at++
	}
	return 0
}

// next steps over white space, and then over c if it stands there.
func (s *scanner) next(c byte) bool {
	if s.peek() != c {
		return false
	}
	s.at++
	return true
}

// word reads true, false or null.
func (s *scanner) word(w string) bool {
	if !bytes.HasPrefix(s.in[s.at:], []byte(w)) {
		return false
	}
	s.at += len(w)
	return true
}

// number returns the literal text of a number.
func (s *scanner) number() (literal []byte, ok bool) {
	in, start := s.in, s.at
	at := start
	if at < len(in) && in[at] == '-' {
		at++
	}
	end := digits(in, at)
	if end == at || in[at] == '0' && end > at+1 {
		return nil, false
	}
	if at = end; at < len(in) && in[at] == '.' {
		at++
		if end = digits(in, at); end == at {
			return nil, false
		}
		at = end
	}
	if at < len(in) && (in[at] == 'e' || in[at] == 'E') {
		at++
		if at < len(in) && (in[at] == '+' || in[at] == '-') {
			at++
		}
		if end = digits(in, at); end == at {
			return nil, false
		}
		at = end
	}
	s.at = at
	return in[start:at], true
}

// digits returns where the digits end that begin at in[at].
func digits(in []byte, at int) int {
	for at < len(in) && '0' <= in[at] && in[at] <= '9' {
		at++
	}
	return at
}

// literal has the bytes that stand for themselves in a string.
var literal = func() (set [256]bool) {
	for c := range set {
		set[c] = c >= ' ' && c != '"' && c != '\\'
	}
	return set
}()

// quoted returns the inside of a string, and whether it must be unescaped.
func (s *scanner) quoted() (text []byte, escaped, ok bool) {
	in, start := s.in, s.at+1
	for at := start; at < len(in); at++ {
		switch c := in[at]; {
		case literal[c]:
		case c == '"':
			s.at = at + 1
			return in[start:at], escaped, true
		case c == '\\':
			escaped = true
			at++ // whatever it escapes does not end the string
		default:
			return nil, false, false
		}
	}
	return nil, false, false
}

// escapes has what a byte stands for behind a backslash.
var escapes = [256]byte{'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t'}

// appendUnescaped decodes the inside of a string, in which every backslash has a follower.
func appendUnescaped(out, text []byte) ([]byte, bool) {
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
				return out, false
			}
			out = utf8.AppendRune(out, r)
			text = text[i+n:]
			continue
		}
		if c = escapes[c]; c == 0 {
			return out, false
		}
		out = append(out, c)
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

func escapedUnit(text []byte) (unit rune, ok bool) {
	if len(text) < 6 || text[0] != '\\' || text[1] != 'u' {
		return 0, false
	}
	for _, c := range text[2:6] {
		switch {
		case '0' <= c && c <= '9':
			c -= '0'
		case 'a' <= c|0x20 && c|0x20 <= 'f':
			c = c | 0x20 - 'a' + 10
		default:
			return 0, false
		}
		unit = unit<<4 | rune(c)
	}
	return unit, true
}
