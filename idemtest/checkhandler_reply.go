package idemtest

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
)

// reply is what came of an attempt.
type reply struct {
	status int
	header http.Header
	body   []byte
	// broken is what the handler panicked with.
	broken any
	// silent: the handler has not returned.
	silent bool
}

func replyOf(rec *httptest.ResponseRecorder, broken any) reply {
	if broken != nil {
		return reply{broken: broken} // net/http cuts the connection
	}
	res := rec.Result()
	body, _ := io.ReadAll(res.Body) // a buffer
	return reply{status: res.StatusCode, header: res.Header, body: body}
}

// good tells whether the answer says that the intent was carried out.
func (r reply) good() bool { return r.status >= 200 && r.status < 400 }

// refused tells whether the answer is a definite refusal.
func (r reply) refused() bool { return r.status >= 400 && r.status < 500 && !r.busy() }

// busy tells whether the client is asked to come again.
func (r reply) busy() bool {
	switch r.status {
	case http.StatusConflict, http.StatusTooEarly, http.StatusTooManyRequests, http.StatusServiceUnavailable:
		return r.header.Get("Retry-After") != ""
	}
	return false
}

// String is the answer in few words.
func (r reply) String() string {
	switch {
	case r.silent:
		return "no answer"
	case r.broken != nil:
		return fmt.Sprintf("a panic (%v)", r.broken)
	case len(r.body) == 0:
		return fmt.Sprint(r.status, " without a body")
	}
	return fmt.Sprint(r.status, " ", quoted(r.body))
}

// quoted is the beginning of a body.
func quoted(body []byte) string {
	const most = 80
	if len(body) <= most {
		return strconv.Quote(string(body))
	}
	return fmt.Sprintf("%q… (%d bytes)", body[:most], len(body))
}

// diff says what of the answer is missing or different in a retry's; empty
// means nothing.
func (r reply) diff(again reply) string {
	switch {
	case r.status != again.status || again.broken != nil || again.silent:
		return "the answer is " + again.String()
	case !bytes.Equal(r.body, again.body):
		return "the body is " + quoted(again.body) + ", not " + quoted(r.body)
	}
	for _, name := range headerNames(r.header) {
		want, got := r.header[name], again.header[name]
		switch {
		case perExchange(name) || slices.Equal(want, got):
		case got == nil:
			return fmt.Sprintf("the header %s: %s is missing", name, strings.Join(want, ", "))
		default:
			return fmt.Sprintf("the header %s is %s, not %s", name, strings.Join(got, ", "), strings.Join(want, ", "))
		}
	}
	return ""
}

// leak says what of the answer to one intent is in a reply that must not have
// it; empty means nothing. What is in the answer to a third intent as well
// belongs to none of them.
func (r reply) leak(third, other reply) string {
	if len(r.body) > 0 && !bytes.Equal(r.body, third.body) && bytes.Contains(other.body, r.body) {
		return "the body " + quoted(other.body)
	}
	for _, name := range headerNames(r.header) {
		value := r.header.Get(name)
		if value != "" && !perExchange(name) && value != third.header.Get(name) && value == other.header.Get(name) {
			return "the header " + name + ": " + value
		}
	}
	return ""
}

func headerNames(h http.Header) []string {
	var names []string
	for name := range h {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// exchangeHeaders belong to one exchange, not to the answer. Content-Length
// goes with the body, which is compared.
var exchangeHeaders = []string{
	"Age", "Connection", "Content-Length", "Date", "Idempotent-Replayed", "Keep-Alive", "Proxy-Authenticate", "Retry-After",
	"Server-Timing", "Set-Cookie", "Trailer", "Transfer-Encoding", "Www-Authenticate",
	"Request-Id", "X-Request-Id", "X-Correlation-Id", "X-Trace-Id", "X-Amzn-Trace-Id", "X-Cloud-Trace-Context",
	"Traceparent", "Tracestate", "Traceresponse", "B3",
}

var exchangePrefixes = []string{"Ratelimit", "X-Ratelimit", "X-Rate-Limit", "X-B3-", http.TrailerPrefix}

func perExchange(name string) bool {
	return slices.Contains(exchangeHeaders, name) || slices.ContainsFunc(exchangePrefixes, func(p string) bool {
		return strings.HasPrefix(name, p)
	})
}
