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
	// 201 Created: executed, source replayed, 2 attempts
	// 201 Created: executed, source replayed, 0 attempts
	// charges:
	// 1  order-17  1200 EUR
}
