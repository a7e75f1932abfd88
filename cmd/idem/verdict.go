package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/idem-go/idem/internal/stored"
	"github.com/idem-go/idem/keystore"
)

const verdicts = `
VERDICT is one of
  -done FILE            it was executed; FILE, or - for standard input, is the JSON of the function's
                        result, or a raw HTTP response, or with -status its body alone
  -done-without-result  it was executed, and what came out is not known: never to be executed again
  -not-executed         it did not happen, and won't: the next call is the first one
  -rejected             it was definitely refused: at the client half the next call is a new operation; at
                        the server half the refusal is replayed, a request's with -status, a function's
                        with -reason`

// verdict is what an operator has found out.
type verdict struct {
	done          string
	withoutResult bool
	notExecuted   bool
	rejected      bool
	status        int
	reason        string
	retention     time.Duration
}

func (c *call) verdict() *verdict {
	d := new(verdict)
	c.flags.StringVar(&d.done, "done", "", "it was executed: the `FILE` with its result, - for standard input")
	c.flags.BoolVar(&d.withoutResult, "done-without-result", false, "it was executed, its result is not known")
	c.flags.BoolVar(&d.notExecuted, "not-executed", false, "it did not happen, and won't")
	c.flags.BoolVar(&d.rejected, "rejected", false, "it was definitely refused")
	c.flags.IntVar(&d.status, "status", 0, "HTTP `status` of the answer; with -done, FILE is the body alone")
	c.flags.StringVar(&d.reason, "reason", "refused, as it was found out later", "`text` of a function's refusal")
	c.flags.DurationVar(&d.retention, "retention", 0, "how long the result is replayed, or the freed record kept; 0 is what its half noted, or 24h")
	return d
}

// check refuses what can't be meant, whatever the record is.
func (d *verdict) check(yes bool) error {
	n := 0
	for _, set := range []bool{d.done != "", d.withoutResult, d.notExecuted, d.rejected} {
		if set {
			n++
		}
	}
	switch {
	case n != 1:
		return badUsage("%d verdicts are given; give one of -done, -done-without-result, -not-executed and -rejected", n)
	case d.retention < 0:
		return badUsage("-retention is %v; use 0, or a positive duration", d.retention)
	case d.status != 0 && d.done == "" && !d.rejected:
		return badUsage("-status goes with -done or -rejected")
	case d.done == "-" && !yes:
		return badUsage("-done - reads the result from standard input, where the question would be answered; set -yes")
	}
	return nil
}

// settlement is what becomes of a record: an answer is completed with, or the
// record is released.
type settlement struct {
	answer    *stored.Answer
	release   keystore.ReleaseParams
	retention time.Duration
	// as is the settlement in the question, then what is told afterwards.
	as, then string
}

// settlement is what the verdict means for the record. Its error says what does
// not fit.
func (d *verdict) settlement(v view, in io.Reader) (settlement, error) {
	s := settlement{retention: d.retention}
	if s.retention == 0 && v.server != nil {
		s.retention = v.server.Retention
	}
	if s.retention == 0 {
		s.retention = 24 * time.Hour
	}
	if v.broken != nil && !d.notExecuted {
		return s, fmt.Errorf("%s can't be read, so that nobody knows in what form its result belongs there: %w", v.name(), v.broken)
	}
	var err error
	switch {
	case d.done != "":
		s.as = "executed, with the result in " + printable(d.done)
		s.answer, err = d.fromFile(v, in)
	case d.withoutResult:
		s.as = "executed, without its result"
		s.answer = &stored.Answer{Kind: stored.Tombstone, Reason: "settled by an operator who did not know the result"}
	case d.notExecuted:
		s.as, s.then = "not executed", "free: the next call is made under the same key"
		s.release = keystore.ReleaseParams{How: keystore.Forget}
	case v.half == keystore.Client:
		next := v.client.next()
		s.as = "refused"
		s.then = fmt.Sprintf("free: the next call is a new operation, of generation %d, under the key with the digest %s", next.Generation, next.Key.Digest())
		s.release = keystore.ReleaseParams{How: keystore.Reject, Meta: next.encode()}
	default:
		s.as = "refused"
		s.answer, err = d.refusal(v)
	}
	if s.answer != nil {
		s.then = fmt.Sprintf("done: its answer is replayed for %v", s.retention)
	}
	return s, err
}

func (d *verdict) fromFile(v view, in io.Reader) (*stored.Answer, error) {
	if d.done != "-" {
		f, err := os.Open(d.done)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		in = f
	}
	// With room for a header.
	file, err := io.ReadAll(io.LimitReader(in, 2*maxResult))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", d.done, err)
	}
	if len(file) == 2*maxResult {
		return nil, fmt.Errorf("%s has %d bytes or more, at most %d are stored; use -done-without-result", d.done, len(file), maxResult)
	}
	a, err := v.result(file, d.status)
	return &a, err
}

// refusal is a refusal as the server half stores it, where it is an answer.
func (d *verdict) refusal(v view) (*stored.Answer, error) {
	switch {
	case !v.request && d.status != 0:
		return nil, badUsage("-status is for HTTP requests, the record is that of a function's call")
	case !v.request:
		return &stored.Answer{Kind: stored.Refusal, Reason: d.reason}, nil
	case d.status < 400 || !definitive(d.status):
		return nil, badUsage("a refusal is an answer at the server half: give its -status, 400 to 499 and not 401, 403, 407, 408, 425 or 429; or the whole answer with -done FILE")
	}
	return &stored.Answer{Kind: stored.Tombstone, Status: d.status, Reason: "settled by an operator"}, nil
}
