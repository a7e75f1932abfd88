package idem

import (
	"math"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestRetryAfter(t *testing.T) {
	const date = "Sun, 06 Nov 1994 08:49:07 GMT"
	h := func(pairs ...string) http.Header {
		h := http.Header{}
		for i := 0; i < len(pairs); i += 2 {
			h.Add(pairs[i], pairs[i+1])
		}
		return h
	}
	for _, tt := range []struct {
		name   string
		header http.Header
		want   time.Duration // 0: none
	}{
		{"none", h(), 0},
		{"seconds", h("Retry-After", "120"), 2 * time.Minute},
		{"leading zero", h("Retry-After", "007"), 7 * time.Second},
		{"zero", h("Retry-After", "0"), 0},
		{"B047 negative", h("Retry-After", "-5"), 0},
		{"B048 junk after it", h("Retry-After", "120junk"), 0},
		{"B048 fraction", h("Retry-After", "1.5"), 0},
		{"B048 empty", h("Retry-After", ""), 0},
		{"B048 blank before it", h("Retry-After", " 5"), 0},
		{"B048 plus", h("Retry-After", "+5"), 0},
		{"B048 list", h("Retry-After", "5,6"), 0},
		{"B048 other digits", h("Retry-After", "٣"), 0},
		{"B048 two lines", h("Retry-After", "5", "Retry-After", "5"), 0},
		{"B048 20 nines", h("Retry-After", strings.Repeat("9", 20)), math.MaxInt64},
		{"B048 2^64+1", h("Retry-After", "18446744073709551617"), math.MaxInt64},
		{"B048 wraps as a Duration", h("Retry-After", "9223372037"), math.MaxInt64},
		{"the longest", h("Retry-After", "9223372036"), 9223372036 * time.Second},
		{"B047 IMF-fixdate", h("Date", date, "Retry-After", "Sun, 06 Nov 1994 08:49:37 GMT"), 30 * time.Second},
		{"B047 RFC 850", h("Date", date, "Retry-After", "Sunday, 06-Nov-94 08:49:37 GMT"), 30 * time.Second},
		{"B047 asctime", h("Date", date, "Retry-After", "Sun Nov  6 08:49:37 1994"), 30 * time.Second},
		{"B047 past date", h("Date", date, "Retry-After", "Sun, 06 Nov 1994 08:49:06 GMT"), 0},
		{"its own date", h("Date", date, "Retry-After", date), 0},
		{"local clock without a Date", h("Retry-After", "Sat, 01 Jan 2000 00:00:05 GMT"), 5 * time.Second},
		{"local clock with a bad Date", h("Date", "now", "Retry-After", "Sat, 01 Jan 2000 00:00:05 GMT"), 5 * time.Second},
		{"no date", h("Retry-After", "tomorrow"), 0},
		{"RFC 3339", h("Retry-After", "2000-01-01T00:00:05Z"), 0},
		{"milliseconds", h("Retry-After-Ms", "1500"), 1500 * time.Millisecond},
		{"milliseconds first", h("Retry-After-Ms", "1500", "Retry-After", "9"), 1500 * time.Millisecond},
		{"bad milliseconds", h("Retry-After-Ms", "1.5", "Retry-After", "9"), 9 * time.Second},
		{"contract's own first", h("X-Wait", "3", "Retry-After-Ms", "1500", "Retry-After", "9"), 3 * time.Second},
		{"contract's own is bad", h("X-Wait", "-3", "Retry-After", "9"), 9 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { // begins at 2000-01-01 00:00:00 UTC
				if got, ok := retryAfter(tt.header, "X-Wait"); got != tt.want && ok || ok != (tt.want > 0) {
					t.Errorf("retryAfter = %v, %v; want %v", got, ok, tt.want)
				}
			})
		})
	}
}

func FuzzRetryAfter(f *testing.F) {
	for _, seed := range []string{"120", "-5", "1.5", " 5", "5,6", "99999999999999999999", "9223372037",
		"Sun, 06 Nov 1994 08:49:37 GMT", "Sunday, 06-Nov-94 08:49:37 GMT", "Sun Nov  6 08:49:37 1994"} {
		f.Add(seed, "Sun, 06 Nov 1994 08:49:07 GMT")
	}
	f.Fuzz(func(t *testing.T, value, date string) {
		h := http.Header{"Retry-After": {value}, "Date": {date}}
		d, ok := retryAfter(h, "")
		if ok && d <= 0 {
			t.Errorf("%q: accepted as %v", value, d)
		}
		digitsOnly := value != "" && strings.Trim(value, "0123456789") == ""
		_, err := http.ParseTime(value)
		if ok && !digitsOnly && err != nil {
			t.Errorf("%q is neither digits nor a date, yet means %v", value, d)
		}
		if digitsOnly && !ok && strings.Trim(value, "0") != "" {
			t.Errorf("%q: digits are ignored", value)
		}
	})
}
