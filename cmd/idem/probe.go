package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
)

// consentFlag is long, so that nobody sets it without having read it.
const consentFlag = "yes-this-endpoint-may-create-things"

const probes = `Asks a running endpoint whether it honours idempotency keys, by sending it requests: use a sandbox.
The same request goes there twice, five times at once, with another body under a used key, without a key,
with a key in quotes, with an empty key and with one that is too long. What it does is held against each
point of draft-ietf-httpapi-idempotency-key-header, and against the contracts of package provider.

It sends 15 requests at most, none of them a second time by itself, and follows no redirect. Several of
them can each create something. It can't see what they do, only compare the answers: the same answer
under the same key, where another key gets another one, is taken for one operation; an id, or something
named like one, or a Location, that differs is taken for two.

Exits with 0 if all was asked, whatever was found. Neither headers nor the URL's user and query are printed.`

// probe asks an endpoint whether it honours keys.
func probe(c *call) func() error {
	o := new(probeOptions)
	var consent bool
	c.flags.BoolVar(&c.json, "json", false, "write JSON")
	c.flags.BoolVar(&consent, consentFlag, false, "send the requests, each of which may create something")
	c.flags.StringVar(&o.method, "method", "POST", "`METHOD` of the requests")
	c.flags.StringVar(&o.body, "body", "", "`TEXT` of the body; with -key-field a JSON object")
	c.flags.StringVar(&o.bodyFile, "body-file", "", "`FILE` with the body")
	c.flags.StringVar(&o.otherBody, "other-body", "", "`TEXT` of another body that the endpoint takes; by default the first number in the body plus 1, or else its first text with an x")
	c.flags.Var(&o.headers, "header", "a header `'NAME: VALUE'` of every request; may be given several times")
	c.flags.StringVar(&o.keyHeader, "key-header", "", "`NAME` of the header for the key (default Idempotency-Key)")
	c.flags.StringVar(&o.keyField, "key-field", "", "`PATH` of the body's JSON member for the key instead of a header, such as idempotency_key")
	c.flags.DurationVar(&o.timeout, "timeout", 30*time.Second, "how long to wait for each answer")
	return func() error {
		t, err := o.target(c.flags.Args())
		if err != nil {
			return err
		}
		if !consent {
			return badUsage("%w", t.refusal())
		}
		return c.probe(t)
	}
}

// refusal says what would be done.
func (t *probeTarget) refusal() error {
	return fmt.Errorf("nothing was sent: this would send up to %d requests, %s %s: the same one again and again, %d at once, with another body, without a key,"+
		" with odd keys. Each of them can create something there (an order, a payment): if that is all right, in a sandbox, set -%s",
		maxProbes, t.method, t.name, atOnce, consentFlag)
}

// probeReport is what was found.
type probeReport struct {
	URL      string `json:"url"`
	Method   string `json:"method"`
	Key      string `json:"key"`
	Requests int    `json:"requests"`
	AtMost   int    `json:"at_most"`
	// Complete tells that every point was asked.
	Complete  bool         `json:"complete"`
	Honours   probeVerdict `json:"honours_keys"`
	Points    []probePoint `json:"points"`
	Resembles []resembling `json:"resembles"`
}

// probe asks, and writes what was found, also where it had to stop.
func (c *call) probe(t *probeTarget) error {
	fmt.Fprintf(c.errOut, "at most %d requests: %s %s\n", maxProbes, t.method, t.name)
	s := newProbeSender(c.ctx, t)
	defer s.close()
	p := &prober{sender: s, target: t, progress: func(what string) { fmt.Fprintf(c.errOut, "%2d: %s\n", s.sent()+1, what) }}
	failed := p.ask()
	r := probeReport{
		URL: t.name, Method: t.method, Key: t.carrier(), Requests: s.sent(), AtMost: maxProbes,
		Complete: failed == nil, Points: p.points, Honours: p.overall(), Resembles: []resembling{},
	}
	if failed == nil {
		r.Resembles = resemblances(t, p.evidence, r.Honours)
	}
	var err error
	if c.json {
		err = writeJSON(c.out, r)
	} else {
		err = r.table(c)
	}
	if err == nil && failed != nil {
		err = fmt.Errorf("%s %s: after %d of at most %d requests: %s", t.method, t.name, s.sent(), maxProbes, t.hide(failed.Error()))
	}
	return err
}

func (r *probeReport) table(c *call) error {
	rows := [][]string{{"POINT", "DRAFT", "VERDICT", "SEEN"}}
	for _, p := range r.Points {
		rows = append(rows, []string{p.Point, p.Draft, string(p.Verdict), p.Seen})
	}
	if err := writeTable(c.out, rows); err != nil {
		return err
	}
	_, err := fmt.Fprintf(c.out, "\n%s\n%s%d of at most %d requests were sent\n", r.summary(), r.resemblance(), r.Requests, r.AtMost)
	return err
}

// resemblance is the contracts, those together that look alike.
func (r *probeReport) resemblance() string {
	if r.Complete && len(r.Resembles) == 0 {
		return "resembles no contract that is known here more than others\n"
	}
	var said strings.Builder
	for i, k := range r.Resembles {
		if i > 0 && slices.Equal(k.Because, r.Resembles[i-1].Because) {
			continue
		}
		names := k.Contract
		for _, next := range r.Resembles[i+1:] {
			if !slices.Equal(k.Because, next.Because) {
				break
			}
			names += ", " + next.Contract
		}
		fmt.Fprintf(&said, "resembles %s: %s\n", names, strings.Join(k.Because, "; "))
	}
	return said.String()
}

func (r *probeReport) summary() string {
	what := map[probeVerdict]string{
		honours:    "honours the key in its " + r.Key + ", as far as its answers tell",
		doesNot:    "does not honour the key in its " + r.Key,
		cannotTell: "cannot tell whether it honours the key in its " + r.Key,
	}[r.Honours]
	if !r.Complete {
		what += "; not everything was asked"
	}
	return what
}

// readProbeBody reads the body of -body-file.
func readProbeBody(path string) ([]byte, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
	case !info.Mode().IsRegular():
		err = errors.New("it is no regular file")
	case info.Size() > maxProbeBody:
		err = fmt.Errorf("it has %d bytes; at most %d are sent", info.Size(), maxProbeBody)
	default:
		return os.ReadFile(path)
	}
	return nil, badUsage("-body-file: %w", err)
}
