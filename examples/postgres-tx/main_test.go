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
	if err := run(context.Background(), os.Getenv("IDEM_TEST_POSTGRES"), os.Stdout); err != nil {
		fmt.Println(err)
	}
	// Output:
	// the reply is lost after the commit: the second attempt gets the stored answer
	//    told: 201, replayed: true, attempts: 2; orders: 1, chairs: 4
	// the connection dies before the commit: nothing is left of it, the second attempt runs
	//    told: 201, replayed: false, attempts: 2; orders: 2, chairs: 3
	// 20 callers of one order at once, on 4 connections: one order, one answer
	//    told: 201; orders: 3, chairs: 2
	// a refusal is an answer too: it is kept, and the stock is as it was
	//    told: 422, replayed: false, attempts: 1; orders: 3, chairs: 2
	//    told: 422, replayed: true, attempts: 1; orders: 3, chairs: 2
}

// A database that can't be reached is an error that says so.
func TestUnreachable(t *testing.T) {
	if err := run(t.Context(), "postgres://127.0.0.1:1/none", os.Stdout); err == nil {
		t.Error("no error")
	}
}
