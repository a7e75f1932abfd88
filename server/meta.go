package server

import (
	"encoding/json"
	"fmt"
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

func (m meta) encode() []byte {
	b, err := json.Marshal(m)
	if err != nil {
		panic("idem: server: a struct of strings always encodes: " + err.Error())
	}
	return b
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
