package provider

import (
	"slices"

	"github.com/idem-go/idem"
)

// AIP155 is Google's AIP-155: request_id in the request message, a UUID of
// version 4. Servers remember it for "any reasonable timeframe", and may replay
// the state of now. Unverified: what a mismatch and a request in flight are
// answered, which the AIP leaves open.
//
// Source: https://google.aip.dev/155
var AIP155 = idem.Contract{
	Name: "AIP-155", Field: "request_id", MaxKeyLen: 36, Version4: true, Retention: Unpublished,
}

// IETF is the IETF draft to the letter: the key goes out as a string of RFC 9651,
// in quotes. Most servers take the quotes for a part of the key, which is why
// idem.IETF sends it bare. The draft gives 422 one meaning only, a key that was
// used for another payload, and no code to tell it by: so a 422 is a mismatch
// here, also one that a server answers to an invalid request. The draft leaves
// the retention to the server. It has expired, and is no RFC.
//
// Source: draft-ietf-httpapi-idempotency-key-header-07
var IETF = quoted(idem.IETF)

func quoted(c idem.Contract) idem.Contract {
	c.Name, c.Header, c.Quoted, c.Retention = "IETF draft, quoted", "Idempotency-Key", true, Unpublished
	c.Answers = append(slices.Clone(c.Answers), idem.Answer{Status: 422, Means: idem.MeansMismatch})
	return c
}
