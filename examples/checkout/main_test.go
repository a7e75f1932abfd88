//go:build unix

package main

import (
	"context"
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if os.Getenv(storeEnv) != "" {
		main()
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

func Example() {
	if err := play(context.Background(), "", os.Stdout); err != nil {
		fmt.Println(err)
	}
	// Output:
	// paid     killed at reserve:before  before:                       restarted: reserve charge order  ordered: order-17                 ok
	// paid     killed at reserve:lost    before: reserve               restarted: charge order          ordered: order-17                 ok
	// paid     killed at reserve:after   before: reserve               restarted: charge order          ordered: order-17                 ok
	// paid     killed at charge:before   before: reserve               restarted: charge order          ordered: order-17                 ok
	// paid     killed at charge:lost     before: reserve charge        restarted: order                 ordered: order-17                 ok
	// paid     killed at charge:after    before: reserve charge        restarted: order                 ordered: order-17                 ok
	// paid     killed at order:before    before: reserve charge        restarted: order                 ordered: order-17                 ok
	// paid     killed at order:lost      before: reserve charge order  restarted:                       ordered: order-17                 ok
	// paid     killed at order:after     before: reserve charge order  restarted:                       ordered: order-17                 ok
	// declined killed at reserve:before  before:                       restarted: reserve release       refused: the card was declined    ok
	// declined killed at reserve:lost    before: reserve               restarted: release               refused: the card was declined    ok
	// declined killed at reserve:after   before: reserve               restarted: release               refused: the card was declined    ok
	// declined killed at charge:before   before: reserve               restarted: release               refused: the card was declined    ok
	// declined killed at charge:lost     before: reserve               restarted: release               refused: the card was declined    ok
	// declined killed at charge:after    before: reserve               restarted: release               refused: the card was declined    ok
	// declined killed at release:before  before: reserve               restarted: release               refused: the card was declined    ok
	// declined killed at release:lost    before: reserve release       restarted:                       refused: the card was declined    ok
	// declined killed at release:after   before: reserve release       restarted:                       refused: the card was declined    ok
}

func TestUnknownPoint(t *testing.T) {
	if err := play(t.Context(), "nowhere:before", os.Stdout); err == nil {
		t.Error("no error")
	}
}
