package idem

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Contract says how one server takes keys and what its answers mean. It is a
// plain value: copy it and change what differs. The zero Contract is IETF.
type Contract struct {
	// Name is for people.
	Name string
	// Header carries the key; empty means Idempotency-Key, unless a Field does.
	Header string
	// Field carries the key instead of a header: a member of the request's JSON
	// object, or a field of its form. Dots lead into objects that are there, as
	// in variables.input.apiRequestKey. The rest of the body stays as it is. A
	// request with an intent that has no such body is refused before anything is
	// sent, one without goes out without a key; so is any whose field has a value
	// of another kind. A key that the caller has put there itself is taken as it
	// is. Transport does this; a function that Do calls
	// gets the key, and puts it where its SDK wants it.
	Field string
	// Undashed sends a key that idem has made as 32 hex digits, without the
	// dashes of a UUID.
	Undashed bool
	// Quoted sends the key as a string of RFC 9651, "abc" with its quotes, as
	// the IETF draft writes it. Without it the key is sent bare, which is
	// what most servers expect, unless it has characters that need quotes.
	Quoted bool
	// Version4 marks a key that idem has made as a UUID of version 4, as a
	// random one is, for servers that take no other. A derived key stays the
	// same for the same intent.
	Version4 bool
	// MaxKeyLen is the longest key that the server takes; 0 means MaxKeyLen
	// (255).
	MaxKeyLen int
	// KeyChars are the characters that the server takes in a key; empty means
	// all of printable ASCII. A key with another one is refused before it is
	// sent. Hex digits and, unless Undashed, the dash must be among them.
	KeyChars string
	// Retention is how long the server remembers a key at least, counted from
	// the first send; 0 means 24 h. No attempt is sent later than that: the
	// server would take it for a new operation.
	Retention time.Duration
	// ReplayHeader is the response header that marks a replay with "true".
	// Idempotent-Replayed and Idempotency-Replayed are always understood.
	ReplayHeader string
	// RetryHeader is the response header that says "true" or "false" to
	// another attempt. Stripe-Should-Retry and X-Should-Retry are always
	// understood.
	RetryHeader string
	// RetryAfterHeader is a response header with the seconds to wait, read
	// before Retry-After-Ms and Retry-After.
	RetryAfterHeader string
	// StoresErrors says that the server keeps its refusals under the key and
	// replays them, so that a 4xx proves that no earlier attempt succeeded.
	StoresErrors bool
	// Unkeyed says that the server does not honour keys: none is sent, and an
	// attempt whose outcome is unknown is never repeated.
	Unkeyed bool
	// Answers are looked up before the status table; the first that fits
	// decides.
	Answers []Answer
	// Credentials are further request headers that say who asks, beside
	// Authorization and Cookie. Calls with other credentials are not merged.
	Credentials []string
}

// Answer gives one of a server's replies its meaning.
type Answer struct {
	// Status that the reply has; 0 means any.
	Status int
	// Code that the reply's JSON body has in one of its members code, type,
	// error, errorCode, error_code, errorType, errorClass, reason, reasonCode,
	// issue or name: the whole text or number, or, for a URI, its last segment. It may
	// stand in the object, in its error, in one of its errors or details, or
	// in the extensions of one of these. Empty means any body.
	Code  string
	Means Meaning
}

// Meaning is what a reply says about the intent.
type Meaning uint8

const (
	// MeansUnknown: nothing is known about the execution, and repeating the
	// attempt does not help.
	MeansUnknown Meaning = iota + 1
	// MeansExecuted: it was executed, by this or an earlier attempt.
	MeansExecuted
	// MeansNotRetained: it was executed, and the answer was not kept.
	MeansNotRetained
	// MeansNotExecuted: refused before any work; another attempt can help.
	MeansNotExecuted
	// MeansRejected: definitely refused.
	MeansRejected
	// MeansInFlight: another attempt under this key is still running.
	MeansInFlight
	// MeansMismatch: the key was used with another payload.
	MeansMismatch
)

// IETF is the contract of draft-ietf-httpapi-idempotency-key-header, with the
// problem codes of this module's server half.
var IETF = Contract{
	Name: "IETF draft",
	Answers: []Answer{
		{Status: 409, Code: "in-flight", Means: MeansInFlight},
		{Status: 425, Code: "in-flight", Means: MeansInFlight},
		{Status: 422, Code: "key-reused", Means: MeansMismatch},
		{Status: 409, Code: "recovery-required", Means: MeansUnknown},
		{Status: 409, Code: "response-not-retained", Means: MeansNotRetained},
	},
}

// Keyless is the contract of a server that does not honour keys. Nothing makes
// such a server safe: an attempt whose outcome is unknown is not repeated.
var Keyless = Contract{Name: "keyless", Unkeyed: true}

// withDefaults returns the contract with its zero values filled in.
func (c Contract) withDefaults() Contract {
	if c.Name == "" && c.Answers == nil {
		c.Name, c.Answers = IETF.Name, IETF.Answers
	}
	if c.Header == "" && c.Field == "" {
		c.Header = "Idempotency-Key"
	}
	if c.MaxKeyLen == 0 {
		c.MaxKeyLen = MaxKeyLen
	}
	if c.Retention == 0 {
		c.Retention = 24 * time.Hour
	}
	return c
}

// validate reports the first field that breaks a rule.
func (c Contract) validate() error {
	switch {
	case c.MaxKeyLen < 0 || c.MaxKeyLen > MaxKeyLen:
		return badConfig("Contract.MaxKeyLen", fmt.Sprintf("is %d; use 0 for %d, or 1 to %d", c.MaxKeyLen, MaxKeyLen, MaxKeyLen))
	case c.KeyChars != "" && !c.takes(c.form("0123456789abcdef-")):
		return badConfig("Contract.KeyChars", fmt.Sprintf("is %q; the keys that idem makes need hex digits and, unless Undashed, the dash", c.KeyChars))
	case c.Header != "" && c.Field != "":
		return badConfig("Contract.Field", fmt.Sprintf("is %q, and Header is %q; the key goes into one of them", c.Field, c.Header))
	case slices.Contains(strings.Split(c.Field, "."), "") && c.Field != "":
		return badConfig("Contract.Field", fmt.Sprintf("is %q; use names joined by single dots", c.Field))
	case c.Retention < 0:
		return badConfig("Contract.Retention", fmt.Sprintf("is %v; use 0 for 24h, or a positive duration", c.Retention))
	}
	for field, name := range map[string]string{
		"Header": c.Header, "ReplayHeader": c.ReplayHeader, "RetryHeader": c.RetryHeader, "RetryAfterHeader": c.RetryAfterHeader,
	} {
		if name != "" && !isToken(name) {
			return badConfig("Contract."+field, fmt.Sprintf("is %q; it must be the name of a header", name))
		}
	}
	for i, a := range c.Answers {
		if a.Means < MeansUnknown || a.Means > MeansMismatch {
			return badConfig(fmt.Sprintf("Contract.Answers[%d].Means", i), fmt.Sprintf("is %d; use one of the Means constants", a.Means))
		}
		if a.Status != 0 && (a.Status < 100 || a.Status > 999) {
			return badConfig(fmt.Sprintf("Contract.Answers[%d].Status", i), fmt.Sprintf("is %d; use 0 for any, or a status code", a.Status))
		}
	}
	return nil
}

// Spell is how the server takes a key that idem has made, for functions that
// put it into a request by themselves: as version 4, without dashes, or in
// quotes, if the contract says so.
func (c Contract) Spell(k Key) string { return c.spell(c.form(k)) }

// takes tells whether the key has only characters that the server takes.
func (c *Contract) takes(k Key) bool {
	return c.KeyChars == "" || !strings.ContainsFunc(string(k), func(r rune) bool { return !strings.ContainsRune(c.KeyChars, r) })
}

// form is the form in which the server takes a key that idem has made.
func (c *Contract) form(k Key) Key {
	if c.Version4 && len(k) == 36 {
		k = k[:14] + "4" + k[15:]
	}
	if c.Undashed {
		k = Key(strings.ReplaceAll(string(k), "-", ""))
	}
	return k
}

// spell is how a key is written on the wire.
func (c *Contract) spell(k Key) string {
	if c.Field == "" && (c.Quoted || !k.bare()) {
		return k.quoted()
	}
	return string(k)
}
