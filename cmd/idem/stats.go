package main

import (
	"errors"
	"io"
	"strconv"
	"time"

	"github.com/idem-go/idem/internal/storeurl"
	"github.com/idem-go/idem/keystore"
)

// counts are the records of one half.
type counts struct {
	Half       string `json:"half"`
	Free       int    `json:"free"`
	Running    int    `json:"running"`
	Done       int    `json:"done"`
	Unresolved int    `json:"unresolved"`
	// The ages of the oldest ones; 0 if there are none.
	OldestRunning    float64 `json:"oldest_running_seconds"`
	OldestUnresolved float64 `json:"oldest_unresolved_seconds"`

	running, unresolved time.Duration
}

// noHalf is the half of records whose note can't be read.
const noHalf = "unknown"

// stats counts records.
func stats(c *call) func() error {
	c.flags.BoolVar(&c.json, "json", false, "write JSON")
	return func() error {
		if err := c.noOperands(); err != nil {
			return err
		}
		return c.withStore(func(s *storeurl.Opened) error {
			all, failed := c.count(s.Store)
			var err error
			if c.json {
				err = writeJSON(c.out, all)
			} else {
				err = statsTable(c.out, all)
			}
			if err == nil && failed != nil {
				err = c.inStore("count records", failed)
			}
			return err
		})
	}
}

// count counts what can be read, also beside an error.
func (c *call) count(s keystore.Store) ([]counts, error) {
	all := []counts{{Half: string(keystore.Client)}, {Half: string(keystore.Server)}, {Half: noHalf}}
	unreadable, err := pages(c.ctx, s, keystore.Query{}, func(rec keystore.Record) bool {
		v := viewOf(rec)
		for i := range all {
			if all[i].Half == string(v.half) || all[i].Half == noHalf {
				all[i].add(v)
				break
			}
		}
		return true
	})
	for _, u := range unreadable {
		err = errors.Join(err, u)
	}
	if all[2] == (counts{Half: noHalf}) {
		all = all[:2] // as it should be
	}
	return all, err
}

func (n *counts) add(v view) {
	switch v.state() {
	case "free":
		n.Free++
	case "running":
		n.Running++
		n.running = max(n.running, v.rec.Age)
		n.OldestRunning = seconds(n.running)
	case "done":
		n.Done++
	case "unresolved":
		n.Unresolved++
		n.unresolved = max(n.unresolved, v.rec.Age)
		n.OldestUnresolved = seconds(n.unresolved)
	}
}

func statsTable(w io.Writer, all []counts) error {
	rows := [][]string{{"HALF", "FREE", "RUNNING", "DONE", "UNRESOLVED", "OLDEST RUNNING", "OLDEST UNRESOLVED"}}
	for _, n := range all {
		oldest := func(count int, d time.Duration) string {
			if count == 0 {
				return "-"
			}
			return age(d)
		}
		rows = append(rows, []string{n.Half, strconv.Itoa(n.Free), strconv.Itoa(n.Running), strconv.Itoa(n.Done), strconv.Itoa(n.Unresolved),
			oldest(n.Running, n.running), oldest(n.Unresolved, n.unresolved)})
	}
	return writeTable(w, rows)
}
