package memstore

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/idem-go/idem/keystore"
	"github.com/idem-go/idem/keystore/keystoretest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestContract(t *testing.T) {
	keystoretest.Run(t, func(t *testing.T) keystore.Store { return newStore(t, Config{}) })
}

func BenchmarkStore(b *testing.B) {
	keystoretest.Bench(b, func(b *testing.B) keystore.Store { return newStore(b, Config{}) })
}

func newStore(tb testing.TB, cfg Config) *Store {
	tb.Helper()
	s, err := New(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	return s
}
