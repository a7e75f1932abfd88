// Command checkout shows a flow of three steps at three services that survives
// a kill at any point: reserve the stock, charge the card, create the order.
// It needs no set-up:
//
//	go run ./examples/checkout
//	go run ./examples/checkout -kill=charge:effect   # one point
//	go run ./examples/checkout -kill=services        # those that kill the services
//	go run ./examples/checkout -break                # steps without their keys: fails
//
// At each point a process is killed (SIGKILL) and started again. A line tells
// the point, what the ledgers held then, and what they hold at the end; they
// count, and know nothing of keys. The exit status is 1 if a step was taken
// twice or not at all. What you would copy is in flow.go and services.go.
//
// # What one key covers
//
// One key names one step. The flow is an intent of its own, whose key names no
// request: each step goes out under a child of it, so that a second run of the
// flow finds the same steps. An attempt of the flow runs all of them, in their
// order, and counts as one, however many steps it took; those that were taken
// are replayed, from the flow's store or by the service.
//
// That keeps a step from happening twice, and makes a flow finish that was
// begun. It does not make the flow atomic: between two steps others see the
// stock reserved and no order. Nor does it take anything back. If a step is
// refused after others were taken, taking them back are steps as well, with
// names of their own: "refund", "release". They are taken before the flow
// ends, so that a kill in between leaves it unresolved, and the next run finds
// the same refusal and takes the rest. This needs services that keep their
// refusals under the key, as the server half does; with another one the flow
// has to keep the refusal itself. The refusal is the flow's result, and is
// replayed; a checkout with another card is another intent.
//
// The flow goes on when somebody calls it again. For those who do not come back,
// call idem.Resume on a timer.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
)

func main() {
	if status, ok := role(); ok {
		os.Exit(status)
	}
	os.Exit(run(os.Args[1:], os.Stdout))
}

// atOnce is how many points are played at a time: most of it is waiting for
// leases.
const atOnce = 4

// declined is a card that the payment service refuses.
const declined = "declined"

// The orders that are checked out, by how it ends.
var (
	good          = Order{ID: "order-1", Card: "4242", Address: "1 High Street"}
	cardDeclined  = Order{ID: "order-2", Card: declined, Address: "1 High Street"}
	undeliverable = Order{ID: "order-3", Card: "4242"}
)

// point is where a process is killed: before a step is sent, between its effect
// and its answer, or after its answer. In services:NAME it is that of the
// services, elsewhere the flow's.
type point struct {
	name  string
	order Order
	want  string // the ledgers, at the end
}

const (
	done     = "reserve charge order"
	released = "reserve release"
	refunded = "reserve charge refund release"
)

var points = []point{
	{"reserve:before", good, done},
	{"reserve:effect", good, done},
	{"reserve:after", good, done},
	{"charge:before", good, done},
	{"charge:effect", good, done},
	{"charge:after", good, done},
	{"order:before", good, done},
	{"order:effect", good, done},
	{"order:after", good, done},
	{"flow:after", good, done},
	{"release:before", cardDeclined, released},
	{"release:effect", cardDeclined, released},
	{"release:after", cardDeclined, released},
	{"refund:before", undeliverable, refunded},
	{"refund:effect", undeliverable, refunded},
	{"refund:after", undeliverable, refunded},
	{"services:reserve", good, done},
	{"services:charge", good, done},
	{"services:order", good, done},
	{"services:refund", undeliverable, refunded},
}

// run plays the points and returns the exit status.
func run(args []string, out io.Writer) int {
	f := flag.NewFlagSet("checkout", flag.ContinueOnError)
	f.SetOutput(out)
	kill := f.String("kill", "", "kill at one point only, such as reserve:before, or at all whose name starts so, such as services")
	broken := f.Bool("break", false, "send every step under a random key")
	if err := f.Parse(args); err != nil {
		return 2
	}
	var picked []point
	for _, p := range points {
		if group, _, _ := strings.Cut(p.name, ":"); *kill == "" || *kill == p.name || *kill == group {
			picked = append(picked, p)
		}
	}
	if len(picked) == 0 || f.NArg() > 0 {
		fmt.Fprintf(out, "-kill=%s %s: use one of", *kill, strings.Join(f.Args(), " "))
		for _, p := range points {
			fmt.Fprint(out, " ", p.name)
		}
		fmt.Fprintln(out)
		return 2
	}
	lines, oks := make([]string, len(picked)), make([]bool, len(picked))
	var all sync.WaitGroup
	free := make(chan struct{}, atOnce)
	for i, p := range picked {
		free <- struct{}{}
		all.Go(func() {
			defer func() { <-free }()
			lines[i], oks[i] = play(context.Background(), p, *broken)
		})
	}
	all.Wait()
	status := 0
	for i, line := range lines {
		fmt.Fprintln(out, line)
		if !oks[i] {
			status = 1
		}
	}
	if status != 0 {
		fmt.Fprintln(out, "WRONG: a step was taken twice, or not at all")
	}
	return status
}
