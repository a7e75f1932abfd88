package server

import (
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/idem-go/idem/internal/stored"
)

// replayedHeader tells on every answer of the key layer whether it comes from
// a record.
const replayedHeader = "Idempotent-Replayed"

// neverStored are the headers that belong to one exchange: to its connection,
// its moment, its caller's credentials, its trace.
var neverStored = map[string]bool{
	"Connection": true, "Keep-Alive": true, "Te": true, "Trailer": true, "Transfer-Encoding": true, "Upgrade": true,
	"Date": true, "Age": true, "Content-Length": true, "Retry-After": true, "Server-Timing": true,
	"Set-Cookie": true, "Set-Cookie2": true, "Www-Authenticate": true, "Authorization": true, "Authentication-Info": true,
	"Traceparent": true, "Tracestate": true, "Traceresponse": true, "B3": true, "Request-Id": true, "X-Request-Id": true,
	"X-Correlation-Id": true, "X-Trace-Id": true, "X-Amzn-Trace-Id": true, "X-Cloud-Trace-Context": true,
	replayedHeader: true,
}

var neverStoredPrefixes = []string{"Proxy-", "Ratelimit", "X-Ratelimit", "X-Rate-Limit", "X-B3-", http.TrailerPrefix}

// storedHeader is what is kept of the answer's header: what the handler has
// added to that of the middleware around it, which will add its own again.
func (rec *recorder) storedHeader() http.Header {
	if rec.keepsAll() { // as of most answers
		return rec.fixed
	}
	kept := http.Header{}
	for name, values := range rec.fixed {
		if outer, ok := rec.outer[name]; ok && slices.Equal(outer, values) {
			continue
		}
		if !perExchange(name) && !namedIn(rec.fixed["Connection"], name) {
			kept[name] = values
		}
	}
	for name := range rec.outer {
		if _, ok := rec.fixed[name]; !ok && !perExchange(name) {
			kept[name] = nil // the handler has taken it out
		}
	}
	if length := rec.fixed["Content-Length"]; rec.head && length != nil {
		// There is no body to count.
		kept["Content-Length"] = length
	}
	return kept
}

// keepsAll tells that storedHeader has nothing to leave out.
func (rec *recorder) keepsAll() bool {
	if len(rec.outer) > 0 {
		return false
	}
	for name := range rec.fixed {
		if perExchange(name) {
			return false
		}
	}
	return true
}

func perExchange(name string) bool {
	name = http.CanonicalHeaderKey(name)
	return neverStored[name] || slices.ContainsFunc(neverStoredPrefixes, func(p string) bool {
		return strings.HasPrefix(name, p)
	})
}

// namedIn tells whether the comma-separated lines name the header.
func namedIn(lines []string, name string) bool {
	for _, line := range lines {
		for token := range strings.SplitSeq(line, ",") {
			if strings.EqualFold(strings.TrimSpace(token), name) {
				return true
			}
		}
	}
	return false
}

// writeReplay answers with a stored answer, a response or the tombstone of a
// refusal.
func (s *Server) writeReplay(w http.ResponseWriter, in *incoming, a stored.Answer) {
	h := w.Header()
	for name, values := range a.Header {
		h[name] = values
	}
	in.replayed[0] = "true"
	h[replayedHeader] = in.replayed[:]
	if a.Kind == stored.Tombstone {
		// The status is the refusal; only its words are lost.
		s.writeProblemAs(w, in.Request, a.Status, codeNotRetained)
		return
	}
	withBody := bodyAllowed(a.Status) && in.Method != http.MethodHead
	if withBody {
		in.length[0] = strconv.Itoa(len(a.Body))
		h["Content-Length"] = in.length[:]
	}
	w.WriteHeader(a.Status)
	if withBody {
		_, _ = w.Write(a.Body) // the client may be gone
	}
}
