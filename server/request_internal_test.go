package server

import (
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/iotest"
)

// The short way to a request's path leads where the long one does.
func TestTarget(t *testing.T) {
	for _, uri := range []string{
		"", "*", "/", "/charges", "/charges?a=b", "/a%2Fb", "/a b", "/%41", "//host/p", "/a#b", "/é", "/a;b", "/a?b?c", "/?", "/%zz",
		"http://host/p?q", "host:80", "/a\x00b", "/a:b",
	} {
		u, err := url.ParseRequestURI(uri)
		if err != nil {
			u = &url.URL{Path: uri}
		}
		for _, path := range []string{u.Path, "/other", strings.TrimPrefix(u.Path, "/")} {
			r := &http.Request{RequestURI: uri, URL: &url.URL{Path: path, RawPath: u.RawPath}}
			want := r.URL.EscapedPath()
			if err == nil {
				want = u.EscapedPath()
			}
			if got := target(r); got != want {
				t.Errorf("%q with the path %q: %q, want %q", uri, path, got, want)
			}
		}
	}
}

// What was announced says nothing of what comes.
func TestReadAll(t *testing.T) {
	for _, n := range []int{0, 1, 511, 512, 513, 64 << 10, 200_000} {
		for _, announced := range []int64{-1, 0, 1, int64(n), 512, 1 << 40} {
			for name, wrap := range map[string]func(io.Reader) io.Reader{
				"as it is": func(r io.Reader) io.Reader { return r }, "halves": iotest.HalfReader, "data and EOF": iotest.DataErrReader,
			} {
				body := strings.Repeat("x", n)
				got, err := readAll(wrap(strings.NewReader(body)), announced, 200_000)
				if err != nil || string(got) != body || got == nil {
					t.Errorf("%s, %d bytes, announced %d: %d, %v", name, n, announced, len(got), err)
				}
				var tooLarge *http.MaxBytesError
				if _, err := readAll(wrap(strings.NewReader(body)), announced, int64(n)-1); !errors.As(err, &tooLarge) {
					t.Errorf("%s, %d bytes, announced %d, over the limit: %v", name, n, announced, err)
				}
			}
		}
	}
	if _, err := readAll(iotest.ErrReader(io.ErrUnexpectedEOF), 3, 9); err != io.ErrUnexpectedEOF {
		t.Error(err)
	}
}
