package stored_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/idem-go/idem/internal/stored"
	"github.com/idem-go/idem/keystore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var answers = []stored.Answer{
	{Kind: stored.Value, Body: []byte(`{"a":1}`)},
	{Kind: stored.Value, Body: []byte{}},
	{Kind: stored.Response, Status: 201, Header: http.Header{"Location": {"/x"}, "Vary": {"A", "B"}, "Content-Type": nil}, Body: []byte("\x00\xff")},
	{Kind: stored.Response, Status: 200, Header: http.Header{"X-\xff": {"\x00\xfe", "", "é"}, "Long": {strings.Repeat("x", 200)}}, Body: bytes.Repeat([]byte("y"), 300)},
	{Kind: stored.Tombstone, Status: 200, Header: http.Header{"Location": {"/x"}}, Reason: "too large", Body: []byte{}},
	{Kind: stored.Refusal, Reason: "card declined", Body: []byte{}},
}

func TestRoundTrip(t *testing.T) {
	for _, a := range answers {
		b := stored.Encode(a)
		if len(b) != cap(b) {
			t.Errorf("%d bytes in a buffer of %d", len(b), cap(b))
		}
		got, err := stored.Decode(b)
		if err != nil || !reflect.DeepEqual(got, a) {
			t.Errorf("got %+v, %v; want %+v", got, err, a)
		}
	}
}

// B082, B094: a record that is cut, zeroed or damaged anywhere is told apart
// from an answer.
func TestDamage(t *testing.T) {
	for _, a := range answers {
		whole := stored.Encode(a)
		for n := range whole {
			if _, err := stored.Decode(whole[:n]); !errors.Is(err, keystore.ErrCorrupt) {
				t.Errorf("the first %d of %d bytes: %v", n, len(whole), err)
			}
		}
		for i := range whole {
			for bit := range 8 {
				b := bytes.Clone(whole)
				b[i] ^= 1 << bit
				if _, err := stored.Decode(b); !errors.Is(err, keystore.ErrCorrupt) && !(i == 0 && errors.Is(err, keystore.ErrFormat)) {
					t.Errorf("bit %d of byte %d flipped: %v", bit, i, err)
				}
			}
		}
		if _, err := stored.Decode(make([]byte, len(whole))); !errors.Is(err, keystore.ErrCorrupt) {
			t.Errorf("zeros: %v", err)
		}
		if _, err := stored.Decode(append(whole, 0)); !errors.Is(err, keystore.ErrCorrupt) {
			t.Errorf("a byte too many: %v", err)
		}
	}
}

func TestNewerVersion(t *testing.T) {
	b := stored.Encode(answers[0])
	b[0]++
	if _, err := stored.Decode(b); !errors.Is(err, keystore.ErrFormat) {
		t.Error(err)
	}
}

// sealed puts a right version and checksum in front of what follows them, so
// that a fuzzer gets past these.
func sealed(rest []byte) []byte {
	b := append([]byte{2, 0, 0, 0, 0}, rest...)
	binary.BigEndian.PutUint32(b[1:], crc32.ChecksumIEEE(rest))
	return b
}

// What has a right checksum, but is nothing that Encode writes.
func TestNonsense(t *testing.T) {
	for name, rest := range map[string][]byte{
		"kind 0":           {0, 5, 0, 0, 0, 0, 0},
		"kind 5":           {5, 5, 0, 0, 0, 0, 0},
		"no head":          {1},
		"empty head":       {1, 0},
		"short head":       {1, 6, 0, 0, 0, 0, 0},
		"cut head":         {1, 4, 0, 0, 0, 0},
		"long head":        {1, 6, 0, 0, 0, 0, 0, 0},
		"endless length":   {1, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255},
		"endless status":   {1, 14, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1, 0, 0, 0, 0},
		"long reason":      {1, 5, 0, 5, 0, 0, 0},
		"missing names":    {1, 5, 0, 0, 0, 1, 0},
		"many names":       {1, 7, 0, 0, 0, 127, 0, 0, 0},
		"missing values":   {1, 7, 0, 0, 0, 1, 1, 0, 0},
		"too many values":  {1, 9, 0, 0, 0, 1, 1, 0, 2, 0, 0},
		"uncounted values": {1, 8, 0, 0, 0, 1, 0, 0, 1, 0},
	} {
		if _, err := stored.Decode(sealed(rest)); !errors.Is(err, keystore.ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if a, err := stored.Decode(sealed([]byte{1, 5, 0, 0, 0, 0, 0, 'x'})); err != nil || string(a.Body) != "x" {
		t.Errorf("%+v, %v", a, err)
	}
	b := stored.Encode(answers[0])
	b[0] = 1 // of which there were never any outside of tests
	if _, err := stored.Decode(b); !errors.Is(err, keystore.ErrCorrupt) {
		t.Error(err)
	}
}

// FuzzDecode: whatever is decoded without an error is encoded to the same
// answer, and nothing panics.
func FuzzDecode(f *testing.F) {
	for _, a := range answers {
		f.Add(stored.Encode(a), true)
		f.Add(stored.Encode(a)[5:], false)
	}
	f.Fuzz(func(t *testing.T, b []byte, asIs bool) {
		if !asIs {
			b = sealed(b)
		}
		a, err := stored.Decode(b)
		if err != nil {
			if !errors.Is(err, keystore.ErrCorrupt) && !errors.Is(err, keystore.ErrFormat) {
				t.Fatalf("an error of no kind: %v", err)
			}
			return
		}
		again, err := stored.Decode(stored.Encode(a))
		if err != nil || !reflect.DeepEqual(again, a) {
			t.Fatalf("%+v came back as %+v, %v", a, again, err)
		}
	})
}
