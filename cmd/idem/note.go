package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/keystore"
)

// clientNote is what the client half notes in a record's Meta. The tests hold
// it, and what becomes of it, against what the client half writes.
type clientNote struct {
	Version    int             `json:"v"`
	Generation uint32          `json:"g"`
	Key        idem.Key        `json:"k"`
	Wire       string          `json:"w,omitempty"`
	Scope      string          `json:"s,omitempty"`
	ID         string          `json:"i,omitempty"`
	HTTP       bool            `json:"h,omitempty"`
	Tries      int             `json:"r,omitempty"`
	Payload    json.RawMessage `json:"p,omitempty"`
}

// serverNote is that of the server half.
type serverNote struct {
	Version   int           `json:"v"`
	Scope     string        `json:"scope"`
	Key       idem.Key      `json:"key,omitempty"`
	ID        string        `json:"id,omitempty"`
	Method    string        `json:"method,omitempty"`
	Path      string        `json:"path,omitempty"`
	Retention time.Duration `json:"retention,omitempty"`
	Discard   bool          `json:"discard,omitempty"`
	Tries     int           `json:"tries,omitempty"`
}

// noteVersion is the version of both.
const noteVersion = 1

var errNoNote = errors.New("its note is of neither half: it was damaged, or written by something else")

// names tells whether the names give the record's ID, which proves whose record
// it is.
func names(rec keystore.Record, half keystore.Half, scope, id string, key idem.Key) bool {
	kind, name := "id", id
	if id == "" {
		kind, name = "key", string(key)
	}
	return rec.ID == keystore.RecordID(half, scope, kind, name)
}

// readNote reads a record's note: one of the two, or an error.
func readNote(rec keystore.Record) (*clientNote, *serverNote, error) {
	var s serverNote
	if json.Unmarshal(rec.Meta, &s) == nil && names(rec, keystore.Server, s.Scope, s.ID, s.Key) {
		return nil, &s, checkVersion(s.Version)
	}
	var c clientNote
	if json.Unmarshal(rec.Meta, &c) == nil && names(rec, keystore.Client, c.Scope, c.ID, c.Key) {
		err := checkVersion(c.Version)
		if err == nil && c.Generation != rec.Generation {
			err = fmt.Errorf("its note is of generation %d, the record of %d", c.Generation, rec.Generation)
		}
		return &c, nil, err
	}
	return nil, nil, errNoNote
}

func checkVersion(v int) error {
	if v != noteVersion {
		return fmt.Errorf("its note has version %d, this version of idem knows %d", v, noteVersion)
	}
	return nil
}

// derivedKey is the key of an intent with an ID, unless keys are drawn.
func (n clientNote) derivedKey() idem.Key {
	if n.Generation == 0 {
		return idem.DeriveKey("intent", n.Scope, n.ID)
	}
	return idem.DeriveKey("intent", n.Scope, n.ID, strconv.FormatUint(uint64(n.Generation), 10))
}

// next is the note after a definite refusal: of the next generation, whose key
// is a fresh one unless the application has given it.
func (n clientNote) next() clientNote {
	now := n
	now.Generation++
	now.Tries = 0
	if n.ID == "" {
		return now
	}
	// As the contract takes it: as version 4, without dashes.
	form := idem.Contract{Undashed: !strings.Contains(string(n.Key), "-")}
	now.Key = idem.Key(form.Spell(idem.NewKey()))
	for _, form.Version4 = range []bool{false, true} {
		if string(n.Key) == form.Spell(n.derivedKey()) {
			now.Key = idem.Key(form.Spell(now.derivedKey()))
			break
		}
	}
	// Bare, or in quotes.
	now.Wire = strings.ReplaceAll(n.Wire, string(n.Key), string(now.Key))
	return now
}

// encode is the note as the client half writes it.
func (n clientNote) encode() []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(n); err != nil {
		panic("idem: a note of strings and JSON always encodes: " + err.Error())
	}
	if b.Len() > keystore.MaxMeta && n.Payload != nil {
		n.Payload = nil
		return n.encode()
	}
	return bytes.TrimSpace(b.Bytes())
}
