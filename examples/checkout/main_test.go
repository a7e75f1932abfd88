package main

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if status, ok := role(); ok {
		os.Exit(status)
	}
	goleak.VerifyTestMain(m)
}

// A step whose key is lost on the way is taken twice, and that is noticed.
func TestBreak(t *testing.T) {
	var out strings.Builder
	if status := run([]string{"-break", "-kill=charge:effect"}, &out); status != 1 || !strings.Contains(out.String(), "2 charge") {
		t.Errorf("exit status %d:\n%s", status, &out)
	}
}

func TestFlags(t *testing.T) {
	for _, arg := range []string{"-kill=nosuch", "-nosuch", "point"} {
		var out strings.Builder
		if status := run([]string{arg}, &out); status != 2 || !strings.Contains(out.String(), strings.TrimLeft(arg, "-")[:5]) {
			t.Errorf("%s: exit status %d: %s", arg, status, &out)
		}
	}
}

func Example() {
	fmt.Println("exit status", run(nil, os.Stdout))
	// Output:
	// reserve:before    then: nothing                         at the end: 1 reserve, 1 charge, 1 order
	// reserve:effect    then: 1 reserve                       at the end: 1 reserve, 1 charge, 1 order
	// reserve:after     then: 1 reserve                       at the end: 1 reserve, 1 charge, 1 order
	// charge:before     then: 1 reserve                       at the end: 1 reserve, 1 charge, 1 order
	// charge:effect     then: 1 reserve, 1 charge             at the end: 1 reserve, 1 charge, 1 order
	// charge:after      then: 1 reserve, 1 charge             at the end: 1 reserve, 1 charge, 1 order
	// order:before      then: 1 reserve, 1 charge             at the end: 1 reserve, 1 charge, 1 order
	// order:effect      then: 1 reserve, 1 charge, 1 order    at the end: 1 reserve, 1 charge, 1 order
	// order:after       then: 1 reserve, 1 charge, 1 order    at the end: 1 reserve, 1 charge, 1 order
	// flow:after        then: 1 reserve, 1 charge, 1 order    at the end: 1 reserve, 1 charge, 1 order
	// release:before    then: 1 reserve                       at the end: 1 reserve, 1 release
	// release:effect    then: 1 reserve, 1 release            at the end: 1 reserve, 1 release
	// release:after     then: 1 reserve, 1 release            at the end: 1 reserve, 1 release
	// refund:before     then: 1 reserve, 1 charge             at the end: 1 reserve, 1 charge, 1 refund, 1 release
	// refund:effect     then: 1 reserve, 1 charge, 1 refund   at the end: 1 reserve, 1 charge, 1 refund, 1 release
	// refund:after      then: 1 reserve, 1 charge, 1 refund   at the end: 1 reserve, 1 charge, 1 refund, 1 release
	// services:reserve  then: nothing                         at the end: 1 reserve, 1 charge, 1 order
	// services:charge   then: 1 reserve, 1 charge             at the end: 1 reserve, 1 charge, 1 order
	// services:order    then: 1 reserve, 1 charge             at the end: 1 reserve, 1 charge, 1 order
	// services:refund   then: 1 reserve, 1 charge, 1 refund   at the end: 1 reserve, 1 charge, 1 refund, 1 release
	// exit status 0
}
