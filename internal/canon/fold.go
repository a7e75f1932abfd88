package canon

import (
	"cmp"
	"unicode"
	"unicode/utf8"
)

// compareFold orders names by their letters without case. No two members of an accepted object compare equal, so it
// is a full order there, and names that some reader takes for one stand side by side.
func compareFold(a, b []byte) int {
	for len(a) > 0 && len(b) > 0 {
		if a[0] < utf8.RuneSelf && b[0] < utf8.RuneSelf { // most bytes of most names
			if c := cmp.Compare(foldByte(a[0]), foldByte(b[0])); c != 0 {
				return c
			}
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

// foldByte is foldRune for ASCII.
func foldByte(c byte) byte {
	if 'a' <= c && c <= 'z' {
		return c - 'a' + 'A'
	}
	return c
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
