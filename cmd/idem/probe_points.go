package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/idem-go/idem"
)

// probeVerdict is what is found about one point.
type probeVerdict string

const (
	honours    probeVerdict = "honours"
	doesNot    probeVerdict = "does not"
	cannotTell probeVerdict = "cannot tell"
)

// probePoint is one thing that is asked.
type probePoint struct {
	Name    string       `json:"name"`
	Point   string       `json:"point"`
	Draft   string       `json:"draft"`
	Verdict probeVerdict `json:"verdict"`
	Seen    string       `json:"seen"`
}

// atOnce is how many requests go out at once.
const atOnce = 5

// longKey is the length of a key that few servers take whole: columns for keys
// most often have 255 characters.
const longKey = 300

// prober asks one endpoint, point by point.
type prober struct {
	sender   *probeSender
	target   *probeTarget
	progress func(string)
	points   []probePoint
	evidence evidence

	key     probeKey     // of the first request
	first   *probeAnswer // to it
	telling []string     // the paths by which the answer to another key differs
}

// evidence is what contracts are held against.
type evidence struct {
	honoured         bool
	repeat, mismatch *probeAnswer
	inFlight         []probeAnswer
	onlyQuoted       bool
}

// ask asks everything. After an error the points that are left can't be told.
func (p *prober) ask() error {
	const notAsked = "not asked"
	p.points = []probePoint{
		{"repeat", "the same request again", "one operation", cannotTell, notAsked},
		{"replay", "its answer", "the same answer", cannotTell, notAsked},
		{"at-once", fmt.Sprintf("%d at once with one key", atOnce), "one operation", cannotTell, notAsked},
		{"in-flight", "those that come too early", "409", cannotTell, notAsked},
		{"mismatch", "a used key with another body", "422", cannotTell, notAsked},
		{"missing", "no key", "400", cannotTell, notAsked},
		{"spelling", `abc and "abc"`, "one key, in quotes", cannotTell, notAsked},
		{"empty", "an empty key", "400", cannotTell, notAsked},
		{"long", fmt.Sprintf("keys of %d characters", longKey), "no limit is said", cannotTell, notAsked},
	}
	for _, step := range []func() error{p.askFirst, p.askRepeat, p.askSpelling, p.askMismatch, p.askMissing, p.askEmpty, p.askLong, p.askAtOnce} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

func (p *prober) find(name string, v probeVerdict, format string, args ...any) {
	i := slices.IndexFunc(p.points, func(pt probePoint) bool { return pt.Name == name })
	p.points[i].Verdict, p.points[i].Seen = v, fmt.Sprintf(format, args...)
}

func (p *prober) verdict(name string) probeVerdict {
	i := slices.IndexFunc(p.points, func(pt probePoint) bool { return pt.Name == name })
	return p.points[i].Verdict
}

// overall is whether it honours keys.
func (p *prober) overall() probeVerdict {
	repeat, together := p.verdict("repeat"), p.verdict("at-once")
	switch {
	case repeat == doesNot || together == doesNot:
		return doesNot
	case repeat == honours:
		return honours
	}
	return cannotTell
}

// fresh is a key that was never used, spelled as the endpoint takes it.
func (p *prober) fresh() probeKey {
	return probeKey{text: string(idem.NewKey()), quoted: p.evidence.onlyQuoted}
}

func (p *prober) send(what string, body []byte, key probeKey) (*probeAnswer, error) {
	p.progress(what)
	a, err := p.sender.send(body, key)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	return &a, nil
}

// askFirst sends what all else is compared with, and the same under another
// key, so that it is known what tells two operations apart. The other one comes
// before the repeat, so that a clock in the answers can't be taken for it.
func (p *prober) askFirst() (err error) {
	p.key = p.fresh()
	if p.first, err = p.send("a first request", p.target.body, p.key); err != nil {
		return err
	}
	if p.target.keyField == "" && (p.first.status == 400 || p.first.status == 422) {
		bare := p.first
		p.key.quoted = true
		if p.first, err = p.send("the first request, its key in quotes", p.target.body, p.key); err != nil {
			return err
		}
		if p.evidence.onlyQuoted = p.first.succeeded(); p.evidence.onlyQuoted {
			p.find("spelling", honours, "it takes quoted keys only: a bare one is refused, %s", p.target.describe(bare))
		}
	}
	if !p.first.succeeded() {
		return p.useless()
	}
	other, err := p.send("the same request with another key", p.target.body, p.fresh())
	if err != nil {
		return err
	}
	p.telling = differences(p.first.leavesOf(), other.leavesOf())
	return nil
}

// useless is the error of a first request that did not succeed.
func (p *prober) useless() error {
	what := "so that nothing else was asked; give it a request that it takes, see -body and -header"
	if p.first.status >= 300 && p.first.status < 400 {
		what = "which is not followed; ask the URL that it leads to"
		if to, err := p.target.url.Parse(p.first.header.Get("Location")); err == nil && p.first.header.Get("Location") != "" {
			what += ", on " + p.target.hide(printable(to.Scheme+"://"+to.Host))
		}
	}
	return fmt.Errorf("a first request was answered with %s, %s", p.target.describe(p.first), what)
}

func (p *prober) askRepeat() error {
	again, err := p.send("the first request again", p.target.body, p.key)
	if err != nil {
		return err
	}
	p.evidence.repeat = again
	said, like, why := p.target.describe(again), unclear, []string(nil)
	if again.succeeded() {
		like, why = compare(p.first, again, p.telling)
	}
	marked := again.marker()
	if marked != "" && p.first.marker() == "" {
		said += ", marked by " + marked
		if like == alike {
			like = same
		}
	}
	switch {
	case again.refused() && slices.Contains(p.telling, "its status"):
		p.find("repeat", cannotTell, "%s, and so may another key be answered", said)
		p.find("replay", doesNot, "%s", said)
	case again.refused():
		p.find("repeat", honours, "a repeat is refused: %s", said)
		p.find("replay", doesNot, "%s", said)
	case !again.succeeded():
		p.find("repeat", cannotTell, "%s", said)
		p.find("replay", cannotTell, "%s", said)
	case like == same:
		p.find("repeat", honours, "%s%s", said, p.told(why))
		p.find("replay", honours, "the same answer")
	case like == sameThing:
		p.find("repeat", honours, "%s, and %s is the same", said, p.list(why))
		p.find("replay", doesNot, "another answer about the same thing: %s after %s", said, p.target.describe(p.first))
	case like == another:
		p.find("repeat", doesNot, "%s, and %s is another: done twice", said, p.list(why))
		p.find("replay", doesNot, "another answer")
	case like == alike:
		p.find("repeat", cannotTell, "the same answer, but another key gets it too")
		p.find("replay", cannotTell, "the same answer, but another key gets it too")
	default:
		p.find("repeat", cannotTell, "another answer, in %s, which names nothing", p.list(why))
		p.find("replay", doesNot, "another answer")
	}
	p.evidence.honoured = p.verdict("repeat") == honours
	return nil
}

// told says what tells two operations apart.
func (p *prober) told(paths []string) string {
	if len(paths) == 0 {
		return ""
	}
	return "; that of another key differs in " + p.list(paths)
}

// list is a few paths, which others have named.
func (p *prober) list(paths []string) string {
	const few = 3
	var said []string
	for _, path := range paths[:min(len(paths), few)] {
		if len(path) > 60 {
			path = strings.ToValidUTF8(path[:60], "") + "..."
		}
		said = append(said, printable(p.target.hide(path)))
	}
	if len(paths) > few {
		said = append(said, fmt.Sprintf("%d more", len(paths)-few))
	}
	return strings.Join(said, ", ")
}
