package idem

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path"
	"strings"
)

// judgeExchange says what one exchange proves. keyed tells whether the request
// carried a key that the server honours.
func judgeExchange(s sent, c Contract, keyed bool) verdict {
	var v verdict
	if s.err != nil {
		v = judgeFailure(s)
		v.err = s.err
	} else {
		v = judgeReply(s.reply, c, keyed)
		v.value, v.status = s.reply, s.reply.resp.StatusCode
		if v.outcome != OutcomeExecuted || v.cause != nil {
			v.err = s.reply.failure()
		}
	}
	v.sends, v.resent = s.gotConn, s.gotConn > 1
	return v
}

// judgeFailure says what an exchange without a whole reply proves. Whether the
// request was sent, only the trace tells: errors of all kinds come back after
// net/http has sent a request again by itself.
func judgeFailure(s sent) verdict {
	neverSent := s.getConn > 0 && s.gotConn == 0
	switch {
	case neverSent && permanent(s.err):
		return verdict{outcome: OutcomeRejected}
	case neverSent:
		return verdict{outcome: OutcomeNotExecuted, retry: !proxyRefused(s.err)}
	}
	return verdict{outcome: OutcomeUnknown, retry: true, atOnce: errors.Is(s.err, errResend)}
}

// permanent tells that a connection can't be made, however often it is tried.
func permanent(err error) bool {
	var dns *net.DNSError
	if errors.As(err, &dns) && dns.IsNotFound {
		return true
	}
	var (
		verification *tls.CertificateVerificationError
		unknownCA    x509.UnknownAuthorityError
		hostname     x509.HostnameError
		invalid      x509.CertificateInvalidError
		record       tls.RecordHeaderError
		op           *net.OpError
	)
	return errors.As(err, &verification) || errors.As(err, &unknownCA) || errors.As(err, &hostname) ||
		errors.As(err, &invalid) ||
		// A server without TLS; only http.Client makes this http.ErrSchemeMismatch.
		errors.As(err, &record) && string(record.RecordHeader[:]) == "HTTP/" ||
		// crypto/tls reports the peer's alert so.
		errors.As(err, &op) && op.Op == "remote error"
}

// proxyRefused recognises a proxy's 407 to CONNECT, of which net/http returns
// nothing but the status text.
func proxyRefused(err error) bool {
	return err.Error() == http.StatusText(http.StatusProxyAuthRequired)
}

// judgeReply says what a whole reply proves. The contract's own answers come
// first, then the replay marker, then the table of statuses; the server's hint
// decides about another attempt, never about the outcome.
func judgeReply(r *reply, c Contract, keyed bool) verdict {
	status, h := r.resp.StatusCode, r.resp.Header
	marker := replayMarker(h, c.ReplayHeader)
	v, ok := verdict{}, false
	if keyed {
		v, ok = judgeAnswers(c.Answers, status, r)
	}
	switch {
	case ok:
	case status == http.StatusTemporaryRedirect || status == http.StatusPermanentRedirect:
		v = judgeHop(r) // marked as a replay or not
	case keyed && marker == "true":
		v = judgeReplay(status)
	default:
		v = judgeStatus(status, keyed)
	}
	v.replayed = marker == "true"
	// A 5xx may come from whoever stands in front of the server.
	v.keyed = keyed && status < 500 && (marker != "" || c.StoresErrors)
	if status >= 300 {
		v.wait, _ = retryAfter(h, c.RetryAfterHeader)
	}
	if v.outcome != OutcomeExecuted && v.cause == nil && !v.redirect && !v.replayed {
		switch retryHint(h, c.RetryHeader) {
		case "true":
			v.retry = true
		case "false":
			v.retry = false
		}
	}
	return v
}

// judgeAnswers looks a reply up in the contract.
func judgeAnswers(answers []Answer, status int, r *reply) (verdict, bool) {
	var codes []string
	for _, a := range answers {
		if a.Status != 0 && a.Status != status {
			continue
		}
		if a.Code != "" {
			if codes == nil {
				codes = append(bodyCodes(r.text()), "")
			}
			if !contains(codes, a.Code) {
				continue
			}
		}
		switch a.Means {
		case MeansExecuted:
			return verdict{outcome: OutcomeExecuted}, true
		case MeansNotRetained:
			return verdict{outcome: OutcomeExecuted, cause: ErrResultNotRetained}, true
		case MeansNotExecuted:
			return verdict{outcome: OutcomeNotExecuted, retry: true}, true
		case MeansRejected:
			return verdict{outcome: OutcomeRejected}, true
		case MeansInFlight:
			return verdict{outcome: OutcomeInFlight, retry: true}, true
		case MeansMismatch:
			return verdict{outcome: OutcomeUnknown, cause: ErrPayloadMismatch}, true
		}
		return verdict{outcome: OutcomeUnknown}, true
	}
	return verdict{}, false
}

func contains(codes []string, code string) bool {
	for _, c := range codes {
		if c == code || path.Base(c) == code {
			return true
		}
	}
	return false
}

// bodyCodes finds the error codes in a JSON body, where servers put them: in
// members of the object, of its error, of the first few of its errors and
// details, and of the extensions of these.
func bodyCodes(body []byte) (codes []string) {
	var top map[string]json.RawMessage
	if json.Unmarshal(body, &top) != nil {
		return nil
	}
	objects := []map[string]json.RawMessage{top}
	var inner map[string]json.RawMessage
	if json.Unmarshal(top["error"], &inner) == nil && inner != nil {
		objects = append(objects, inner)
	}
	for _, object := range objects[:len(objects):len(objects)] {
		for _, list := range []string{"errors", "details"} {
			var items []map[string]json.RawMessage
			if json.Unmarshal(object[list], &items) == nil {
				objects = append(objects, items[:min(len(items), maxErrors)]...)
			}
		}
	}
	for _, object := range objects[:len(objects):len(objects)] {
		var extensions map[string]json.RawMessage
		if json.Unmarshal(object["extensions"], &extensions) == nil && extensions != nil {
			objects = append(objects, extensions)
		}
	}
	for _, object := range objects {
		for _, name := range codeMembers {
			var text string
			var number json.Number
			switch {
			case json.Unmarshal(object[name], &text) == nil && text != "":
				codes = append(codes, text)
			case json.Unmarshal(object[name], &number) == nil && number != "":
				codes = append(codes, string(number))
			}
		}
	}
	return codes
}

// codeMembers are the names under which servers give error codes.
var codeMembers = []string{"code", "type", "error", "errorCode", "error_code", "errorType", "errorClass", "reason", "reasonCode", "issue", "name"}

// maxErrors is how many of a reply's errors are looked at.
const maxErrors = 8

// judgeReplay says what a replayed reply proves. To try again would bring the
// same reply.
func judgeReplay(status int) verdict {
	switch {
	case status >= 200 && status < 400:
		return verdict{outcome: OutcomeExecuted}
	case status >= 400 && status < 500:
		return verdict{outcome: OutcomeRejected}
	}
	return verdict{outcome: OutcomeUnknown}
}

// judgeStatus is the table of statuses.
func judgeStatus(status int, keyed bool) verdict {
	switch status {
	case http.StatusMovedPermanently, http.StatusFound:
		return verdict{outcome: OutcomeUnknown, redirect: true}
	case http.StatusSwitchingProtocols, http.StatusSeeOther:
		return verdict{outcome: OutcomeExecuted}
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusProxyAuthRequired:
		// A guard, before any work. The key stays usable.
		return verdict{outcome: OutcomeNotExecuted}
	case http.StatusMisdirectedRequest, http.StatusTooManyRequests:
		return verdict{outcome: OutcomeNotExecuted, retry: true}
	case http.StatusTooEarly:
		if keyed {
			return verdict{outcome: OutcomeInFlight, retry: true}
		}
		return verdict{outcome: OutcomeNotExecuted, retry: true}
	case http.StatusConflict:
		if keyed {
			return verdict{outcome: OutcomeInFlight, retry: true, bare: true}
		}
	case http.StatusRequestTimeout:
		return verdict{outcome: OutcomeUnknown, retry: true}
	case http.StatusNotImplemented, http.StatusHTTPVersionNotSupported, http.StatusNetworkAuthenticationRequired:
		return verdict{outcome: OutcomeRejected}
	}
	switch {
	case status >= 200 && status < 300:
		return verdict{outcome: OutcomeExecuted}
	case status >= 400 && status < 500:
		return verdict{outcome: OutcomeRejected}
	case status >= 300 && status < 400 && !keyed: // 304, for one
		return verdict{outcome: OutcomeExecuted}
	}
	return verdict{outcome: OutcomeUnknown, retry: true}
}

// judgeHop says what becomes of a 307 or 308: http.Client sends the same
// request again, to the same origin. Neither key nor body go to another one.
func judgeHop(r *reply) verdict {
	target, err := r.resp.Location()
	switch {
	case r.from == nil:
		return verdict{outcome: OutcomeUnknown, redirect: true}
	case err != nil:
		return verdict{outcome: OutcomeUnknown, retry: true}
	}
	if from, to := originOf(r.from), originOf(r.from.ResolveReference(target)); to != from {
		return verdict{outcome: OutcomeUnknown, cause: fmt.Errorf("%w: from %s to %s", ErrCrossOrigin, from, to)}
	}
	return verdict{outcome: OutcomeUnknown, redirect: true, hop: true}
}

// replayMarker is the value of the replay header: true, false or nothing.
func replayMarker(h http.Header, own string) string {
	for _, name := range []string{own, "Idempotent-Replayed", "Idempotency-Replayed"} {
		if v := strings.ToLower(h.Get(name)); v == "true" || v == "false" {
			return v
		}
	}
	return ""
}

// retryHint is the value of the retry header: true, false or nothing.
func retryHint(h http.Header, own string) string {
	for _, name := range []string{own, "Stripe-Should-Retry", "X-Should-Retry"} {
		if v := strings.ToLower(h.Get(name)); v == "true" || v == "false" {
			return v
		}
	}
	return ""
}
