package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/idem-go/idem/internal/storeurl"
	"github.com/idem-go/idem/keystore"
)

// stale lists unresolved records.
func stale(c *call) func() error {
	var half, scope string
	var older time.Duration
	c.flags.StringVar(&half, "half", "", "only records of this `half`: client or server")
	c.flags.StringVar(&scope, "scope", "", "only intents of this `scope`")
	c.flags.DurationVar(&older, "older", 0, "only records that were first claimed that long ago, such as 10m")
	c.flags.BoolVar(&c.json, "json", false, "write JSON")
	return func() error {
		if err := c.noOperands(); err != nil {
			return err
		}
		halves := []keystore.Half{keystore.Client, keystore.Server}
		if half != "" {
			h, err := halfOf(half)
			if err != nil {
				return err
			}
			halves = []keystore.Half{h}
		}
		return c.withStore(func(s *storeurl.Opened) error {
			found, err := c.unresolved(s.Store, halves, half != "", scope, older)
			if out := c.writeStale(found); out != nil {
				return out
			}
			return err
		})
	}
}

// unresolved returns the unresolved records that are wanted, the oldest first,
// also beside an error, which tells of what could not be read.
func (c *call) unresolved(s keystore.Store, halves []keystore.Half, halfOnly bool, scope string, older time.Duration) ([]view, error) {
	queries := []keystore.Query{{Unresolved: true}}
	if scope != "" {
		queries = nil
		for _, h := range halves {
			digest := keystore.ScopeDigest(h, scope)
			queries = append(queries, keystore.Query{Unresolved: true, Scope: &digest})
		}
	}
	var found []view
	var failed error
	told := map[[32]byte]bool{} // what is unreadable may turn up in every query
	for _, q := range queries {
		unreadable, err := pages(c.ctx, s, q, func(rec keystore.Record) bool {
			v := viewOf(rec)
			if rec.Age >= older && (!halfOnly || v.half == halves[0] || v.half == "") {
				v.rec.Result = nil
				found = append(found, v)
			}
			return true
		})
		for _, u := range unreadable {
			if !told[u.id] {
				told[u.id] = true
				failed = errors.Join(failed, u)
			}
		}
		failed = errors.Join(failed, err)
	}
	if failed != nil {
		failed = c.inStore("list unresolved records", failed)
	}
	slices.SortStableFunc(found, func(a, b view) int { return cmp.Compare(b.rec.Age, a.rec.Age) })
	return found, failed
}

func (c *call) writeStale(found []view) error {
	if c.json {
		list := []recordJSON{}
		for _, v := range found {
			list = append(list, v.json(false))
		}
		return writeJSON(c.out, list)
	}
	return staleTable(c.out, found)
}

func staleTable(w io.Writer, found []view) error {
	if len(found) == 0 {
		_, err := fmt.Fprintln(w, "no unresolved records")
		return err
	}
	rows := [][]string{{"AGE", "HALF", "SCOPE", "ID", "REQUEST", "KEY DIGEST", "RECORD", "TRIES"}}
	for _, v := range found {
		rows = append(rows, []string{
			age(v.rec.Age), orDash(string(v.half)), orDash(v.scope), orDash(v.id), orDash(v.target()),
			orDash(v.keyDigest()), v.shortID(), strconv.Itoa(v.tries),
		})
	}
	return writeTable(w, rows)
}
