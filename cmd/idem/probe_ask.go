package main

import (
	"fmt"
	"slices"
	"strings"
)

const notHonoured = "keys are not seen to be honoured at all"

func (p *prober) askSpelling() error {
	switch {
	case p.target.keyField != "":
		p.find("spelling", cannotTell, "not asked: a key in the body has no quotes of its own")
		return nil
	case p.evidence.onlyQuoted: // known from the first request
		return nil
	}
	key := p.key
	key.quoted = true
	a, err := p.send("the first request again, its key in quotes", p.target.body, key)
	if err != nil {
		return err
	}
	said := p.target.describe(a)
	switch like, _ := compare(p.first, a, p.telling); {
	case a.refused() && p.verdict("replay") != honours && sameRefusal(a, p.evidence.repeat):
		p.find("spelling", honours, "refused as a repeat: %s", said)
	case a.refused():
		p.find("spelling", doesNot, "a key in quotes is refused: %s", said)
	case !a.succeeded():
		p.find("spelling", cannotTell, "%s", said)
	case !p.evidence.honoured:
		p.find("spelling", cannotTell, notHonoured)
	case like.one():
		p.find("spelling", honours, "both are one key")
	case like == another:
		p.find("spelling", doesNot, "they are two keys: the quotes are a part of it")
	default:
		p.find("spelling", cannotTell, "%s", said)
	}
	return nil
}

func sameRefusal(a, b *probeAnswer) bool {
	return a.status == b.status && slices.Equal(a.codes(), b.codes())
}

func (p *prober) askMismatch() error {
	what := "another body under the first key"
	if p.target.changed != "" {
		what += ", with another " + p.list([]string{p.target.changed})
	}
	a, err := p.send(what, p.target.other, p.key)
	if err != nil {
		return err
	}
	said := p.target.describe(a)
	like, why := compare(p.first, a, p.telling)
	switch {
	case a.refused():
		return p.askRefusedMismatch(a, said)
	case !a.succeeded():
		p.find("mismatch", cannotTell, "%s", said)
		return nil
	case like.one():
		p.find("mismatch", doesNot, "%s, the first answer again: bodies are not compared", said)
	case like == another:
		p.find("mismatch", doesNot, "%s, and %s is another: done as a new operation", said, p.list(why))
	default:
		p.find("mismatch", doesNot, "%s, not refused", said)
	}
	p.evidence.mismatch = a
	return nil
}

// askRefusedMismatch asks whether it is for the key that the other body was
// refused.
func (p *prober) askRefusedMismatch(a *probeAnswer, said string) error {
	other, err := p.send("that body under a fresh key", p.target.other, p.fresh())
	switch {
	case err != nil:
		return err
	case !other.succeeded():
		p.find("mismatch", cannotTell, "%s, but that body is refused under a fresh key too, with %s: see -other-body", said, p.target.describe(other))
		return nil
	case a.status == 422:
		p.find("mismatch", honours, "%s", said)
	case p.verdict("replay") != honours && sameRefusal(a, p.evidence.repeat):
		p.find("mismatch", doesNot, "%s, refused like any repeat", said)
		return nil
	default:
		p.find("mismatch", doesNot, "refused, but with %s", said)
	}
	p.evidence.mismatch = a
	return nil
}

func (p *prober) askMissing() error {
	a, err := p.send("no key", p.target.body, probeKey{none: true})
	if err != nil {
		return err
	}
	p.refusal("missing", a, "it is done without a key, unprotected")
	return nil
}

func (p *prober) askEmpty() error {
	a, err := p.send("an empty key", p.target.body, probeKey{})
	if err != nil {
		return err
	}
	p.refusal("empty", a, "taken")
	return nil
}

// refusal finds whether an answer is the 400 that it should be.
func (p *prober) refusal(name string, a *probeAnswer, taken string) {
	said := p.target.describe(a)
	switch {
	case a.status == 400:
		p.find(name, honours, "%s", said)
	case a.refused():
		p.find(name, doesNot, "refused, but with %s", said)
	case a.succeeded():
		p.find(name, doesNot, "%s, %s", said, taken)
	default:
		p.find(name, cannotTell, "%s", said)
	}
}

// askLong sends a long key and, if it is taken, one that differs in its last
// character only: where keys are cut off, the two are one.
func (p *prober) askLong() error {
	key := p.fresh()
	key.text += strings.Repeat("-", longKey-len(key.text)-1) + "a"
	a, err := p.send("a long key", p.target.body, key)
	if err != nil {
		return err
	}
	said := p.target.describe(a)
	switch {
	case a.refused():
		p.find("long", honours, "refused: %s", said)
		return nil
	case !a.succeeded():
		p.find("long", cannotTell, "%s", said)
		return nil
	case !p.evidence.honoured:
		p.find("long", cannotTell, notHonoured)
		return nil
	}
	key.text = key.text[:longKey-1] + "b"
	b, err := p.send("a long key that differs at its end", p.target.body, key)
	if err != nil {
		return err
	}
	switch like, _ := compare(a, b, p.telling); {
	case b.succeeded() && like.one():
		p.find("long", doesNot, "cut off: two that differ in their last character are one key")
	case b.succeeded() && like == another:
		p.find("long", honours, "%s, taken whole", said)
	default:
		p.find("long", cannotTell, "%s, then %s", said, p.target.describe(b))
	}
	return nil
}

func (p *prober) askAtOnce() error {
	what := fmt.Sprintf("%d requests at once", atOnce)
	p.progress(what)
	all, err := p.sender.sendAtOnce(atOnce, p.target.body, p.fresh())
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	p.judgeAtOnce(all)
	return nil
}

// judgeAtOnce finds what became of requests that were sent at once.
func (p *prober) judgeAtOnce(all []probeAnswer) {
	var done, not []probeAnswer
	for _, a := range all {
		if a.succeeded() {
			done = append(done, a)
		} else {
			not = append(not, a)
		}
	}
	said := p.tally(all)
	p.judgeInFlight(not)
	for i := 1; i < len(done); i++ {
		switch like, why := compare(&done[0], &done[i], p.telling); like {
		case same, sameThing:
		case another:
			p.find("at-once", doesNot, "%s, and %s is another: done more than once", said, p.list(why))
			return
		case alike:
			p.find("at-once", cannotTell, "%s, but another key gets the same answer", said)
			return
		default:
			p.find("at-once", cannotTell, "%s, which differ in %s, which names nothing", said, p.list(why))
			return
		}
	}
	switch {
	case len(done) == 0 || slices.ContainsFunc(not, func(a probeAnswer) bool { return !a.refused() }):
		p.find("at-once", cannotTell, "%s", said)
	case !p.evidence.honoured:
		p.find("at-once", cannotTell, "%s; %s", said, notHonoured)
	default:
		p.find("at-once", honours, "%s", said)
	}
}

// judgeInFlight finds what those were answered that came too early.
func (p *prober) judgeInFlight(not []probeAnswer) {
	switch {
	case !p.evidence.honoured:
		p.find("in-flight", cannotTell, notHonoured)
	case len(not) == 0:
		p.find("in-flight", cannotTell, "none was refused: they waited, or came one after another")
	case sameRefusal(&not[0], p.evidence.repeat):
		p.find("in-flight", cannotTell, "refused like any repeat: %s", p.tally(not))
	default:
		p.evidence.inFlight = slices.DeleteFunc(slices.Clone(not), func(a probeAnswer) bool { return a.status >= 500 })
		p.find("in-flight", p.verdictInFlight(not), "%s", p.tally(not))
	}
}

func (p *prober) verdictInFlight(not []probeAnswer) probeVerdict {
	v := honours
	for _, a := range not {
		switch {
		case !a.refused(): // a limit, or a failure
			return cannotTell
		case a.status != 409:
			v = doesNot
		}
	}
	return v
}

// tally is answers, counted.
func (p *prober) tally(all []probeAnswer) string {
	counts := map[string]int{}
	for _, a := range all {
		counts[p.target.describe(&a)]++
	}
	var said []string
	for d, n := range counts {
		said = append(said, fmt.Sprintf("%d x %s", n, d))
	}
	slices.SortFunc(said, func(a, b string) int { return strings.Compare(a[strings.Index(a, "x "):], b[strings.Index(b, "x "):]) })
	return strings.Join(said, ", ")
}
