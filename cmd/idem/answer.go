package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/idem-go/idem/internal/stored"
	"github.com/idem-go/idem/keystore"
)

// maxResult is the largest result that is taken, as by default in both halves.
const maxResult = keystore.MaxResult / 2

// result is what the file says that came out, in the form in which the
// record's half stores it. status is that of a file that is the body alone, or
// 0.
func (v view) result(file []byte, status int) (stored.Answer, error) {
	switch {
	case !v.request && status != 0:
		return stored.Answer{}, badUsage("-status is for HTTP requests, the record is that of a function's call")
	case !v.request:
		return v.value(file)
	case status != 0:
		return v.reply(status, header(file), file)
	}
	resp, body, err := readResponse(v.method, file)
	if err != nil {
		return stored.Answer{}, fmt.Errorf("the file is no raw HTTP response, as curl -i prints it: %w (for a body alone, set -status too)", err)
	}
	return v.reply(resp.StatusCode, resp.Header, body)
}

// value is a function's result.
func (v view) value(file []byte) (stored.Answer, error) {
	file = bytes.TrimSpace(file)
	switch {
	case !json.Valid(file):
		return stored.Answer{}, errors.New("the file is not JSON; it must be the JSON of what the function would have returned")
	case len(file) > maxResult:
		return stored.Answer{}, tooLarge(len(file))
	case v.discards():
		return stored.Answer{Kind: stored.Tombstone, Reason: discarded}, nil
	}
	return stored.Answer{Kind: stored.Value, Body: file}, nil
}

// reply is an HTTP response.
func (v view) reply(status int, h http.Header, body []byte) (stored.Answer, error) {
	if err := v.checkStatus(status); err != nil {
		return stored.Answer{}, err
	}
	switch {
	case len(body) > 0 && (status == http.StatusNoContent || status == http.StatusNotModified || v.method == http.MethodHead):
		return stored.Answer{}, fmt.Errorf("a %d to the method %s has no body, the file has %d bytes of it", status, orDash(v.method), len(body))
	case len(body) > maxResult:
		return stored.Answer{}, tooLarge(len(body))
	}
	a := stored.Answer{Kind: stored.Response, Status: status, Header: h, Body: body}
	if v.half == keystore.Server {
		a.Header = lasting(h)
		if length := h["Content-Length"]; v.method == http.MethodHead && length != nil {
			a.Header["Content-Length"] = length // there is no body to count
		}
	}
	if v.discards() {
		t := stored.Answer{Kind: stored.Tombstone, Status: status, Reason: discarded}
		if location := a.Header["Location"]; location != nil {
			t.Header = http.Header{"Location": location}
		}
		return t, nil
	}
	return a, nil
}

const discarded = "the route stores no answers"

// discards tells that the route keeps answers out of the store.
func (v view) discards() bool { return v.server != nil && v.server.Discard }

func tooLarge(n int) error {
	return fmt.Errorf("the result has %d bytes, at most %d are stored; use -done-without-result", n, maxResult)
}

// checkStatus refuses a status that the half would not store.
func (v view) checkStatus(status int) error {
	switch {
	case v.half == keystore.Client && (status >= 200 && status < 300 || status == http.StatusSeeOther):
		return nil
	case v.half == keystore.Client && status >= 400 && status < 500:
		return fmt.Errorf("the status %d is a refusal; use -rejected, after which the next call is a new operation", status)
	case v.half == keystore.Client:
		return fmt.Errorf("the status %d does not tell that it was executed; 200 to 299 and 303 do", status)
	case !definitive(status):
		return fmt.Errorf("the status %d is no final answer, and the server half stores none; it must be 200 to 499, and not 401, 403, 407, 408, 425 or 429", status)
	}
	return nil
}

// definitive tells, as the server half does, whether an answer with this status
// is final.
func definitive(status int) bool {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusProxyAuthRequired,
		http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests:
		return false
	}
	return status >= 200 && status < 500
}

// header is that of a body that comes without one.
func header(body []byte) http.Header {
	switch {
	case len(body) == 0:
		return http.Header{}
	case json.Valid(body):
		return http.Header{"Content-Type": {"application/json"}}
	}
	return http.Header{"Content-Type": {http.DetectContentType(body)}}
}

// readResponse reads a raw response to its last byte.
func readResponse(method string, file []byte) (*http.Response, []byte, error) {
	// curl -i writes HTTP/2 and HTTP/3 so.
	for _, proto := range []string{"HTTP/2", "HTTP/3"} {
		if rest, ok := bytes.CutPrefix(file, []byte(proto+" ")); ok {
			file = append([]byte(proto+".0 "), rest...)
		}
	}
	r := bufio.NewReader(bytes.NewReader(file))
	resp, err := http.ReadResponse(r, &http.Request{Method: method})
	if err != nil {
		return nil, nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, nil, fmt.Errorf("its body: %w; its length must be what the header says", err)
	}
	// An editor's newline at the end of the file is none of the body's.
	if rest, _ := io.ReadAll(r); len(bytes.TrimSpace(rest)) > 0 {
		return nil, nil, fmt.Errorf("%d bytes follow the end of its body; its length must be what the header says", len(rest))
	}
	return resp, body, nil
}

// perExchange are the headers that the server half never stores: they belong to
// one exchange. The tests hold the list against what it stores.
var perExchange = map[string]bool{
	"Connection": true, "Keep-Alive": true, "Te": true, "Trailer": true, "Transfer-Encoding": true, "Upgrade": true,
	"Date": true, "Age": true, "Content-Length": true, "Retry-After": true, "Server-Timing": true,
	"Set-Cookie": true, "Set-Cookie2": true, "Www-Authenticate": true, "Authorization": true, "Authentication-Info": true,
	"Traceparent": true, "Tracestate": true, "Traceresponse": true, "B3": true, "Request-Id": true, "X-Request-Id": true,
	"X-Correlation-Id": true, "X-Trace-Id": true, "X-Amzn-Trace-Id": true, "X-Cloud-Trace-Context": true,
	"Idempotent-Replayed": true,
}

var perExchangePrefixes = []string{"Proxy-", "Ratelimit", "X-Ratelimit", "X-Rate-Limit", "X-B3-", http.TrailerPrefix}

// lasting is what the server half keeps of a header.
func lasting(h http.Header) http.Header {
	kept := http.Header{}
	for name, values := range h {
		drop := perExchange[name]
		for _, p := range perExchangePrefixes {
			drop = drop || strings.HasPrefix(name, p)
		}
		if !drop {
			kept[name] = values
		}
	}
	return kept
}
