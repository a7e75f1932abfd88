package idem_test

import (
	"bytes"
	"crypto/sha256"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/idem-go/idem"
)

// B002, B011: 8 MiB are refused before they were read, twice, and then taken:
// every attempt has the same bytes, the key is one, and the connection that was
// cut off in the middle of a body serves nobody else.
func TestWireLargeBodyRefusedUnread(t *testing.T) {
	body := make([]byte, 8<<20)
	rand.NewChaCha8([32]byte{1}).Read(body)
	for _, expect := range []bool{false, true} {
		var mu sync.Mutex
		var keys []string
		var got [][32]byte
		ts := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			keys = append(keys, r.Header.Get("Idempotency-Key"))
			n := len(keys)
			mu.Unlock()
			if n < 3 {
				w.WriteHeader(http.StatusServiceUnavailable)
				return
			}
			sum := sha256.New()
			if n, err := io.Copy(sum, r.Body); err != nil || n != int64(len(body)) || r.ContentLength != n {
				t.Errorf("read %d bytes of %d, %v", n, r.ContentLength, err)
			}
			mu.Lock()
			defer mu.Unlock()
			got = append(got, [32]byte(sum.Sum(nil)))
		}))
		w := wireClient(t, idem.Config{Policy: wirePolicy}, wireBase(t))
		for range 2 {
			mu.Lock()
			keys = nil
			mu.Unlock()
			req, err := http.NewRequest("POST", ts.URL, io.NopCloser(bytes.NewReader(body))) // neither length nor GetBody
			if err != nil {
				t.Fatal(err)
			}
			if expect {
				req.Header.Set("Expect", "100-continue")
			}
			if r := w.do(t, req); r.err != nil {
				t.Fatal(r.err)
			}
			if len(keys) != 3 || keys[0] == "" || keys[0] != keys[1] || keys[1] != keys[2] {
				t.Errorf("keys %q", keys)
			}
		}
		for _, sum := range got {
			if sum != sha256.Sum256(body) {
				t.Error("another body")
			}
		}
		if len(got) != 2 {
			t.Errorf("%d bodies arrived", len(got))
		}
		ts.Close()
	}
}
