// Command idem shows and settles what the stores of idem hold, and asks others'
// endpoints whether they honour keys: for operators.
//
//	idem migrate -store=URL     creates the store's tables, or checks them
//	idem stale   -store=URL     lists the records of which nobody knows the outcome
//	idem show    -store=URL ID  shows one record
//	idem resolve -store=URL ID  settles an unresolved record by what was found out
//	idem purge   -store=URL     removes what no rule needs any more
//	idem stats   -store=URL     counts records by half and state
//	idem probe   URL            asks an HTTP endpoint whether it honours idempotency keys
//
// The store may stand in IDEM_STORE instead. "idem help COMMAND" tells a
// command's flags. It exits with 0, with 1 if it refused or failed, and with 2
// if it was called in a wrong way. Keys are shown by their digest only.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/idem-go/idem/internal/storeurl"
)

func main() { os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) }

// The exit codes.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
)

// command is one of the words after idem.
type command struct {
	name string
	// args are its arguments in the usage line, beside -store.
	args string
	does string
	// setUp declares the command's flags and returns what it does.
	setUp func(*call) func() error
	// noStore is for commands that need none.
	noStore bool
}

// line is the command's usage line.
func (cmd command) line() string {
	if cmd.noStore {
		return cmd.name + " " + cmd.args
	}
	return cmd.name + " -store=URL " + cmd.args
}

func commands() []command {
	return []command{
		{name: "migrate", args: "[-print]", does: "Creates the store's tables, or checks that they are there.", setUp: migrate},
		{name: "stale", args: "[-half H] [-scope S] [-older 10m] [-json]", does: "Lists unresolved records, the oldest first.", setUp: stale},
		{name: "show", args: "RECORD [-result] [-json]", does: "Shows one record.\n" + selects, setUp: show},
		{name: "resolve", args: "RECORD VERDICT [-yes] [-json]", does: "Settles an unresolved record by what was found out about it.\n" + selects + "\n" + verdicts, setUp: resolve},
		{name: "purge", args: "[-batch 1000] [-max N] [-yes] [-json]", does: "Removes what no rule needs any more. Unresolved records stay.", setUp: purge},
		{name: "stats", args: "[-json]", does: "Counts records by half and state. Expired ones don't count.", setUp: stats},
		{name: "probe", args: "URL [-body JSON] [-json] -" + consentFlag, does: probes, setUp: probe, noStore: true},
	}
}

// call is one run of a command.
type call struct {
	ctx         context.Context
	in          io.Reader
	out, errOut io.Writer
	flags       *flag.FlagSet
	storeURL    string
	json, yes   bool
}

// usageError is the error of a call that is wrong whatever the store holds.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

func badUsage(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// run is the whole program but for its process.
func run(args []string, in io.Reader, out, errOut io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	defer context.AfterFunc(ctx, stop)() // a second ctrl-C ends the process at once
	return runUntil(ctx, args, in, out, errOut)
}

// runUntil is run that ends with ctx.
func runUntil(ctx context.Context, args []string, in io.Reader, out, errOut io.Writer) int {
	if len(args) == 0 {
		usage(errOut)
		return exitUsage
	}
	name, help := args[0], false
	switch name {
	case "help", "-h", "-help", "--help":
		if len(args) == 1 {
			usage(out)
			return exitOK
		}
		name, help = args[1], true
	}
	for _, cmd := range commands() {
		if cmd.name != name {
			continue
		}
		c := &call{ctx: ctx, in: in, out: out, errOut: errOut}
		return c.run(cmd, args[1:], help)
	}
	fmt.Fprintf(errOut, "idem: unknown command %q\n\n", name)
	usage(errOut)
	return exitUsage
}

func (c *call) run(cmd command, args []string, help bool) int {
	c.flags = flag.NewFlagSet(cmd.name, flag.ContinueOnError)
	c.flags.SetOutput(io.Discard)
	if !cmd.noStore {
		c.flags.StringVar(&c.storeURL, "store", "", "`URL` of the store; "+storeEnv+" may hold it instead")
	}
	do := cmd.setUp(c)
	operands, err := parse(c.flags, args)
	if c.storeURL == "" { // no default of the flag, which the usage would show
		c.storeURL = os.Getenv(storeEnv)
	}
	if help || errors.Is(err, flag.ErrHelp) {
		c.usage(c.out, cmd)
		return exitOK
	}
	if err == nil {
		err = c.flags.Parse(append([]string{"--"}, operands...)) // for Args
	}
	if err != nil {
		err = badUsage("%w", err)
	} else {
		err = do()
	}
	if err == nil {
		return exitOK
	}
	fmt.Fprintf(c.errOut, "idem %s: %s\n", cmd.name, redact(err.Error(), c.storeURL))
	if errors.As(err, new(usageError)) {
		fmt.Fprintf(c.errOut, "See: idem help %s\n", cmd.name)
		return exitUsage
	}
	return exitFailed
}

// parse parses flags before, between and behind the operands.
func parse(flags *flag.FlagSet, args []string) (operands []string, err error) {
	for {
		if err := flags.Parse(args); err != nil {
			return nil, err
		}
		rest := flags.Args()
		if len(rest) == 0 {
			return operands, nil
		}
		operands, args = append(operands, rest[0]), rest[1:]
	}
}

// noOperands refuses operands, for commands that take none.
func (c *call) noOperands() error {
	if c.flags.NArg() > 0 {
		return badUsage("%q is no flag, and there are no other arguments", c.flags.Arg(0))
	}
	return nil
}

func usage(w io.Writer) {
	fmt.Fprint(w, "idem shows and settles what the stores of idem hold, and asks endpoints whether they honour keys.\n\n")
	for _, cmd := range commands() {
		fmt.Fprintf(w, "\tidem %s\n", cmd.line())
	}
	fmt.Fprintf(w, "\nA store is %s\n%s may hold the URL instead.\nSee: idem help COMMAND\n", storeurl.Usage, storeEnv)
}

func (c *call) usage(w io.Writer, cmd command) {
	fmt.Fprintf(w, "idem %s\n\n%s\n\n", cmd.line(), cmd.does)
	c.flags.SetOutput(w)
	c.flags.PrintDefaults()
}
