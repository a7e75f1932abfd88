package idemtest

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/idem-go/idem"
)

// callerRules are the names of the rules.
var callerRules = []string{"nothing-sent", "no-key", "key-per-attempt", "key-per-call", "shared-key", "payload", "multiplied", "after-success", "answer"}

// judgeCaller holds what was sent against the rules. Each is reported once,
// where it was broken first.
func judgeCaller(c CallerCheck, h callerHistory) []*callerFinding {
	j := &callerJudge{check: c, history: h, found: make(map[string]*callerFinding)}
	j.judgeCalls()
	byIntent := make(map[int][]callerSend)
	for _, s := range h.sends {
		byIntent[s.call.intent] = append(byIntent[s.call.intent], s)
	}
	for _, intent := range slices.Sorted(maps.Keys(byIntent)) {
		j.judgeKeys(byIntent[intent])
		j.judgePayload(byIntent[intent])
	}
	j.judgeShared()
	return j.findings
}

type callerJudge struct {
	check    CallerCheck
	history  callerHistory
	found    map[string]*callerFinding
	findings []*callerFinding
}

// add reports a rule that the intent of call breaks. It reads only what never
// changes of the call: its requests may still be under way.
func (j *callerJudge) add(rule string, call *callerCall, seen, cause string) {
	switch f := j.found[rule]; {
	case slices.Contains(j.check.Except, rule):
	case f == nil:
		f = &callerFinding{rule: rule, seen: seen, cause: cause, where: []string{call.scenario.name}}
		for _, s := range j.history.sends {
			if s.call.intent == call.intent {
				f.sends = append(f.sends, s)
			}
		}
		j.found[rule] = f
		j.findings = append(j.findings, f)
	case !slices.Contains(f.where, call.scenario.name):
		f.where = append(f.where, call.scenario.name)
	}
}

// judgeCalls looks at what the calls were told, and how much they sent.
func (j *callerJudge) judgeCalls() {
	if first := j.history.calls[0]; first.sends == 0 {
		seen := "the first call sent nothing through the client that it was given"
		if first.err != nil {
			seen += fmt.Sprintf(", and returned: %v", first.err)
		}
		j.add("nothing-sent", &first, seen, "")
	}
	for _, call := range j.history.calls {
		if call.sends > j.check.MaxSends {
			j.add("multiplied", &call, fmt.Sprintf("one call for intent %d sent %d requests", call.intent, call.sends), "")
		}
		if call.succeeded && call.err != nil {
			j.add("answer", &call, fmt.Sprintf("the server's answer to call %d for intent %d was a success, and the call returned: %v", call.number, call.intent, call.err), "")
		}
	}
	for _, s := range j.history.sends {
		switch {
		case s.behind && s.afterSuccess:
			j.add("after-success", s.call, fmt.Sprintf("call %d for intent %d had returned after a success, and sent again", s.call.number, s.call.intent),
				"a retry in the background that nobody has called off, such as a hedged request")
		case s.afterSuccess:
			j.add("after-success", s.call, fmt.Sprintf("call %d for intent %d had its success, and sent again", s.call.number, s.call.intent), "")
		}
	}
}

// judgeKeys looks at the keys of one intent.
func (j *callerJudge) judgeKeys(sends []callerSend) {
	var firstSend, firstOfCall *callerSend
	for i := range sends {
		s := &sends[i]
		if bad := unfit(j.check.Contract, s.keys); bad != "" {
			j.add("no-key", s.call, fmt.Sprintf("%s for intent %d %s", s.place(), s.call.intent, bad), "")
			continue
		}
		if firstSend == nil {
			firstSend = s
		}
		if firstOfCall == nil || firstOfCall.call != s.call {
			firstOfCall = firstSendOf(j.check.Contract, sends, s.call)
		}
		switch {
		case s.keys[0] != firstOfCall.keys[0]:
			j.add("key-per-attempt", s.call, fmt.Sprintf("%s for intent %d carried the key %q, and send %d had carried %q",
				s.place(), s.call.intent, s.keys[0], firstOfCall.number, firstOfCall.keys[0]), "")
		case s.keys[0] != firstSend.keys[0] && s.call != firstSend.call:
			j.add("key-per-call", s.call, fmt.Sprintf("call %d for intent %d carried the key %q, and call %d had carried %q",
				s.call.number, s.call.intent, s.keys[0], firstSend.call.number, firstSend.keys[0]), "")
		}
	}
}

// firstSendOf returns a call's first send with a fitting key.
func firstSendOf(c idem.Contract, sends []callerSend, call *callerCall) *callerSend {
	i := slices.IndexFunc(sends, func(s callerSend) bool { return s.call == call && unfit(c, s.keys) == "" })
	return &sends[i]
}

// unfit says why the keys of a request are not one that servers take.
func unfit(c idem.Contract, keys []string) string {
	place := c.Header
	if c.Field != "" {
		place = "field " + c.Field
	}
	switch {
	case len(keys) == 0:
		return fmt.Sprintf("carried no key (%s)", place)
	case len(keys) > 1:
		return fmt.Sprintf("carried %d keys (%s): %q", len(keys), place, keys)
	case len(keys[0]) > c.MaxKeyLen:
		return fmt.Sprintf("carried a key of %d characters, and the server takes %d", len(keys[0]), c.MaxKeyLen)
	}
	return ""
}

// judgePayload compares the requests of one intent with the first one.
func (j *callerJudge) judgePayload(sends []callerSend) {
	first := sends[0]
	for _, s := range sends[1:] {
		var what, cause string
		a, b := j.unkeyed(first), j.unkeyed(s)
		switch {
		case s.method != first.method:
			what = fmt.Sprintf("the method was %s, and is %s", first.method, s.method)
		case s.url != first.url:
			what, cause = differ("the address", first.url, s.url)
		case !bytes.Equal(a, b):
			what, cause = differBodies(a, b)
			if strings.HasPrefix(first.media, "multipart/") && s.media != first.media {
				cause = "a random boundary between the parts; multipart.Writer.SetBoundary sets one that stays"
			}
		case s.media != first.media:
			what = fmt.Sprintf("the Content-Type was %q, and is %q", first.media, s.media)
		default:
			continue
		}
		j.add("payload", s.call, fmt.Sprintf("%s for intent %d is not what %s was: %s", s.place(), s.call.intent, first.place(), what), cause)
	}
}

// unkeyed is the body without the key in it, which rules of its own look at.
func (j *callerJudge) unkeyed(s callerSend) []byte {
	if j.check.Contract.Field == "" || len(s.keys) != 1 {
		return s.body
	}
	return bytes.ReplaceAll(s.body, []byte(s.keys[0]), []byte("KEY"))
}

// judgeShared looks for keys that several intents went out under.
func (j *callerJudge) judgeShared() {
	first := make(map[string]callerSend)
	intents := make(map[string]map[int]bool)
	for _, s := range j.history.sends {
		for _, key := range s.keys {
			if _, ok := first[key]; !ok {
				first[key], intents[key] = s, make(map[int]bool)
			}
			intents[key][s.call.intent] = true
		}
	}
	all := len(callerScenarios(j.check))
	for _, s := range j.history.sends {
		if len(s.keys) == 0 || first[s.keys[0]].call.intent == s.call.intent {
			continue
		}
		key := s.keys[0]
		shared := slices.Sorted(maps.Keys(intents[key]))
		cause := "a key that is made of what intents share, such as the user's ID, the amount or the day"
		if len(shared) == all {
			cause = "a constant key, or one that is made once and kept for every call"
		}
		j.add("shared-key", s.call, fmt.Sprintf("the intents %s went out under the key %q",
			strings.Trim(fmt.Sprint(shared), "[]"), key), cause)
	}
}

// place names a send.
func (s callerSend) place() string { return fmt.Sprintf("send %d of call %d", s.number, s.call.number) }
