package idemtest

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/idem-go/idem"
)

// CallerCheck says how to try a caller. Call has no default.
type CallerCheck struct {
	// Call does the operation for the n-th intent once, as the application
	// would: with its own retries, and to its end. It sends through client, or
	// through what it wraps around client.Transport, to url. The same n is the
	// same intent, n counts from 1, and Call comes several times with each:
	// what a new process would make anew, make anew in Call. An error is fine,
	// where the caller says that it does not know.
	Call func(ctx context.Context, client *http.Client, url string, n int) error

	// Contract says where the server takes the key; the zero Contract takes it
	// from the header Idempotency-Key.
	Contract idem.Contract
	// Server is what the caller talks to. Nil means one that carries out what
	// comes under a new key, answers 201 with {"id":"op_1"}, and replays that
	// under an old one. It must be safe for concurrent use.
	Server http.Handler
	// Match tells which requests are the operation; nil means every POST and
	// PATCH, and whatever carries a key. One intent has one of them: of a flow
	// with several steps, match one step. What does not match is let through.
	Match func(*http.Request) bool
	// MaxSends is how many requests one Call may send; 0 means 10.
	MaxSends int
	// Slow is how long a slow answer takes; 0 means 10 s. The caller's own
	// timeout ends the wait.
	Slow time.Duration
	// Concurrent also has one intent asked for twice at the same time.
	Concurrent bool
	// Except names the rules that don't apply.
	Except []string
}

// CheckCaller tries code that calls a server whose operations must happen once,
// and reports an error for each rule that it breaks: what was seen, what was
// expected, the usual cause, and how to mend it. The rules, by the names in the
// reports:
//
//	nothing-sent     Call sends something, through the client that it is given
//	no-key           every request carries one key, and one that fits
//	key-per-attempt  the retries of a call carry the key of its first attempt
//	key-per-call     so does the same intent when it is asked for again: after an
//	                 error, nobody knows whether it was carried out; after a
//	                 success, it was
//	shared-key       two intents never go out under one key
//	payload          an intent goes out with the same method, address, media type
//	                 and body, byte by byte
//	multiplied       one call sends at most MaxSends requests, although the
//	                 server fails all the time
//	after-success    nothing is sent once the call's answer was a success
//	answer           a call whose answer was a success returns no error
//
// Each of several intents meets something else, and is then asked for again
// with a network that is well: nothing at all, a reply that is lost after the
// work was done, a 503, a 500 for as long as the call lasts, an answer that is
// cut off, one that is slow, a connection that is refused, a 409 because
// another attempt is at work.
//
// No socket is opened: the server is called in the process. So CheckCaller runs
// in a synctest bubble too, where the caller's waits take no time. Requests
// belong to the call whose context they have, and if they have none of a call's,
// to the call that runs.
//
// Passing is no proof: a caller that keeps its keys in memory passes, and has
// others after a restart, unless Call makes that memory anew.
func CheckCaller(t TB, c CallerCheck) {
	t.Helper()
	if broken := c.settle(); broken != "" {
		t.Errorf("CheckCaller: config: %s", broken)
		return
	}
	ctx := context.Background()
	if test, ok := t.(interface{ Context() context.Context }); ok {
		ctx = test.Context()
	}
	wire := newCallerWire(c)
	for i, s := range callerScenarios(c) {
		s.play(ctx, wire, c, i+1)
	}
	for _, f := range judgeCaller(c, wire.history()) {
		t.Errorf("CheckCaller: %s", f)
	}
}

// callerScenario is what one intent meets: faults for the attempts of its first
// call. Further calls meet none.
type callerScenario struct {
	name   string
	faults []Fault
	// forever: the last fault comes again and again.
	forever bool
	// twice: two first calls run at the same time.
	twice bool
}

// cutAnswer is told apart from a whole one by its name.
var cutAnswer = CutBody(1)

func callerScenarios(c CallerCheck) []callerScenario {
	all := []callerScenario{
		{name: "all is well"},
		{name: "the reply is lost after the work", faults: []Fault{LoseReply}},
		{name: "503, then all is well", faults: []Fault{StatusBefore(http.StatusServiceUnavailable)}},
		{name: "500 after the work, as long as the first call lasts", faults: []Fault{StatusAfter(http.StatusInternalServerError)}, forever: true},
		{name: "the answer is cut off", faults: []Fault{cutAnswer}},
		{name: "the answer is slow", faults: []Fault{slowReply(c.Slow)}},
		{name: "the connection is refused", faults: []Fault{Drop}},
		{name: "409 for another attempt at work, then all is well", faults: []Fault{StatusBefore(http.StatusConflict)}},
	}
	if c.Concurrent {
		all = append(all, callerScenario{name: "two calls at once", twice: true})
	}
	return all
}

// moreCalls is how often an intent is asked for again.
const moreCalls = 2

// play calls for one intent until its story is told.
func (s callerScenario) play(ctx context.Context, w *callerWire, c CallerCheck, intent int) {
	first := []*callerCall{{scenario: s, intent: intent, number: 1}}
	if s.twice {
		first = append(first, &callerCall{scenario: s, intent: intent, number: 2})
	}
	w.play(ctx, c, first...)
	for i := range moreCalls {
		again := &callerCall{scenario: callerScenario{name: s.name}, intent: intent, number: len(first) + 1 + i}
		w.play(ctx, c, again)
		if again.err == nil {
			return
		}
	}
}

// fault is what the n-th attempt of a call meets. What lasts for ever ends when
// the call has sent far too much, so that a caller without an end has one.
func (s callerScenario) fault(n, maxSends int) Fault {
	switch {
	case n <= len(s.faults):
		return s.faults[n-1]
	case s.forever && n <= 3*maxSends:
		return s.faults[len(s.faults)-1]
	}
	return Pass
}

// settle fills in the defaults and says which rule the config breaks, if any.
func (c *CallerCheck) settle() string {
	switch {
	case c.Call == nil:
		return "Call is nil; do the operation in it, through the client that it is given"
	case c.Contract.Unkeyed:
		return "Contract.Unkeyed is set; without keys there is nothing to check"
	case c.MaxSends < 0:
		return fmt.Sprintf("MaxSends is %d; use 0 for 10, or a positive number", c.MaxSends)
	case c.Slow < 0:
		return fmt.Sprintf("Slow is %v; use 0 for 10 s, or a positive duration", c.Slow)
	}
	if _, err := idem.New(idem.Config{Contract: c.Contract}); err != nil {
		return err.Error()
	}
	for _, name := range c.Except {
		if !slices.Contains(callerRules, name) {
			return fmt.Sprintf("Except names %q; the rules are %s", name, strings.Join(callerRules, ", "))
		}
	}
	if c.Contract.Header == "" && c.Contract.Field == "" {
		c.Contract.Header = "Idempotency-Key"
	}
	if c.Contract.MaxKeyLen == 0 {
		c.Contract.MaxKeyLen = idem.MaxKeyLen
	}
	if c.MaxSends == 0 {
		c.MaxSends = 10
	}
	if c.Slow == 0 {
		c.Slow = 10 * time.Second
	}
	return ""
}
