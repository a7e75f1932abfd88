package idemtest

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/idem-go/idem/keystore"
	"github.com/idem-go/idem/keystore/memstore"
)

// HandlerCheck says how to try a handler. New, Request and Effects have no
// default.
type HandlerCheck struct {
	// New returns a fresh handler that keeps its records in store. It is called
	// several times, each time as a process that has just started. The
	// handler's effect, in a test mostly a fake, calls reached right after it
	// has happened, on the goroutine that had it: there CheckHandler lets it
	// panic, lets it be slow and lets its client hang up. Without that call
	// there is less that can go wrong, and less is found.
	New func(store keystore.Store, reached func()) http.Handler
	// Request makes the request for the n-th intent, without a key, as a
	// client's request or a server's: one that the handler accepts. Two intents
	// have two payloads. It is called once for each n, with n from 1 on; the
	// attempts are copies.
	Request func(n int) *http.Request
	// Effects tells how many effects the n-th intent has had so far.
	Effects func(n int) int

	// Store holds the records; nil means one in memory. New gets it wrapped, as
	// the keystore.Transactor and keystore.Waiter that it is.
	Store keystore.Store
	// Header carries the key; empty means Idempotency-Key.
	Header string
	// Optional: a request without a key is let through, and rule missing-key
	// does not apply.
	Optional bool
	// Unstored: the handler keeps no answers, as with
	// server.WithoutStoredAnswer, and may answer a retry with 409.
	Unstored bool
	// Large makes a request whose answer is larger than what is stored, for
	// rule large. Nil leaves the rule out.
	Large func(n int) *http.Request
	// AsAnother turns a request into that of another tenant or user, for rule
	// other-scope. Nil leaves the rule out.
	AsAnother func(*http.Request)
	// Except names the rules that don't apply.
	Except []string
	// Patience is how long one request may take; 0 means 10 s. It is used up
	// by handlers only that hang.
	Patience time.Duration
}

// CheckHandler tries a handler that is to have one effect per key, whether it
// stands behind server.Handler or has key handling of its own, and reports an
// error for each rule that it breaks: what was seen, what was expected, the
// usual cause, and how to mend it. The rules, by the names in the reports:
//
//	replay       a retry gets the first answer again: status, headers, body
//	concurrent   of 16 duplicates at once one has the effect; the others get its
//	             answer, or a refusal for now (409, 425, 429, 503) with Retry-After
//	payload      another payload under the key is refused (422, another 4xx), has
//	             no effect, and is told nothing of the stored answer
//	missing-key  a request without a key is refused (400, another 4xx)
//	bad-key      so is one with an empty, malformed or oversized key, or with two
//	hang-up      the client hangs up: the retry gets the answer, to one effect
//	panic        the handler panics: there is no second effect, and the key is not stuck
//	slow         the client gives up and retries while the first attempt still runs
//	unrecorded   the store fails when the answer is to be recorded
//	large        an answer that is too large to store is whole, or refused, never cut
//	restart      a new handler on the old store replays what the former one did
//	other-key    another key, if of another last digit only, has its own effect and answer
//	other-scope  one key in the hands of two tenants names two intents
//
// What replay finds of an answer, status, headers or body, the rules after it
// don't report again. A handler that refuses the valid request, or has no effect that Effects can
// see, is reported under the name request, and not tried further.
//
// Requests are given to the handler without a network, but for a part of
// hang-up, which needs net/http on connections in memory. So CheckHandler runs
// in a synctest bubble too, where no wait takes time, if the handler holds no
// mutex during its effect and its answer: on one, a bubble's time stands still.
// Headers that belong to one exchange are not compared (Date, cookies, trace and
// rate-limit headers), nor are headers that a retry's answer has in addition.
//
// Passing is no proof: a race without reached in its middle may stay unseen.
func CheckHandler(t TB, c HandlerCheck) {
	t.Helper()
	if broken := c.settle(); broken != "" {
		t.Errorf("CheckHandler: config: %s", broken)
		return
	}
	check := newCheck(t, c)
	if !check.trial("request").acceptable() {
		return
	}
	for _, r := range handlerRules {
		if r.applies(c) {
			r.run(check.trial(r.name))
		}
	}
}

// handlerRule is one rule of the battery.
type handlerRule struct {
	name string
	run  func(*trial)
	// when tells whether the rule has what it needs; nil: it needs nothing.
	when func(HandlerCheck) bool
}

var handlerRules = []handlerRule{
	{"replay", (*trial).replay, nil},
	{"concurrent", (*trial).concurrent, nil},
	{"payload", (*trial).payload, nil},
	{"missing-key", (*trial).missingKey, func(c HandlerCheck) bool { return !c.Optional }},
	{"bad-key", (*trial).badKey, nil},
	{"hang-up", (*trial).hangUp, nil},
	{"panic", (*trial).panics, nil},
	{"slow", (*trial).slow, nil},
	{"unrecorded", (*trial).unrecorded, nil},
	{"large", (*trial).large, func(c HandlerCheck) bool { return c.Large != nil }},
	{"restart", (*trial).restart, nil},
	{"other-key", (*trial).otherKey, nil},
	{"other-scope", (*trial).otherScope, func(c HandlerCheck) bool { return c.AsAnother != nil }},
}

func (r handlerRule) applies(c HandlerCheck) bool {
	return !slices.Contains(c.Except, r.name) && (r.when == nil || r.when(c))
}

// settle fills in the defaults and says which rule the config breaks, if any.
func (c *HandlerCheck) settle() string {
	switch {
	case c.New == nil:
		return "New is nil; return the handler to try, on the store that it is given"
	case c.Request == nil:
		return "Request is nil; return a valid request, another one for each n"
	case c.Effects == nil:
		return "Effects is nil; return how many effects the n-th request has had, such as a Ledger's Count"
	case c.Patience < 0:
		return fmt.Sprintf("Patience is %v; use 0 for 10 s, or a positive duration", c.Patience)
	}
	var names []string
	for _, r := range handlerRules {
		names = append(names, r.name)
	}
	for _, name := range c.Except {
		if !slices.Contains(names, name) {
			return fmt.Sprintf("Except names %q; the rules are %s", name, strings.Join(names, ", "))
		}
	}
	if c.Header == "" {
		c.Header = "Idempotency-Key"
	}
	if c.Patience == 0 {
		c.Patience = 10 * time.Second
	}
	if c.Store == nil {
		store, err := memstore.New(memstore.Config{})
		if err != nil {
			return err.Error()
		}
		c.Store = store
	}
	return ""
}
