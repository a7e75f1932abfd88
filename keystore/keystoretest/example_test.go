package keystoretest_test

import (
	"testing"

	"github.com/idem-go/idem/keystore"
	"github.com/idem-go/idem/keystore/keystoretest"
	"github.com/idem-go/idem/keystore/memstore"
)

// In the tests of a store of your own, replace memstore by it.
func newStore(tb testing.TB) keystore.Store {
	store, err := memstore.New(memstore.Config{})
	if err != nil {
		tb.Fatal(err)
	}
	return store
}

func ExampleRun() {
	_ = func(t *testing.T) { // func TestMyStore(t *testing.T)
		keystoretest.Run(t, func(t *testing.T) keystore.Store { return newStore(t) })
	}
}

func ExampleBench() {
	_ = func(b *testing.B) { // func BenchmarkMyStore(b *testing.B)
		keystoretest.Bench(b, func(b *testing.B) keystore.Store { return newStore(b) })
	}
}
