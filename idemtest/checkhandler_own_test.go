package idemtest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemtest"
)

// flaw is what is wrong with a handler.
type flaw string

// book is what outlives the own handlers: their records.
type book struct {
	mu      sync.Mutex // guards the rest
	records map[string]*entry
	last    *httptest.ResponseRecorder
}

// entry is one record. answer is nil while the attempt runs.
type entry struct {
	print      string
	answer     *httptest.ResponseRecorder
	unresolved bool
	done       chan struct{}
}

// own is a handler with key handling of its own, which is right unless it has
// a flaw.
type own struct {
	flaw    flaw
	ledger  *idemtest.Ledger
	reached func()
	book    *book
}

func (o *own) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	id, ref := o.admit(r)
	if ref != 0 {
		http.Error(w, "no", ref)
		return
	}
	if o.flaw == "keeps 500s" || o.flaw == "answers first" {
		o.late(w, r, id)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, "the body broke off", http.StatusBadRequest)
		return
	}
	if o.flaw == "no keys" || id == "" {
		_ = copyTo(w, o.charge(body))
		return
	}
	if e, mine := o.claim(id, string(body)); mine {
		o.run(w, r, id, e, body)
	} else {
		o.duplicate(w, e, string(body))
	}
}

// admit returns the record's ID, or a status that refuses the request.
func (o *own) admit(r *http.Request) (id string, refused int) {
	lines := r.Header.Values("Idempotency-Key")
	if len(lines) == 0 && o.flaw == "no key needed" {
		return "", 0
	}
	if o.flaw == "any key" {
		return r.Header.Get("Tenant") + "/" + strings.Join(lines, ","), 0
	}
	if len(lines) != 1 {
		return "", http.StatusBadRequest
	}
	key, err := idem.ParseKey(lines[0])
	if err != nil {
		return "", http.StatusBadRequest
	}
	switch o.flaw {
	case "no tenants":
		return string(key), 0
	case "cuts keys": // as a column that is too short does
		key = key[:min(len(key), 35)]
	}
	return r.Header.Get("Tenant") + "/" + string(key), 0
}

// claim makes the record, or returns the one that is there.
func (o *own) claim(id, print string) (e *entry, mine bool) {
	o.book.mu.Lock()
	defer o.book.mu.Unlock()
	if e := o.book.records[id]; e != nil {
		return e, false
	}
	e = &entry{print: print, done: make(chan struct{})}
	if o.flaw != "claims late" {
		o.book.records[id] = e
	}
	return e, true
}

// free takes the record away.
func (o *own) free(id string) {
	o.book.mu.Lock()
	defer o.book.mu.Unlock()
	delete(o.book.records, id)
}

func (o *own) duplicate(w http.ResponseWriter, e *entry, print string) {
	timer := time.NewTimer(10 * time.Millisecond)
	defer timer.Stop()
	select {
	case <-e.done:
	case <-timer.C:
	}
	o.book.mu.Lock()
	answer, last, unresolved := e.answer, o.book.last, e.unresolved
	other := e.print != print && e.print != "" // which late does not know at first
	o.book.mu.Unlock()                         // a client may be slow to read
	switch {
	case other && o.flaw == "leaks":
		http.Error(w, "the key belongs to "+answer.Body.String(), http.StatusUnprocessableEntity)
	case other && o.flaw == "shrugs":
	case other && o.flaw != "any payload":
		http.Error(w, "another payload", http.StatusUnprocessableEntity)
	case unresolved:
		http.Error(w, "nobody knows", http.StatusConflict)
	case answer == nil && o.flaw == "empty 200":
	case answer == nil:
		w.Header().Set("Retry-After", "1")
		http.Error(w, "in flight", http.StatusConflict)
	case o.flaw == "one answer":
		w.Header().Set("Idempotent-Replayed", "true")
		_ = copyTo(w, last)
	case o.flaw == "another status":
		a := *answer
		a.Code = http.StatusOK
		_ = copyTo(w, &a)
	case o.flaw == "another body":
		maps.Copy(w.Header(), answer.Header())
		w.Header().Set("Idempotent-Replayed", "true")
		w.WriteHeader(answer.Code)
		_, _ = io.WriteString(w, "{}")
	case o.flaw == "no headers":
		w.WriteHeader(answer.Code)
		_, _ = w.Write(answer.Body.Bytes())
	case o.flaw == "cuts" && answer.Body.Len() > 500:
		w.WriteHeader(answer.Code)
		_, _ = w.Write(answer.Body.Bytes()[:500])
	default:
		if o.flaw != "never replayed" {
			w.Header().Set("Idempotent-Replayed", "true")
		}
		_ = copyTo(w, answer)
	}
}

func (o *own) run(w http.ResponseWriter, r *http.Request, id string, e *entry, body []byte) {
	defer func() {
		o.book.mu.Lock()
		defer o.book.mu.Unlock()
		if e.answer != nil || o.flaw == "stuck" {
			return
		}
		e.unresolved = true
		if o.flaw == "frees after a panic" {
			delete(o.book.records, id)
		}
		close(e.done)
	}()
	if o.flaw == "ends with its client" {
		freed := make(chan struct{})
		stop := context.AfterFunc(r.Context(), func() { o.free(id); close(freed) })
		defer func() {
			if !stop() {
				<-freed
			}
		}()
	}
	a := o.charge(body)
	if o.flaw == "undone by its client" && r.Context().Err() != nil {
		o.free(id)
		return
	}
	o.settle(id, e, a)
	w.Header().Set("Idempotent-Replayed", "false")
	if copyTo(w, a) != nil && o.flaw == "undone by a failed write" {
		o.free(id)
	}
}

// late reads the body under the claim, so that it can panic there.
func (o *own) late(w http.ResponseWriter, r *http.Request, id string) {
	e, mine := o.claim(id, "")
	if mine {
		defer func() {
			if recover() != nil {
				o.settle(id, e, answer(http.StatusInternalServerError, "", 0))
				_ = copyTo(w, e.answer)
			}
		}()
	}
	if mine && o.flaw == "answers first" {
		o.settle(id, e, answer(http.StatusCreated, "ch_soon", 0))
	}
	body, err := io.ReadAll(r.Body)
	switch {
	case !mine:
		o.duplicate(w, e, string(body))
		return
	case err != nil && o.flaw == "keeps 500s":
		o.free(id)
		return
	}
	o.book.mu.Lock()
	e.print = string(body)
	o.book.mu.Unlock()
	o.settle(id, e, o.charge(body))
	_ = copyTo(w, e.answer)
}

func (o *own) settle(id string, e *entry, a *httptest.ResponseRecorder) {
	o.book.mu.Lock()
	defer o.book.mu.Unlock()
	if e.answer != nil {
		return
	}
	e.answer = a
	if o.flaw == "claims late" {
		o.book.records[id] = e
	}
	o.book.last = a
	close(e.done)
}

// charge is the effect.
func (o *own) charge(body []byte) *httptest.ResponseRecorder {
	var c struct {
		Order string
		Pages int
	}
	if err := json.Unmarshal(body, &c); err != nil {
		return answer(http.StatusBadRequest, "", 0)
	}
	n := o.ledger.Record(c.Order)
	o.reached()
	return answer(http.StatusCreated, fmt.Sprint("ch_", n), c.Pages)
}

func answer(status int, charge string, pages int) *httptest.ResponseRecorder {
	a := httptest.NewRecorder()
	a.Header().Set("Content-Type", "application/json")
	if charge != "" {
		a.Header().Set("Location", "/charges/"+charge)
	}
	a.WriteHeader(status)
	fmt.Fprintf(a, `{"id":%q,"pages":%q}`, charge, strings.Repeat("page ", 200*pages))
	return a
}

func copyTo(w http.ResponseWriter, a *httptest.ResponseRecorder) error {
	maps.Copy(w.Header(), a.Header())
	w.WriteHeader(a.Code)
	_, err := w.Write(a.Body.Bytes())
	return err
}
