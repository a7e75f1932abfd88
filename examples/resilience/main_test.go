package main

import (
	"context"
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func Example() {
	if err := run(context.Background(), os.Stdout); err != nil {
		fmt.Println(err)
	}
	// Output:
	// five callers at once, and one later: one validation, one request
	//    replayed, validated 1, requests 1 and 0, charges 1 and 0
	// an invalid payment: refused before any breaker or provider
	//    rejected, validated 1, requests 0 and 0, charges 0 and 0
	// the first provider can't be reached: definitely not charged, so the second one is asked
	//    executed, validated 1, requests 1 and 1, charges 0 and 1
	// the first provider's replies are lost: it may have charged, so the second one is not asked
	//    unknown, validated 3, requests 2 and 0, charges 1 and 0
	// once more, while the breaker is open: that this attempt sent nothing proves nothing of the others
	//    unknown, validated 1, requests 0 and 0, charges 0 and 0
	// later, when it is back: the same key, the stored charge
	//    executed, validated 1, requests 1 and 0, charges 0 and 0
}
