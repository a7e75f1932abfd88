// Package stored is the form in which both halves keep an answer in a record's
// Result: versioned and checksummed, so that a damaged or newer record is told
// apart from an answer.
package stored

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"net/http"

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

// The layout: version, CRC-32 of all that follows, kind, length of the head,
// head, body.
const (
	version   = 2
	fixedSize = 1 + 4 + 1
)

// Encode returns the stored form.
func Encode(a Answer) []byte {
	head := headSize(a)
	b := make([]byte, fixedSize, fixedSize+uvarintSize(head)+head+len(a.Body))
	b[0], b[5] = version, byte(a.Kind)
	b = appendHead(binary.AppendUvarint(b, uint64(head)), a)
	b = append(b, a.Body...)
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
	if !readHead(string(rest[:n]), &a) {
		return Answer{}, fmt.Errorf("%w: the stored answer's head is wrong", keystore.ErrCorrupt)
	}
	a.Body = rest[n:]
	return a, nil
}
