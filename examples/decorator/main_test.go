package main

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func Example() {
	if err := run(os.Stdout); err != nil {
		fmt.Println(err)
	}
	// Output:
	// order-17 {ch_000001} rejected: false
	// order-17 {ch_000001} rejected: false
	// order-18 {} rejected: true
	// charges:
	// 1  order-17  1200 EUR
}
