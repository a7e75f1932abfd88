// Package canon turns what a caller asks for into a fingerprint: 32 bytes that two requests share only if they ask for
// the same thing. One rule decides every doubt: it may refuse what is equal, it must never accept what differs.
//
// [JSON] reads the meaning of a JSON text, [HTTP] that of a request, [Value] that of a Go value. [CheckResult] answers
// the related question whether a Go type survives a round trip through JSON.
//
// All functions are safe for concurrent use and keep nothing of what they are given. Fingerprints are stored for days
// and compared across processes, so the encodings behind the version tags never change; a new encoding takes a new tag.
package canon

import (
	"crypto/sha256"
	"encoding/binary"
)

// Domain tags. None is a prefix of another, so a digest made under one is never a digest made under another.
const (
	rawTag  = "idem/raw/1\x00"
	jsonTag = "idem/json/1\x00"
	httpTag = "idem/http/1\x00"
)

// raw is the digest of bytes whose meaning is not looked into.
func raw(b []byte) (sum [32]byte) {
	h := sha256.New()
	h.Write([]byte(rawTag))
	h.Write(b)
	h.Sum(sum[:0])
	return sum
}

// appendText appends s behind its length, so that neighbouring texts cannot trade bytes.
func appendText[T string | []byte](b []byte, s T) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}
