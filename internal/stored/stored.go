// Package stored is the form in which both halves keep an answer in a record's
// Result: versioned and checksummed, so that a damaged or newer record is told
// apart from an answer.
package stored

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/idem-go/idem/keystore"
)

// Kind is what an answer is.
type Kind byte

const (
	// Value is the encoded result of a function, in Body.
	Value Kind = iota + 1
	// Response is an HTTP response.
	Response
	// Tombstone stands for an answer that could not be kept: executed, and
	// never to be executed again. Reason says why; Header may have what is
	// left of a response, such as its Location.
	Tombstone
	// Refusal is a function's definitive refusal: not executed, and the same
	// intent would be refused again. Reason is its error's text.
	Refusal
)

// Answer is what a settled record holds.
type Answer struct {
	Kind   Kind
	Status int
	Header http.Header
	Reason string
	// Origin is what a tracer has noted of the operation that executed.
	Origin string
	Body   []byte
}

// head is the part that is stored as JSON, before the body's own bytes.
type head struct {
	Status int         `json:"status,omitempty"`
	Header http.Header `json:"header,omitempty"`
	Reason string      `json:"reason,omitempty"`
	Origin string      `json:"origin,omitempty"`
}

// The layout: version, CRC-32 of all that follows, kind, length of the head,
// head, body.
const (
	version   = 1
	fixedSize = 1 + 4 + 1
)

// Encode returns the stored form.
func Encode(a Answer) []byte {
	h, err := json.Marshal(head{a.Status, recode(a.Header, widen), a.Reason, a.Origin})
	if err != nil {
		panic("idem: stored: a head of ints and strings always encodes: " + err.Error())
	}
	b := make([]byte, fixedSize, fixedSize+binary.MaxVarintLen64+len(h)+len(a.Body))
	b[0], b[5] = version, byte(a.Kind)
	b = binary.AppendUvarint(b, uint64(len(h)))
	b = append(append(b, h...), a.Body...)
	binary.BigEndian.PutUint32(b[1:], crc32.ChecksumIEEE(b[5:]))
	return b
}

// Decode reads what Encode wrote. Errors: keystore.ErrFormat for a version
// that this code does not know, keystore.ErrCorrupt for anything else that is
// not an answer. Body shares b's memory.
func Decode(b []byte) (Answer, error) {
	if len(b) < fixedSize {
		return Answer{}, fmt.Errorf("%w: the stored answer has %d bytes, fewer than its header", keystore.ErrCorrupt, len(b))
	}
	if b[0] > version {
		return Answer{}, fmt.Errorf("%w: the stored answer has version %d, this code reads up to %d", keystore.ErrFormat, b[0], version)
	}
	if b[0] != version || binary.BigEndian.Uint32(b[1:]) != crc32.ChecksumIEEE(b[5:]) {
		return Answer{}, fmt.Errorf("%w: the stored answer's checksum is wrong", keystore.ErrCorrupt)
	}
	a := Answer{Kind: Kind(b[5])}
	n, size := binary.Uvarint(b[fixedSize:])
	rest := b[fixedSize:]
	if a.Kind < Value || a.Kind > Refusal || size <= 0 || n > uint64(len(rest)-size) {
		return Answer{}, fmt.Errorf("%w: the stored answer's layout is wrong", keystore.ErrCorrupt)
	}
	rest = rest[size:]
	var h head
	if err := json.Unmarshal(rest[:n], &h); err != nil {
		return Answer{}, fmt.Errorf("%w: the stored answer's head: %w", keystore.ErrCorrupt, err)
	}
	a.Status, a.Header, a.Body = h.Status, recode(h.Header, narrow), rest[n:]
	a.Reason, a.Origin = h.Reason, h.Origin
	return a, nil
}

// recode returns a header with every value recoded. Header values are bytes,
// and need not be the UTF-8 that JSON asks for.
func recode(h http.Header, recode func(string) string) http.Header {
	if onlyASCII(h) { // nearly all are
		return h
	}
	out := make(http.Header, len(h))
	for name, values := range h {
		var recoded []string
		for _, v := range values {
			recoded = append(recoded, recode(v))
		}
		out[recode(name)] = recoded // also without values: that keeps net/http from sniffing
	}
	return out
}

func onlyASCII(h http.Header) bool {
	for name, values := range h {
		if !isASCII(name) || slices.ContainsFunc(values, func(v string) bool { return !isASCII(v) }) {
			return false
		}
	}
	return true
}

// widen makes each byte of s a rune; narrow undoes that.
func widen(s string) string {
	if isASCII(s) {
		return s
	}
	var b strings.Builder
	for _, c := range []byte(s) {
		b.WriteRune(rune(c))
	}
	return b.String()
}

func narrow(s string) string {
	if isASCII(s) {
		return s
	}
	b := make([]byte, 0, len(s))
	for _, r := range s {
		b = append(b, byte(r))
	}
	return string(b)
}

func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}
