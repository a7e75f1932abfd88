package main

import (
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/stored"
	"github.com/idem-go/idem/keystore"
)

// view is a record as people read it.
type view struct {
	rec keystore.Record
	// client or server is its note; none if broken tells why.
	client *clientNote
	server *serverNote
	// answer is what a record holds that is done.
	answer *stored.Answer
	broken error

	half         keystore.Half
	scope, id    string
	key          idem.Key
	method, path string
	request      bool // not a function's call
	tries        int
	payload      int // bytes
}

func viewOf(rec keystore.Record) view {
	v := view{rec: rec}
	v.client, v.server, v.broken = readNote(rec)
	switch {
	case v.client != nil:
		n := v.client
		v.half, v.scope, v.id, v.key = keystore.Client, n.Scope, n.ID, n.Key
		v.request, v.tries, v.payload = n.HTTP, n.Tries, len(n.Payload)
	case v.server != nil:
		n := v.server
		v.half, v.scope, v.id, v.key = keystore.Server, n.Scope, n.ID, n.Key
		v.method, v.path, v.request, v.tries = n.Method, n.Path, n.Method != "", n.Tries
		if n.ID != "" {
			v.key = idem.DeriveKey("server", n.Scope, n.ID)
		}
	}
	if rec.State == keystore.Done {
		a, err := stored.Decode(rec.Result)
		if err == nil {
			v.answer = &a
		} else if v.broken == nil {
			v.broken = err
		}
	}
	return v
}

// hexID is the record's whole ID, shortID enough of it to ask for it.
func (v view) hexID() string   { return fmt.Sprintf("%x", v.rec.ID) }
func (v view) shortID() string { return v.hexID()[:12] }

// state is what the record is in one word. Whoever comes next takes a record
// whose owner is gone and had not begun, as if it were free.
func (v view) state() string {
	switch {
	case v.rec.Unresolved():
		return "unresolved"
	case v.rec.State == keystore.Running && v.rec.LeaseLeft <= 0:
		return keystore.Free.String()
	}
	return v.rec.State.String()
}

func (v view) kind() string {
	switch {
	case v.half == "":
		return ""
	case v.request:
		return "request"
	}
	return "function"
}

func (v view) keyDigest() string {
	if v.key == "" {
		return ""
	}
	return v.key.Digest()
}

// target is the method and the path of a request; the client half keeps none.
func (v view) target() string {
	if v.method == "" {
		return ""
	}
	return v.method + " " + v.path
}

// name is the record in a sentence.
func (v view) name() string {
	s := "record " + v.shortID() + "…"
	switch {
	case v.half == "":
		return s
	case v.id != "":
		return fmt.Sprintf("%s (%s, scope %s, ID %s)", s, v.half, printable(v.scope), printable(v.id))
	}
	return fmt.Sprintf("%s (%s, scope %s, key digest %s)", s, v.half, printable(v.scope), v.keyDigest())
}

var answerKinds = map[stored.Kind]string{
	stored.Value: "value", stored.Response: "response", stored.Tombstone: "tombstone", stored.Refusal: "refusal",
}

// recordJSON is a record for programs. The names of the fields stay.
type recordJSON struct {
	Record     string      `json:"record"`
	State      string      `json:"state"`
	Half       string      `json:"half"`
	Kind       string      `json:"kind"`
	Scope      string      `json:"scope"`
	ID         string      `json:"id"`
	KeyDigest  string      `json:"key_digest"`
	Method     string      `json:"method"`
	Path       string      `json:"path"`
	Age        float64     `json:"age_seconds"`
	Lease      float64     `json:"lease_seconds"`
	Generation uint32      `json:"generation"`
	Token      uint64      `json:"token"`
	Begun      bool        `json:"begun"`
	Tries      int         `json:"tries"`
	Payload    int         `json:"payload_bytes"`
	Result     *resultJSON `json:"result,omitempty"`
	Error      string      `json:"error,omitempty"`
}

// resultJSON is a stored answer. Header and body are filled only on request.
type resultJSON struct {
	Kind   string              `json:"kind"`
	Status int                 `json:"status,omitempty"`
	Bytes  int                 `json:"bytes"`
	Reason string              `json:"reason,omitempty"`
	Header map[string][]string `json:"header,omitempty"`
	Body   string              `json:"body,omitempty"`
	// Base64 is the body where it is no UTF-8.
	Base64 []byte `json:"body_base64,omitempty"`
}

func (v view) json(result bool) recordJSON {
	r := recordJSON{
		Record: v.hexID(), State: v.state(), Half: string(v.half), Kind: v.kind(), Scope: v.scope, ID: v.id,
		KeyDigest: v.keyDigest(), Method: v.method, Path: v.path, Age: seconds(v.rec.Age), Lease: max(seconds(v.rec.LeaseLeft), 0),
		Generation: v.rec.Generation, Token: v.rec.Token, Begun: v.rec.Begun, Tries: v.tries, Payload: v.payload,
	}
	if v.broken != nil {
		r.Error = v.broken.Error()
	}
	if a := v.answer; a != nil {
		r.Result = &resultJSON{Kind: answerKinds[a.Kind], Status: a.Status, Bytes: len(a.Body), Reason: a.Reason}
		switch {
		case !result:
		case utf8.Valid(a.Body):
			r.Result.Header, r.Result.Body = a.Header, string(a.Body)
		default:
			r.Result.Header, r.Result.Base64 = a.Header, a.Body
		}
	}
	return r
}

// seconds rounds to milliseconds: more says nothing about a record.
func seconds(d time.Duration) float64 { return d.Round(time.Millisecond).Seconds() }
