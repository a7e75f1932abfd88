package idem

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

// Whatever is said of the size, what is there is read, up to the bound.
func TestReadUpTo(t *testing.T) {
	broken := errors.New("broken")
	for _, length := range []int{0, 1, 10, 64<<10 - 1, 64 << 10, 64<<10 + 1, 200 << 10} {
		text := strings.Repeat("abcdefghij", length/10+1)[:length]
		for _, size := range []int64{-1, 0, 1, int64(length) - 1, int64(length), int64(length) + 1, 300 << 10, 1 << 40} {
			for _, n := range []int64{1, 10, int64(length) + 1, 1 << 20} {
				want := text[:min(n, int64(length))]
				for _, r := range []io.Reader{strings.NewReader(text), iotest.HalfReader(strings.NewReader(text)), iotest.DataErrReader(strings.NewReader(text))} {
					if got, err := readUpTo(r, n, size); string(got) != want || err != nil {
						t.Fatalf("%d of %d bytes, said to be %d: %d, %v", n, length, size, len(got), err)
					}
				}
				if n > int64(length) {
					r := io.MultiReader(strings.NewReader(text), iotest.ErrReader(broken))
					if got, err := readUpTo(r, n, size); string(got) != want || !errors.Is(err, broken) {
						t.Fatalf("%d bytes and an error, said to be %d: %d, %v", length, size, len(got), err)
					}
				}
			}
		}
	}
}
