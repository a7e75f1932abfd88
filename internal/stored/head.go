package stored

import (
	"encoding/binary"
	"math"
	"math/bits"
	"net/http"
)

// The head has, as varints and as strings behind their lengths: status, reason,
// origin, how many names the header has and how many values in all, and each
// name with the number of its values, and these. Header values are bytes, and
// need not be UTF-8.

func headSize(a Answer) int {
	names, values := uint64(len(a.Header)), valuesOf(a.Header)
	n := uvarintSize(a.Status) + textSize(a.Reason) + textSize(a.Origin) + uvarintSize(int(names)) + uvarintSize(values)
	for name, values := range a.Header {
		n += textSize(name) + uvarintSize(len(values))
		for _, v := range values {
			n += textSize(v)
		}
	}
	return n
}

func appendHead(b []byte, a Answer) []byte {
	b = binary.AppendUvarint(b, uint64(a.Status))
	b = appendText(appendText(b, a.Reason), a.Origin)
	b = binary.AppendUvarint(b, uint64(len(a.Header)))
	b = binary.AppendUvarint(b, uint64(valuesOf(a.Header)))
	for name, values := range a.Header {
		b = binary.AppendUvarint(appendText(b, name), uint64(len(values)))
		for _, v := range values {
			b = appendText(b, v)
		}
	}
	return b
}

func valuesOf(h http.Header) (n int) {
	for _, values := range h {
		n += len(values)
	}
	return n
}

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func textSize(s string) int { return uvarintSize(len(s)) + len(s) }

func uvarintSize(n int) int { return (bits.Len64(uint64(n)|1) + 6) / 7 }

// readHead reads the head into a, and tells whether it is whole and nothing
// follows it. All that it reads is a part of head.
func readHead(head string, a *Answer) bool {
	r := reader{rest: head}
	a.Status, a.Reason, a.Origin = r.number(math.MaxInt), r.text(), r.text()
	// Each takes a byte at least: no head can ask for much memory.
	names, left := r.number(len(r.rest)), r.number(len(r.rest))
	if names > 0 {
		a.Header = make(http.Header, names)
	}
	all := make([]string, 0, left)
	for range names {
		name, n := r.text(), r.number(left)
		first := len(all)
		for range n {
			all = append(all, r.text())
		}
		left -= n
		if n == 0 {
			a.Header[name] = nil // that keeps net/http from adding its own
		} else {
			a.Header[name] = all[first:len(all):len(all)]
		}
	}
	return !r.failed && r.rest == "" && left == 0
}

// reader reads a head from its front.
type reader struct {
	rest   string
	failed bool
}

// number reads a number up to most; 0 if there is none.
func (r *reader) number(most int) int {
	var n uint64
	for i := 0; i < len(r.rest) && i < binary.MaxVarintLen64-1; i++ {
		c := r.rest[i]
		n |= uint64(c&0x7f) << (7 * i)
		if c < 0x80 {
			if n > uint64(most) {
				break
			}
			r.rest = r.rest[i+1:]
			return int(n)
		}
	}
	r.failed, r.rest = true, ""
	return 0
}

func (r *reader) text() string {
	n := r.number(len(r.rest))
	if n > len(r.rest) { // its length has taken a byte, too
		r.failed, n = true, 0
	}
	s := r.rest[:n]
	r.rest = r.rest[n:]
	return s
}
