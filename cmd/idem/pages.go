package main

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"

	"github.com/idem-go/idem/keystore"
)

// pageSize keeps a page of the largest results in memory.
const pageSize = 100

// pages calls visit with each record that q selects, in the order of their
// IDs, until visit returns false. A record that can't be read does not hide the
// others: it is among unreadable.
func pages(ctx context.Context, store keystore.Store, q keystore.Query, visit func(keystore.Record) bool) (unreadable []unreadableError, err error) {
	q.Limit = pageSize
	for {
		recs, err := store.Records(ctx, q)
		switch {
		case !cantBeRead(err) && err != nil:
			return unreadable, err
		case err != nil && q.Limit > 1:
			q.Limit /= 2 // the page fails as a whole
			continue
		case err != nil:
			id, ok := culprit(ctx, store, q, err)
			if !ok {
				return unreadable, fmt.Errorf("the first record behind %x can't be read, nor can any behind that one be listed: %w", q.After, err)
			}
			unreadable = append(unreadable, unreadableError{id, err})
			q.After, q.Limit = id, pageSize
			continue
		case len(recs) == 0:
			return unreadable, nil
		}
		for _, rec := range recs {
			if !visit(rec) {
				return unreadable, nil
			}
		}
		q.After = recs[len(recs)-1].ID
	}
}

// unreadableError is one record that can't be read, and why.
type unreadableError struct {
	id  [32]byte
	err error
}

func (e unreadableError) Error() string {
	return fmt.Sprintf("record %x can't be read: %v", e.id, e.err)
}
func (e unreadableError) Unwrap() error { return e.err }

func cantBeRead(err error) bool {
	return errors.Is(err, keystore.ErrCorrupt) || errors.Is(err, keystore.ErrFormat)
}

var recordID = regexp.MustCompile(`[0-9a-fA-F]{64}`)

// culprit is the first record behind q.After, which can't be read because of
// err. The stores name it in their errors' text; whether that is right the
// store is asked, by the ID.
func culprit(ctx context.Context, store keystore.Store, q keystore.Query, err error) (id [32]byte, ok bool) {
	for _, digits := range recordID.FindAllString(err.Error(), -1) {
		_, _ = hex.Decode(id[:], []byte(digits))
		if bytes.Compare(id[:], q.After[:]) <= 0 {
			continue
		}
		if _, err := store.Records(ctx, keystore.Query{ID: &id, Limit: 1}); cantBeRead(err) {
			return id, true
		}
	}
	return id, false
}
