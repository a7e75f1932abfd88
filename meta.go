package idem

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	"github.com/idem-go/idem/keystore"
)

// meta is what the client half notes in a record: the key that is sent, and how
// it is written, which outlive every later way to derive and to spell one; and
// the intent in readable form.
type meta struct {
	Version    int    `json:"v"`
	Generation uint32 `json:"g"`
	Key        Key    `json:"k"`
	Wire       string `json:"w,omitempty"`
	Scope      string `json:"s,omitempty"`
	ID         string `json:"i,omitempty"`
	// HTTP tells that the intent is a request, not a function's call.
	HTTP bool `json:"h,omitempty"`
	// Tries is how often Recover was asked about it.
	Tries int `json:"r,omitempty"`
	// Payload is the JSON of a call's payload, see Config.MaxPayload.
	Payload json.RawMessage `json:"p,omitempty"`
}

// encode drops a payload that there is no room for.
func (m meta) encode() []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false) // it would make the payload larger
	if err := enc.Encode(m); err != nil {
		panic("idem: a meta of strings and JSON always encodes: " + err.Error())
	}
	if b.Len() > keystore.MaxMeta && m.Payload != nil {
		m.Payload = nil
		return m.encode()
	}
	return bytes.TrimSpace(b.Bytes())
}

// meta is the note of the operation in one generation.
func (op *operation) meta(generation uint32) []byte {
	key := op.newKey(generation)
	m := meta{Version: 1, Generation: generation, Key: key, Wire: op.spell(key), Scope: op.scope, ID: op.intent.ID, HTTP: op.http, Payload: op.payload}
	return m.encode()
}

// metaOf tells the key that the record was or will be sent under.
func metaOf(rec keystore.Record) (m meta, err error) {
	if err := json.Unmarshal(rec.Meta, &m); err != nil {
		return m, fmt.Errorf("%w: its meta: %w", keystore.ErrCorrupt, err)
	}
	if m.Version != 1 {
		return m, fmt.Errorf("%w: its meta has version %d", keystore.ErrFormat, m.Version)
	}
	if m.Generation != rec.Generation {
		return m, fmt.Errorf("%w: its key is of generation %d, the record of %d", keystore.ErrCorrupt, m.Generation, rec.Generation)
	}
	return m, m.Key.Validate()
}

// notePayload brings the payload into a record whose note is older than it.
// That serves Resume only: if it fails, the intent goes on.
func (c *Client) notePayload(ctx context.Context, op *operation, h *holding, note meta) {
	if bytes.Equal(note.Payload, op.payload) {
		return
	}
	note.Payload = op.payload
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	_ = c.cfg.Store.Renew(ctx, h.owner, keystore.RenewParams{Lease: c.cfg.Lease, Meta: note.encode()})
}
