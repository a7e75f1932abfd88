package server

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/stored"
	"github.com/idem-go/idem/keystore"
)

// The codes of problems, see the package documentation.
const (
	codeKeyMissing     = "key-missing"
	codeKeyInvalid     = "key-invalid"
	codeBodyIncomplete = "body-incomplete"
	codeBodyInvalid    = "body-invalid"
	codeBodyTooLarge   = "body-too-large"
	codeScopeRefused   = "scope-refused"
	codeReplayRefused  = "replay-refused"
	codeKeyReused      = "key-reused"
	codeInFlight       = "in-flight"
	codeRecovery       = "recovery-required"
	codeNotRetained    = "response-not-retained"
	codeUnreadable     = "record-unreadable"
	codeStore          = "store-unavailable"
	codeShutdown       = "shutting-down"
	codeRolledBack     = "rolled-back"
	codeCommitUnknown  = "commit-unknown"
	codeAnswerTooLarge = "answer-too-large"
)

// problem is what a code means to an HTTP client.
type problem struct {
	status    int
	title     string
	detail    string
	retryable bool
}

var problems = map[string]problem{
	codeKeyMissing:     {400, "Idempotency key missing", "This operation requires an idempotency key. Send one that names what you want to happen once, and the same one with every retry.", false},
	codeKeyInvalid:     {400, "Idempotency key invalid", "The idempotency key must be given once, as 1 to 255 printable ASCII characters without outer blanks.", false},
	codeBodyIncomplete: {400, "Request body incomplete", "The request's body ended early. Nothing was done.", true},
	codeBodyInvalid:    {400, "Request body invalid", "The request's body could not be understood. Nothing was done.", false},
	codeBodyTooLarge:   {413, "Request body too large", "The request's body exceeds what this operation accepts. Nothing was done.", false},
	codeScopeRefused:   {403, "Scope refused", "It could not be determined on whose behalf the request is made. Nothing was done.", false},
	codeReplayRefused:  {403, "Replay refused", "You may not see the answer that is stored under this idempotency key.", false},
	codeKeyReused:      {422, "Idempotency key reused", "This idempotency key belongs to a request with another payload. Use a new key for a new request.", false},
	codeInFlight:       {409, "Request in flight", "Another request with this idempotency key is being processed. Retry later with the same key.", true},
	codeRecovery:       {409, "Recovery required", "An earlier request with this idempotency key broke off, and it is not known whether it was executed. It will not be executed again until that is resolved.", false},
	codeNotRetained:    {409, "Response not retained", "The request was answered earlier, but its response was not kept. It will not be executed again.", false},
	codeUnreadable:     {500, "Record unreadable", "What is recorded under this idempotency key can't be read. The request was not executed again.", false},
	codeStore:          {503, "Store unavailable", "The idempotency key could not be recorded, so the request was not executed. Retry later with the same key.", true},
	codeShutdown:       {503, "Shutting down", "The server is shutting down and did not execute the request. Retry with the same key.", true},
	codeRolledBack:     {503, "Rolled back", "The request could not be carried through, and what it had done was rolled back. Retry later with the same key.", true},
	codeCommitUnknown:  {503, "Commit unknown", "It is not known whether the request's transaction was committed. Retry later with the same key: it is executed only if it was not.", true},
	codeAnswerTooLarge: {500, "Answer too large", "The request's answer exceeds what can be held back until it is carried through. What it had done was rolled back.", false},
}

// refusal is the end of an operation that has neither executed nor found an
// answer to replay.
type refusal struct {
	code    string
	event   string
	outcome idem.Outcome
	cause   error
	// retryAfter in whole seconds; 0 is none.
	retryAfter time.Duration
	// tombstone that was found, if any.
	tombstone stored.Answer
}

// refuse is a refusal before anything was claimed.
func refuse(code string, cause error) *refusal {
	return &refusal{code: code, event: idem.EventRefused, outcome: idem.OutcomeRejected, cause: cause}
}

func shuttingDown() *refusal {
	return &refusal{code: codeShutdown, event: idem.EventRefused, outcome: idem.OutcomeNotExecuted, cause: idem.ErrShutdown, retryAfter: time.Second}
}

// claimFailed is the refusal after a claim that the store did not answer.
func claimFailed(err error) *refusal {
	switch {
	case errors.Is(err, idem.ErrShutdown):
		return shuttingDown()
	case errors.Is(err, keystore.ErrCorrupt), errors.Is(err, keystore.ErrFormat):
		// Nothing is executed, but the record may tell of an execution.
		return &refusal{code: codeUnreadable, event: idem.EventStoreError, cause: err}
	}
	return &refusal{code: codeStore, event: idem.EventStoreError, outcome: idem.OutcomeNotExecuted, cause: err, retryAfter: time.Second}
}

// found is what a claim that was not granted has found: an answer to replay, or
// a refusal.
func (op *operation) found(g granted) (stored.Answer, *refusal) {
	switch g.Status {
	case keystore.Completed:
		a, err := stored.Decode(g.Record.Result)
		op.age, op.origin = g.Record.Age, a.Origin
		switch {
		case err != nil:
			return a, unreadable(err)
		case a.Kind == stored.Tombstone && a.Status < 400:
			return a, &refusal{
				code: codeNotRetained, event: idem.EventReplayed, outcome: idem.OutcomeExecuted,
				cause: idem.ErrResultNotRetained, tombstone: a,
			}
		}
		return a, nil
	case keystore.Mismatch:
		return stored.Answer{}, &refusal{code: codeKeyReused, event: idem.EventMismatch, outcome: idem.OutcomeRejected, cause: idem.ErrPayloadMismatch}
	case keystore.InFlight:
		return stored.Answer{}, &refusal{
			code: codeInFlight, event: idem.EventInFlight, outcome: idem.OutcomeInFlight,
			cause: op.ifFenced(nil), retryAfter: retryAfter(g.Record, op.server.cfg.Lease),
		}
	default:
		cause := error(ErrRecoveryRequired)
		if g.why != nil {
			cause = fmt.Errorf("%w: %w", cause, g.why)
		}
		return stored.Answer{}, &refusal{code: codeRecovery, event: idem.EventUnresolved, cause: op.ifFenced(cause), retryAfter: wholeSeconds(g.retryAfter)}
	}
}

// unreadable is the refusal where a stored answer can't be decoded: it was
// executed.
func unreadable(err error) *refusal {
	return &refusal{
		code: codeUnreadable, event: idem.EventStoreError, outcome: idem.OutcomeExecuted,
		cause: errors.Join(idem.ErrResultLost, err),
	}
}

// ifFenced adds to err that the operation has lost its lease, if it has.
func (op *operation) ifFenced(err error) error {
	if !op.fenced {
		return err
	}
	if err == nil {
		return idem.ErrLeaseLost
	}
	return errors.Join(idem.ErrLeaseLost, err)
}

// retryAfter is how long a duplicate of a running record should wait: longer,
// the longer it has been running, but never until a crashed owner's whole lease
// is over. HTTP knows whole seconds, one at least.
func retryAfter(rec keystore.Record, lease time.Duration) time.Duration {
	wait := min(rec.Age/2, rec.LeaseLeft, lease/2)
	return max(wait.Truncate(time.Second), time.Second)
}

// wholeSeconds rounds up.
func wholeSeconds(d time.Duration) time.Duration {
	return (d + time.Second - 1).Truncate(time.Second)
}

// error is what a refusal tells in Go.
func (op *operation) error(ref *refusal) *idem.Error {
	return &idem.Error{
		Outcome: ref.outcome, Key: op.key, Scope: op.scope, ID: op.id,
		Attempts: len(op.attempts), Cause: ref.cause, RetryAfter: ref.retryAfter,
	}
}

// source tells whether the refusal comes from a record.
func (ref *refusal) source() idem.Source {
	if errors.Is(ref.cause, idem.ErrResultNotRetained) {
		return idem.SourceReplayed
	}
	return 0
}

// writeProblem answers with a problem, of which nothing is stored.
func (s *Server) writeProblem(w http.ResponseWriter, r *http.Request, ref *refusal) {
	p := problems[ref.code]
	if ref.code == codeInFlight && s.cfg.TooEarly {
		p.status = http.StatusTooEarly
	}
	h := w.Header()
	if ref.retryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(int(ref.retryAfter/time.Second)))
	}
	if location := ref.tombstone.Header["Location"]; location != nil {
		h["Location"] = location
	}
	s.writeProblemAs(w, r, p.status, ref.code)
}

// writeProblemAs writes the problem with another status than its own.
func (s *Server) writeProblemAs(w http.ResponseWriter, r *http.Request, status int, code string) {
	p := problems[code]
	var body bytes.Buffer
	enc := json.NewEncoder(&body)
	enc.SetEscapeHTML(false)
	err := enc.Encode(struct {
		Type      string `json:"type"`
		Title     string `json:"title"`
		Status    int    `json:"status"`
		Detail    string `json:"detail"`
		Code      string `json:"code"`
		Retryable bool   `json:"retryable"`
	}{s.cfg.Describe + "#" + code, p.title, status, p.detail, code, p.retryable})
	if err != nil {
		panic("idem: server: a problem always encodes: " + err.Error())
	}
	h := w.Header()
	h.Set("Content-Type", "application/problem+json")
	h.Set("Cache-Control", "no-store")
	h.Add("Link", "<"+s.cfg.Describe+`>; rel="describedby"`)
	h.Set("Content-Length", strconv.Itoa(body.Len()))
	w.WriteHeader(status)
	if r.Method != http.MethodHead {
		_, _ = w.Write(body.Bytes()) // the client may be gone
	}
}
