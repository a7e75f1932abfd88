package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"syscall"
	"text/tabwriter"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemtest"
)

func (s *stage) printf(format string, args ...any) { fmt.Fprintf(s.out, format, args...) }

// showAttempts prints what happened on the wire since the last time, attempt
// by attempt.
func (s *stage) showAttempts(processes ...*process) {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, "\tattempt\tfault\tserver\tclient saw\toutcome\tsource\tkey")
	rows := 0
	for _, p := range processes {
		exchanges := p.wire.Exchanges()
		p.mu.Lock()
		for ; p.shown < len(exchanges); p.shown++ {
			x, outcome, source := exchanges[p.shown], "-", "-"
			if p.shown < len(p.attempts) {
				outcome, source = known(p.attempts[p.shown])
			}
			fmt.Fprintf(w, "\t%s%d\t%s\t%s\t%s\t%s\t%s\t%s\n", p.name, x.Attempt, x.Fault, served(x), saw(x), outcome, source, digest(x.Key))
			rows++
		}
		p.mu.Unlock()
	}
	_ = w.Flush() // a strings.Builder never fails
	if rows == 0 {
		return
	}
	s.printf("\n")
	for line := range strings.Lines(b.String()) {
		s.printf("%s\n", strings.TrimRight(line, " \n"))
	}
	s.printf("\n")
}

// known is what an attempt has shown: the outcome, and where its answer came
// from.
func known(a idem.Attempt) (outcome, source string) {
	switch {
	case a.Outcome != idem.OutcomeExecuted:
		return a.Outcome.String(), "-"
	case a.Replayed:
		return a.Outcome.String(), idem.SourceReplayed.String()
	}
	return a.Outcome.String(), idem.SourceExecuted.String()
}

// served is what the server answered.
func served(x idemtest.Exchange) string {
	if len(x.Answers) == 0 {
		return "-"
	}
	return strings.Trim(fmt.Sprint(x.Answers), "[]")
}

// saw is what reached the client, in a word or two.
func saw(x idemtest.Exchange) string {
	var late interface{ Timeout() bool }
	switch {
	case x.Err == nil:
		return fmt.Sprint(x.Status)
	case errors.Is(x.Err, syscall.ECONNREFUSED):
		return "refused"
	case errors.Is(x.Err, syscall.ECONNRESET):
		return "reset"
	case errors.Is(x.Err, io.EOF):
		return "EOF"
	case errors.As(x.Err, &late) && late.Timeout():
		return "timeout"
	}
	return "error"
}

// digest stands for a key.
func digest(key string) string {
	if key == "" {
		return "none"
	}
	return idem.Key(key).Digest()
}

// told prints what a caller was told.
func (s *stage) told(who string, a answer) { s.printf("   %-9s %s\n", who, a) }

// String is an answer in one line.
func (a answer) String() string {
	var failure *idem.Error
	switch {
	case errors.As(a.err, &failure):
		why := failure.Cause
		if why == nil {
			why = failure.Last
		}
		return fmt.Sprintf("%v: %.70s", a.outcome, strings.TrimPrefix(fmt.Sprint(why), "idem: "))
	case a.err != nil:
		return fmt.Sprintf("%.70s", a.err)
	case a.status == http.StatusCreated:
		return fmt.Sprintf("%v, source %v: %d %s over %s", a.outcome, a.source, a.status, a.charge.ID, money(a.charge))
	}
	return fmt.Sprintf("%v: %d %s", a.outcome, a.status, http.StatusText(a.status))
}

func money(c idemtest.Charge) string {
	return fmt.Sprintf("%d.%02d %s", c.Amount/100, c.Amount%100, c.Currency)
}

// showLedger prints what was charged and holds it against what should have
// been.
func (s *stage) showLedger(charges int) {
	label := "ledger"
	for line := range strings.Lines(s.ledger.String()) {
		s.printf("   %-9s %s", label, line)
		label = ""
	}
	s.expect(s.ledger.Total() == charges, "%d charge%s", charges, plural(charges))
}

// expect prints an expectation, and whether it holds.
func (s *stage) expect(holds bool, format string, args ...any) {
	verdict := "ok"
	if !holds {
		verdict, s.wrong = "WRONG", true
	}
	s.printf("   %-9s %-58s %s\n", "expected", fmt.Sprintf(format, args...), verdict)
}

func plural(n int) string {
	if n == 1 {
		return ""
	}
	return "s"
}
