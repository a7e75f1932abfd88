package idemtest

import (
	"fmt"
	"strings"
	"text/tabwriter"
)

// callerFinding is a broken rule.
type callerFinding struct {
	rule, seen, cause string
	where             []string // the scenarios that it was seen in
	sends             []callerSend
}

// callerAdvice is what is said of a rule whenever it is broken.
var callerAdvice = map[string]struct{ expected, cause, mend string }{
	"nothing-sent": {
		"Call does the operation, and waits for its end",
		"an http.Client or an SDK of its own instead of the one that Call is given; or the work is only put into a queue",
		"send through client, or set client.Transport = idemClient.Transport(client.Transport); wait for the worker in Call",
	},
	"no-key": {
		"every request of the operation carries one key, which the server takes",
		"the request goes out beside the client that adds the key; or the key is optional somewhere, and was left out; or two layers add one each",
		"send through idem's Transport with idem.WithIntent(ctx, idem.Intent{ID: order.ID}), or set the key that idem.Do hands to its function",
	},
	"key-per-attempt": {
		"all attempts of an intent carry one key: to the server, another key is another operation, and is carried out too",
		"the key is made inside the retry loop, or by a layer below it",
		"make the key before the loop; idem.Do and idem's Transport have one for all attempts",
	},
	"key-per-call": {
		"an intent that comes again has the key that it had: nobody knows whether the first call was carried out, and another key does it again",
		"a random key for each call, which is not kept; or a new one after an error",
		"name the intent, idem.Intent{ID: order.ID} or idem.DeriveKey, or keep its key before the first send; draw another one only after a definite refusal",
	},
	"shared-key": {
		"every intent has a key of its own: to the server, the second intent is the first once more, which it refuses or never carries out",
		"a key that is made of what intents share",
		"make the key of what names the intent: the order's number, not the customer's",
	},
	"payload": {
		"an intent goes out the same, byte by byte: servers refuse another payload under the same key (422), or answer with what they made of the first one",
		"the payload is made anew for each attempt or call",
		"make the payload once for the intent, keep it with what names the intent, and send the bytes that were kept",
	},
	"multiplied": {
		"one call sends no more requests than CallerCheck.MaxSends, even while the server fails all the time",
		"a retry layer above another one: they multiply, and 3 times 4 are 12",
		"retry in one layer: set the SDK's or the loop's own retries to 0; or set MaxSends, if it is meant so",
	},
	"after-success": {
		"when a call's answer was a success, the call sends nothing more",
		"the answer is taken for a failure: another status or body was expected",
		"take every 2xx for done; let CallerCheck.Server answer as the real server does",
	},
	"answer": {
		"a call that was told of a success returns no error",
		"the answer could not be read, or another status was expected: the work is done, and the application believes that it is not",
		"let CallerCheck.Server answer as the real server does; if the server was right, fetch the result elsewhere and don't repeat the work",
	},
}

// maxSendsShown keeps reports readable.
const maxSendsShown = 12

// String is the report.
func (f *callerFinding) String() string {
	advice := callerAdvice[f.rule]
	cause := f.cause
	if cause == "" {
		cause = advice.cause
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s\n", f.rule, f.seen)
	fmt.Fprintf(&b, "  when:         %s\n", strings.Join(f.where, "; "))
	fmt.Fprintf(&b, "  expected:     %s\n", advice.expected)
	fmt.Fprintf(&b, "  usual cause:  %s\n", cause)
	fmt.Fprintf(&b, "  mend:         %s\n", advice.mend)
	if len(f.sends) == 0 {
		return strings.TrimSuffix(b.String(), "\n")
	}
	fmt.Fprintf(&b, "  sent for intent %d:\n", f.sends[0].call.intent)
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for i, s := range f.sends {
		if i == maxSendsShown {
			fmt.Fprintf(w, "    and %d more\n", len(f.sends)-i)
			break
		}
		fmt.Fprintf(w, "    call %d send %d\t%s %s\tkey %s\t%d bytes\t%s\t%s\n", s.call.number, s.number,
			s.method, s.url, strings.Trim(fmt.Sprintf("%q", s.keys), "[]"), len(s.body), s.fault, s.saw)
	}
	_ = w.Flush() // a strings.Builder never fails
	return strings.TrimSuffix(b.String(), "\n")
}
