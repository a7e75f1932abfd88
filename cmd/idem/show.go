package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/idem-go/idem/internal/storeurl"
	"github.com/idem-go/idem/keystore"
)

// show shows one record.
func show(c *call) func() error {
	sel := c.selector()
	var result bool
	c.flags.BoolVar(&result, "result", false, "show the stored header and body too")
	c.flags.BoolVar(&c.json, "json", false, "write JSON")
	return func() error {
		if _, _, err := sel.check(c.flags.Args()); err != nil {
			return err
		}
		return c.withStore(func(s *storeurl.Opened) error {
			v, err := c.find(s.Store, sel)
			if err != nil {
				return err
			}
			if c.json {
				err = writeJSON(c.out, v.json(result))
			} else {
				err = showRecord(c.out, v, result)
			}
			if err == nil && v.broken != nil {
				return fmt.Errorf("record %s can't be read whole: %w", v.hexID(), v.broken)
			}
			return err
		})
	}
}

func showRecord(w io.Writer, v view, result bool) error {
	rows := [][]string{
		{"record", v.hexID()},
		{"state", v.explained()},
		{"half", orDash(string(v.half))},
		{"kind", orDash(v.kind())},
		{"scope", orDash(v.scope)},
		{"ID", orDash(v.id)},
		{"key digest", orDash(v.keyDigest())},
		{"request", orDash(v.target())},
		{"age", age(v.rec.Age)},
		{"generation", strconv.FormatUint(uint64(v.rec.Generation), 10)},
		{"token", strconv.FormatUint(v.rec.Token, 10)},
		{"tries", strconv.Itoa(v.tries)},
		{"payload", fmt.Sprintf("%d bytes", v.payload)},
		{"result", v.summary()},
	}
	if v.broken != nil {
		rows = append(rows, []string{"broken", printable(v.broken.Error())})
	}
	if err := writeTable(w, rows); err != nil || !result || v.answer == nil {
		return err
	}
	return writeAnswer(w, v)
}

// explained is the state with what it means for the next call.
func (v view) explained() string {
	switch s := v.state(); {
	case s == "unresolved":
		return "unresolved: begun, its owner is gone, nobody knows whether it was executed"
	case v.rec.State == keystore.Running && s == "free":
		return "free: its owner is gone and had not begun, the next call takes it"
	case s == "running":
		return fmt.Sprintf("running: its lease stands for another %s, begun: %t", age(v.rec.LeaseLeft), v.rec.Begun)
	case s == "free":
		return "free: released, the next call takes it"
	default:
		return s
	}
}

// summary is the stored answer without its words.
func (v view) summary() string {
	a := v.answer
	if a == nil {
		return "-"
	}
	s := answerKinds[a.Kind]
	if a.Status != 0 {
		s += " " + strconv.Itoa(a.Status)
	}
	s += fmt.Sprintf(", %d bytes", len(a.Body))
	if a.Reason != "" {
		s += ": " + printable(a.Reason)
	}
	return s
}

// writeAnswer writes the stored header, and the body as it is.
func writeAnswer(w io.Writer, v view) error {
	var b strings.Builder
	b.WriteString("\n")
	for _, name := range slices.Sorted(maps.Keys(v.answer.Header)) {
		for _, value := range v.answer.Header[name] {
			fmt.Fprintf(&b, "%s: %s\n", printable(name), printable(value))
		}
	}
	if len(v.answer.Header) > 0 {
		b.WriteString("\n")
	}
	b.Write(v.answer.Body)
	b.WriteString("\n")
	_, err := io.WriteString(w, b.String())
	return err
}
