package server

import (
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/keystore"
)

// meta is a record's Meta: what people and recovery need to know of it.
type meta struct {
	Version int    `json:"v"`
	Scope   string `json:"scope"`
	Key     string `json:"key,omitempty"`
	ID      string `json:"id,omitempty"`
	Method  string `json:"method,omitempty"`
	Path    string `json:"path,omitempty"`
	// Retention and Discard are the route's, for Reconcile.
	Retention time.Duration `json:"retention,omitempty"`
	Discard   bool          `json:"discard,omitempty"`
	// Tries is how often Recover was asked, NextTry the record's age before
	// which it is not asked again.
	Tries   int           `json:"tries,omitempty"`
	NextTry time.Duration `json:"next,omitempty"`
}

func (op *operation) meta() []byte {
	m := meta{Version: 1, Scope: op.scope, ID: op.id, Method: cut(op.method), Path: cut(op.path), Discard: op.route.discard}
	if op.route.retention != defaultRetention {
		m.Retention = op.route.retention
	}
	if op.id == "" {
		m.Key = string(op.key)
	}
	return m.encode()
}

// encode is json.Marshal, which every request would wait for.
func (m meta) encode() []byte {
	b := make([]byte, 0, 64+len(m.Scope)+len(m.Key)+len(m.ID)+len(m.Method)+len(m.Path))
	b = strconv.AppendInt(append(b, `{"v":`...), int64(m.Version), 10)
	b = appendString(append(b, `,"scope":`...), m.Scope)
	for _, field := range [...]struct{ name, value string }{
		{`,"key":`, m.Key}, {`,"id":`, m.ID}, {`,"method":`, m.Method}, {`,"path":`, m.Path},
	} {
		if field.value != "" {
			b = appendString(append(b, field.name...), field.value)
		}
	}
	if m.Retention != 0 {
		b = strconv.AppendInt(append(b, `,"retention":`...), int64(m.Retention), 10)
	}
	if m.Discard {
		b = append(b, `,"discard":true`...)
	}
	if m.Tries != 0 {
		b = strconv.AppendInt(append(b, `,"tries":`...), int64(m.Tries), 10)
	}
	if m.NextTry != 0 {
		b = strconv.AppendInt(append(b, `,"next":`...), int64(m.NextTry), 10)
	}
	return append(b, '}')
}

// appendString appends a JSON string.
func appendString(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			quoted, err := json.Marshal(s)
			if err != nil {
				panic("idem: server: a string always encodes: " + err.Error())
			}
			return append(b, quoted...)
		}
	}
	return append(append(append(b, '"'), s...), '"')
}

// cut bounds what a client has sent.
func cut(s string) string { return s[:min(len(s), 1<<10)] }

func metaOf(rec keystore.Record) (m meta, err error) {
	if err := json.Unmarshal(rec.Meta, &m); err != nil {
		return m, fmt.Errorf("%w: its meta: %w", keystore.ErrCorrupt, err)
	}
	if m.Version != 1 {
		return m, fmt.Errorf("%w: its meta has version %d", keystore.ErrFormat, m.Version)
	}
	return m, nil
}

// pending is the record as Recover sees it.
func (m meta) pending(rec keystore.Record) Pending {
	p := Pending{Half: "server", Scope: m.Scope, ID: m.ID, Key: idem.Key(m.Key), Method: m.Method, Path: m.Path,
		Age: rec.Age, Generation: rec.Generation, Token: rec.Token, Tries: m.Tries}
	if m.ID != "" {
		p.Key = idem.DeriveKey("server", m.Scope, m.ID)
	}
	return p
}
