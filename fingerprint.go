package idem

import (
	"fmt"

	"github.com/idem-go/idem/internal/canon"
)

// Fingerprint returns the digest of a payload, as Do and server.Run compute
// it: a SHA-256 over its canonical JSON. Member order and white space do not
// count; numbers are compared by their digits and never pass through a
// float64, so 9007199254740993 and 9007199254740992 differ.
//
// A fingerprint may refuse what is equal, it never accepts what differs. So a
// payload whose JSON would hide a part of it is refused with ErrInvalidIntent,
// naming the field: unexported or `json:"-"` fields of a type without its own
// marshaller, names that shadow each other, strings that are not UTF-8.
func Fingerprint(payload any) ([32]byte, error) {
	sum, err := canon.Value(payload)
	if err != nil {
		return sum, fmt.Errorf("%w: payload: %w", ErrInvalidIntent, err)
	}
	return sum, nil
}
