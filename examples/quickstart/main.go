// Command quickstart shows what happens to a payment when the network, the
// processes and the callers misbehave: seven short scenes between a real HTTP
// server with a ledger and its client. It needs no set-up:
//
//	go run ./examples/quickstart
//	go run ./examples/quickstart -scene=stalled
//	go run ./examples/quickstart -scene=lost-reply -seed=4 -attempts=6
//	go run ./examples/quickstart -break=fence
//	go run ./examples/quickstart -store=sqlite:quickstart.db
//	go run ./examples/quickstart -store=postgres://user:password@host/database
//
// The stores are in memory; with -store each process of a scene has a table of
// its own there (for Redis: a prefix), idem_quickstart_1 and so on.
//
// Each scene prints its attempts, what the callers were told, and the ledger
// after it, and says whether that is what it should be. The exit status is 1 if
// it is not, as with -break, which takes one protection out.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout)) }

// options are the flags.
type options struct {
	scene    string
	broken   string
	attempts int
	seed     uint64
	store    string
}

// run plays the scenes and returns the exit status.
func run(args []string, out io.Writer) int {
	opts, err := parse(args, out)
	if err != nil {
		return 2
	}
	if opts.broken != "" {
		fmt.Fprintf(out, "broken on purpose: %s\n\n", breaks[opts.broken])
	}
	var wrong []string
	for i, sc := range scenes {
		if opts.scene != "" && opts.scene != sc.name && opts.scene != strconv.Itoa(i+1) {
			continue
		}
		fmt.Fprintf(out, "%d. %s\n", i+1, sc.name)
		if !play(sc, opts, out) {
			wrong = append(wrong, sc.name)
		}
		fmt.Fprintln(out)
	}
	if len(wrong) > 0 {
		fmt.Fprintln(out, "WRONG:", strings.Join(wrong, ", "))
		return 1
	}
	fmt.Fprintln(out, "all as it should be")
	return 0
}

func parse(args []string, out io.Writer) (opts options, err error) {
	names := []string{}
	for i, sc := range scenes {
		names = append(names, strconv.Itoa(i+1)+" "+sc.name)
	}
	f := flag.NewFlagSet("quickstart", flag.ContinueOnError)
	f.SetOutput(out)
	f.StringVar(&opts.scene, "scene", "", "play one scene only, by number or name: "+strings.Join(names, ", "))
	f.StringVar(&opts.broken, "break", "", "take one protection out: claims, key, fence or fingerprint")
	f.IntVar(&opts.attempts, "attempts", 4, "attempts a call makes at most")
	f.StringVar(&opts.store, "store", memory, "where the records are kept: sqlite:PATH, postgres:URL, redis:URL or mysql:URL")
	f.Uint64Var(&opts.seed, "seed", 0, "let random faults, picked by this seed, happen in the scene lost-reply; 0 loses one reply")
	if err := f.Parse(args); err != nil {
		return opts, err
	}
	known := slices.ContainsFunc(names, func(n string) bool {
		number, name, _ := strings.Cut(n, " ")
		return opts.scene == number || opts.scene == name
	})
	_, breakable := breaks[opts.broken]
	switch {
	case opts.scene != "" && !known:
		err = fmt.Errorf("-scene=%s: use one of %s", opts.scene, strings.Join(names, ", "))
	case opts.broken != "" && !breakable:
		err = fmt.Errorf("-break=%s: use claims, key, fence or fingerprint", opts.broken)
	case opts.attempts < 1:
		err = fmt.Errorf("-attempts=%d: use 1 or more", opts.attempts)
	case f.NArg() > 0:
		err = fmt.Errorf("%s: there are flags only", f.Arg(0))
	default:
		if err = reach(opts.store); err != nil {
			err = fmt.Errorf("-store: %w", err)
		}
	}
	if err != nil {
		fmt.Fprintln(out, err)
	}
	return opts, err
}
