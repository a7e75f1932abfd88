package main

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"github.com/idem-go/idem/keystore"
)

// minPrefix is how many digits of a record's ID name it at least.
const minPrefix = 8

const selects = `RECORD is the record's ID in hex, 8 digits or more if they are unique; or instead of
it -half client|server with -scope S (may be empty for a -key of the client half) and -id I or -key K.`

// selector names one record, by its ID or by what the ID is made of.
type selector struct {
	scope, id, key string
	half           string
}

func (c *call) selector() *selector {
	s := new(selector)
	c.flags.StringVar(&s.half, "half", "", "`half` of the record: client or server")
	c.flags.StringVar(&s.scope, "scope", "", "`scope` of the intent")
	c.flags.StringVar(&s.id, "id", "", "`ID` of the intent")
	c.flags.StringVar(&s.key, "key", "", "`key` of an intent that has no ID")
	return s
}

// check returns the ID's hex digits, or the whole ID.
func (s *selector) check(operands []string) (prefix string, id *[32]byte, err error) {
	named := s.id != "" || s.key != ""
	switch {
	case len(operands) > 1:
		return "", nil, badUsage("%d records are named; name one", len(operands))
	case len(operands) == 1 && (named || s.half != "" || s.scope != ""):
		return "", nil, badUsage("name the record by its ID %s or by -half, -scope and -id or -key, not by both", printable(operands[0]))
	case len(operands) == 1:
		return s.byPrefix(strings.ToLower(operands[0]))
	case (s.id == "") == (s.key == ""):
		return "", nil, badUsage("no record is named; give its ID, or -half, -scope and one of -id and -key")
	case s.scope == "" && (s.id != "" || s.half != string(keystore.Client)):
		return "", nil, badUsage("-scope is missing")
	}
	half, err := halfOf(s.half)
	if err != nil {
		return "", nil, err
	}
	kind, name := "id", s.id
	if s.id == "" {
		kind, name = "key", s.key
	}
	sum := keystore.RecordID(half, s.scope, kind, name)
	return "", &sum, nil
}

func (s *selector) byPrefix(digits string) (prefix string, id *[32]byte, err error) {
	if len(digits) < minPrefix || len(digits) > 64 || strings.Trim(digits, "0123456789abcdef") != "" {
		return "", nil, badUsage("the record %s; give %d to 64 hex digits of its ID, as idem stale shows them", printable(digits), minPrefix)
	}
	if len(digits) < 64 {
		return digits, nil, nil
	}
	id = new([32]byte)
	_, err = hex.Decode(id[:], []byte(digits))
	return "", id, err
}

func halfOf(s string) (keystore.Half, error) {
	switch h := keystore.Half(s); h {
	case keystore.Client, keystore.Server:
		return h, nil
	}
	return "", badUsage("-half is %q; use client or server", s)
}

var errNoRecord = errors.New("there is no such record, or its retention is over")

// find reads the record that the flags and operands name.
func (c *call) find(s keystore.Store, sel *selector) (view, error) {
	prefix, id, err := sel.check(c.flags.Args())
	if err != nil {
		return view{}, err
	}
	var found []keystore.Record
	if id != nil {
		found, err = s.Records(c.ctx, keystore.Query{ID: id, Limit: 1})
	} else {
		found, err = c.withPrefix(s, prefix)
	}
	switch {
	case err != nil:
		return view{}, c.inStore("read the record", err)
	case len(found) == 0:
		return view{}, c.inStore("read the record", errNoRecord)
	case len(found) > 1:
		return view{}, fmt.Errorf("several records begin with %s: %x… and %x…; give more digits", prefix, found[0].ID[:8], found[1].ID[:8])
	}
	return viewOf(found[0]), nil
}

// withPrefix returns at most two records whose IDs begin with the digits.
func (c *call) withPrefix(s keystore.Store, digits string) (found []keystore.Record, err error) {
	first, last := bound(digits, "0"), bound(digits, "f")
	unreadable, err := pages(c.ctx, s, keystore.Query{After: before(first)}, func(rec keystore.Record) bool {
		if bytes.Compare(rec.ID[:], last[:]) > 0 {
			return false
		}
		found = append(found, rec)
		return len(found) < 2
	})
	for _, u := range unreadable {
		// What can't be read behind the last one is not what was asked for.
		if strings.HasPrefix(fmt.Sprintf("%x", u.id), digits) {
			err = errors.Join(err, u)
		}
	}
	return found, err
}

func bound(digits, fill string) (id [32]byte) {
	_, _ = hex.Decode(id[:], []byte(digits+strings.Repeat(fill, 64-len(digits)))) // checked before
	return id
}

// before is the ID right before id, or the lowest one.
func before(id [32]byte) [32]byte {
	prev := id
	for i := len(prev) - 1; i >= 0; i-- {
		prev[i]--
		if prev[i] != 0xff {
			return prev
		}
	}
	return id
}
