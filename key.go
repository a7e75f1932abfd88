package idem

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/google/uuid"
)

// MaxKeyLen is the length of the longest key, in bytes.
const MaxKeyLen = 255

// Key is the name of one intent on the wire. It is 1 to MaxKeyLen printable
// ASCII characters without blanks at either end. The zero Key names nothing
// and is refused everywhere.
//
// A Key is not a secret, and no authorization; still, whoever knows it can ask
// for the stored answer, so logs and events carry its Digest.
type Key string

// NewKey returns a random key: a UUID version 4, 36 characters.
func NewKey() Key { return Key(uuid.NewString()) }

// DeriveKey returns the key that follows from the parts: the same parts give
// the same key in every process, other parts another one. The parts are
// length-prefixed, so ("ab", "c") and ("a", "bc") differ. The key has 128 bits
// in the shape of a UUID version 8 (RFC 9562), which most providers accept.
//
// Name what the operation is, never when or how it is tried: a time, an
// attempt number or a credential among the parts makes every retry a new
// operation. An empty part is most often a missing order number, and a key
// made of it would merge unrelated intents; so without parts, or with an empty
// one, the result is the zero Key, which every use refuses.
func DeriveKey(parts ...string) Key {
	if len(parts) == 0 {
		return ""
	}
	b := append(make([]byte, 0, 256), "idem key 1"...) // which need not be on the heap
	for _, p := range parts {
		if p == "" {
			return ""
		}
		b = binary.BigEndian.AppendUint64(b, uint64(len(p)))
		b = append(b, p...)
	}
	sum := sha256.Sum256(b)
	var u uuid.UUID
	copy(u[:], sum[:])
	u[6] = u[6]&0x0f | 0x80
	u[8] = u[8]&0x3f | 0x80
	return Key(u.String())
}

// Child returns the key of one step of the flow that k names, so that each
// step happens once: key.Child("reserve"), key.Child("capture"). The child of
// the zero Key, and a child with an empty step, is the zero Key.
func (k Key) Child(step string) Key { return DeriveKey("child", string(k), step) }

// String returns the key itself, unabbreviated.
func (k Key) String() string { return string(k) }

// Digest returns 12 hex digits that stand for the key in logs and events, the
// same on both halves. It does not reveal the key.
func (k Key) Digest() string {
	sum := sha256.Sum256([]byte("idem key digest\x00" + string(k)))
	return hex.EncodeToString(sum[:6])
}

// Validate tells whether k is a key that may be sent; the error is
// ErrInvalidKey and says which rule it breaks, but not the key itself.
func (k Key) Validate() error {
	switch {
	case k == "":
		return badKey("is empty")
	case len(k) > MaxKeyLen:
		return badKey(fmt.Sprintf("has %d characters; at most %d are allowed", len(k), MaxKeyLen))
	case k[0] == ' ' || k[len(k)-1] == ' ':
		return badKey("begins or ends with a blank, which HTTP would cut off")
	}
	for i := range len(k) {
		if k[i] < 0x20 || k[i] > 0x7e {
			return badKey(fmt.Sprintf("has the byte 0x%02x at %d; only printable ASCII is allowed", k[i], i))
		}
	}
	return nil
}

// badKey says what is wrong with a key, but not the key: errors are logged.
func badKey(rule string) error { return fmt.Errorf("%w: it %s", ErrInvalidKey, rule) }

// ParseKey reads a key from the value of a header line. The value is a string
// of RFC 9651, `"abc"`, as the IETF draft asks for, or the bare `abc` that most
// clients send; both are the same key. A bare key has no blank, quote, comma,
// semicolon or backslash in it: a comma, for one, means that two header lines
// were joined on their way. Parameters after the string are refused.
// The error is ErrInvalidKey.
func ParseKey(header string) (Key, error) {
	s := strings.Trim(header, " \t")
	if !strings.HasPrefix(s, `"`) {
		if i := strings.IndexAny(s, " \",;\\"); i >= 0 {
			return "", badKey(fmt.Sprintf("has %q at %d; send such a key as a quoted string (RFC 9651)", s[i], i))
		}
		return validKey(s)
	}
	var b strings.Builder
	for i := 1; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"' && i == len(s)-1:
			return validKey(b.String())
		case c == '"':
			return "", badKey("goes on after its closing quote")
		case c == '\\':
			i++
			if i == len(s) || s[i] != '"' && s[i] != '\\' {
				return "", badKey(`has a backslash that escapes neither " nor \`)
			}
			b.WriteByte(s[i])
		default:
			b.WriteByte(c)
		}
	}
	return "", badKey("has no closing quote")
}

func validKey(s string) (Key, error) {
	if err := Key(s).Validate(); err != nil {
		return "", err
	}
	return Key(s), nil
}

// quoted spells the key as a string of RFC 9651.
func (k Key) quoted() string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(string(k)) + `"`
}

// bare tells whether a server that follows ParseKey reads the unquoted key as
// this key.
func (k Key) bare() bool { return !strings.ContainsAny(string(k), " \",;\\") }
