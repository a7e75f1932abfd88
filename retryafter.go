package idem

import (
	"math"
	"net/http"
	"strings"
	"time"
)

// retryAfter reads how long a reply asks to wait before another attempt: the
// contract's own header, Retry-After-Ms, then Retry-After (RFC 9110 10.2.3).
// A value that is not exactly of its form, doubled, zero, or in the past is as
// good as none: our own backoff is never replaced by no wait at all.
func retryAfter(h http.Header, own string) (time.Duration, bool) {
	if own != "" {
		if d, ok := digits(h, own, time.Second); ok {
			return d, true
		}
	}
	if d, ok := digits(h, "Retry-After-Ms", time.Millisecond); ok {
		return d, true
	}
	if d, ok := digits(h, "Retry-After", time.Second); ok {
		return d, true
	}
	return httpDate(h)
}

// digits reads a header of digits only, saturating.
func digits(h http.Header, name string, unit time.Duration) (time.Duration, bool) {
	v, ok := single(h, name)
	if !ok || v == "" {
		return 0, false
	}
	var n int64
	for _, c := range []byte(v) {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = min(n, math.MaxInt64/10-9)*10 + int64(c-'0')
	}
	if n == 0 {
		return 0, false
	}
	if n > math.MaxInt64/int64(unit) {
		return math.MaxInt64, true
	}
	return time.Duration(n) * unit, true
}

// httpDate reads a Retry-After that is a date. It is compared with the reply's
// own Date: the clocks of the two machines need not agree.
func httpDate(h http.Header) (time.Duration, bool) {
	v, ok := single(h, "Retry-After")
	// The lenient asctime layout would read digits where it expects blanks.
	if !ok || !strings.HasSuffix(v, "GMT") && !strings.Contains(v, ":") {
		return 0, false
	}
	at, err := http.ParseTime(v)
	if err != nil {
		return 0, false
	}
	now := time.Now()
	if sent, ok := single(h, "Date"); ok {
		if d, err := http.ParseTime(sent); err == nil {
			now = d
		}
	}
	wait := at.Sub(now)
	return wait, wait > 0
}

// single returns the value of a header that has exactly one line.
func single(h http.Header, name string) (string, bool) {
	v := h.Values(name)
	if len(v) != 1 {
		return "", false
	}
	return v[0], true
}
