package idemtest

import (
	"fmt"
	"net/http"
	"strings"
)

// acceptable tells whether the handler can be tried at all.
func (tr *trial) acceptable() bool {
	tr.t.Helper()
	a := tr.ask()
	first := tr.send(a)
	if n := tr.Effects(a.n); !first.good() || n != 1 {
		tr.fail(fmt.Sprintf("a valid request with a key was answered %v, and had %s", first, effectCount(n)), "2xx or 3xx, and 1 effect", adviceRequest)
		return false
	}
	return true
}

func (tr *trial) replay() {
	tr.t.Helper()
	a := tr.ask()
	first, again := tr.settled(a), tr.settled(a)
	if !tr.effects(a, 1, "after a request and its retry", adviceTwice) {
		return
	}
	tr.handlerCheck.unlike = !tr.equal(first, again, "for a retry", adviceReplay)
	// Whoever says so at all, says so rightly.
	said, promised := first.header.Get("Idempotent-Replayed"), first.header.Get("Idempotent-Replayed") != ""
	if got := again.header.Get("Idempotent-Replayed"); said == "true" || promised && again.good() && got != "true" {
		tr.fail(fmt.Sprintf("Idempotent-Replayed is %q on the first answer, and %q on the retry's", said, got), `"false" or none first, then "true"`, adviceReplay)
	}
}

func (tr *trial) payload() {
	tr.t.Helper()
	a, third := tr.ask(), tr.ask()
	first, thirdReply := tr.send(a), tr.send(third)
	other := tr.ask().under(a.keys...)
	r := tr.settled(other)
	if !r.refused() {
		tr.fail(fmt.Sprintf("another payload under the key was answered %v", r), "422, or another 4xx", advicePayload)
	}
	if what := first.leak(thirdReply, r); what != "" {
		tr.fail("another payload under the key was told "+what+", which is of the stored answer", "nothing of it", advicePayload)
	}
	tr.effects(other, 0, "after a request with another payload under a used key", advicePayload)
	again := tr.settled(a)
	if tr.effects(a, 1, "after a request, another payload under its key, and a retry", advicePayload) {
		tr.equal(first, again, "for a retry after another payload", advicePayload)
	}
}

func (tr *trial) missingKey() {
	tr.t.Helper()
	tr.refuses(tr.ask().under(), "a request without a key", adviceMissing)
}

func (tr *trial) badKey() {
	tr.t.Helper()
	for _, bad := range []struct {
		what string
		keys []string
	}{
		{"an empty key", []string{""}},
		{"a key with a control character", []string{"order\x0117"}},
		{"a key with a line break", []string{"order\n17"}},
		{"a key of 300 bytes", []string{strings.Repeat("k", 300)}},
		{"two keys", []string{"order-17", "order-18"}},
	} {
		tr.refuses(tr.ask().under(bad.keys...), "a request with "+bad.what, adviceBadKey)
	}
}

// refuses reports an error if the request is not refused without an effect.
func (tr *trial) refuses(a *ask, what, advice string) {
	tr.t.Helper()
	r := tr.send(a)
	if n := tr.Effects(a.n); !r.refused() || n != 0 {
		tr.fail(fmt.Sprintf("%s was answered %v, and had %s", what, r, effectCount(n)), fmt.Sprintf("%d, and 0 effects", http.StatusBadRequest), advice)
	}
}

func (tr *trial) large() {
	tr.t.Helper()
	a := tr.askWith(tr.Large)
	first := tr.send(a)
	if declared := first.header.Get("Content-Length"); first.good() && declared != "" && declared != fmt.Sprint(len(first.body)) {
		tr.fail(fmt.Sprintf("the first caller got %d bytes of %s", len(first.body), declared), "all of them", adviceLarge)
	}
	again := tr.settled(a)
	if !first.good() {
		// Refused whole, as in a transaction.
		tr.effects(a, 0, fmt.Sprintf("after the large answer was refused with %v", first), adviceLarge)
		return
	}
	if tr.effects(a, 1, "after a request with a large answer and its retry", adviceLarge) && !again.refused() {
		tr.equal(first, again, "for a retry of a request with a large answer", adviceLarge)
	}
}

func (tr *trial) restart() {
	tr.t.Helper()
	a := tr.ask()
	first := tr.send(a)
	tr.start()
	again := tr.settled(a)
	if tr.effects(a, 1, "after a request, a restart and a retry", adviceRestart) {
		tr.equal(first, again, "for a retry after a restart", adviceRestart)
	}
}

func (tr *trial) otherKey() {
	tr.t.Helper()
	a, b := tr.ask(), tr.ask()
	b = b.under(similar(a.keys[0])) // which a key that is cut off would be
	first, second := tr.send(a), tr.send(b)
	tr.effects(a, 1, "after two requests under two keys", adviceKeys)
	tr.effects(b, 1, "after two requests under two keys", adviceKeys)
	if !second.good() {
		tr.fail(fmt.Sprintf("a request under a key of its own was answered %v", second), "2xx or 3xx", adviceKeys)
	}
	tr.equal(first, tr.settled(a), "for a retry after a request under another key", adviceKeys)
	tr.equal(second, tr.settled(b), "for a retry after one under another key", adviceKeys)
}

// similar is another key, which differs in its last digit.
func similar(key string) string {
	last := "0"
	if strings.HasSuffix(key, last) {
		last = "1"
	}
	return key[:len(key)-1] + last
}

func (tr *trial) otherScope() {
	tr.t.Helper()
	a, third := tr.ask(), tr.ask()
	first, thirdReply := tr.send(a), tr.send(third)
	b := tr.ask().under(a.keys...)
	tr.AsAnother(b.req)
	second := tr.settled(b)
	if what := first.leak(thirdReply, second); what != "" {
		tr.fail("another tenant with the same key was told "+what+", which is of the first one's answer", "nothing of it", adviceScopes)
	}
	if n := tr.Effects(b.n); !second.good() || n != 1 {
		tr.fail(fmt.Sprintf("another tenant's request under the same key was answered %v, and had %s", second, effectCount(n)), "an answer and an effect of its own", adviceScopes)
	}
	again := tr.settled(a)
	if tr.effects(a, 1, "after two tenants used one key, and a retry", adviceScopes) {
		tr.equal(first, again, "for a retry after another tenant used the key", adviceScopes)
	}
}
