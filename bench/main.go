// Command bench sets idem beside what people use otherwise, and beside nothing
// at all, in one process and in turns.
//
//	go run . [-short] [-json] [-only REGEXP] [-rounds N]
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	switch {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// groups are all comparisons, in the order of the table.
func groups() []group {
	return slices.Concat(transports(), flights(), middlewares(), stores(), purges(), fingerprints(), keys(), memories())
}

// errRows tells that something could not be measured. A missed target is no
// error.
var errRows = errors.New("some groups failed")

func run(ctx context.Context, args []string, out, errOut io.Writer) (err error) {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(errOut)
	short := flags.Bool("short", false, "end within three minutes, with wider errors")
	asJSON := flags.Bool("json", false, "write JSON")
	only := flags.String("only", "", "only groups with a `regexp` in their name or \"group/row\"")
	rounds := flags.Int("rounds", 0, "how many rounds (default 7, with -short 3)")
	profile := flags.String("cpuprofile", "", "write a CPU profile to this `file`")
	if err := flags.Parse(args); err != nil {
		return err
	}
	choose, err := regexp.Compile(*only)
	if err != nil {
		return err
	}
	o := options{rounds: 7, slice: 60 * time.Millisecond, slices: 5, scale: 1}
	if *short {
		o = options{rounds: 3, slice: 20 * time.Millisecond, slices: 3, scale: 10}
	}
	if *rounds > 0 {
		o.rounds = *rounds
	}
	stop, err := startProfile(*profile)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()

	rep := report{Head: newHead(o)}
	if !*asJSON {
		rep.Head.print(out)
	}
	sh := &shared{}
	defer sh.stop()
	var failed error
	for _, g := range groups() {
		if !g.chosen(choose) || ctx.Err() != nil {
			continue
		}
		rows, err := g.run(ctx, sh, o)
		if err != nil {
			failed = errRows
			rows = []row{{Group: g.name, Name: "all", Error: err.Error()}}
		}
		rep.Rows = append(rep.Rows, rows...)
		if !*asJSON {
			print(out, g.name, rows)
		}
	}
	rep.LoadAfter = load()
	if *asJSON {
		enc := json.NewEncoder(out)
		enc.SetIndent("", "  ")
		return errors.Join(enc.Encode(rep), failed, ctx.Err())
	}
	fmt.Fprintf(out, "\nload at the end: %s\n", rep.LoadAfter)
	return errors.Join(failed, ctx.Err())
}

// report is what -json writes.
type report struct {
	Head      head   `json:"head"`
	Rows      []row  `json:"rows"`
	LoadAfter string `json:"load_after"`
}

// chosen tells whether the group, or one of its rows, has the name.
func (g group) chosen(name *regexp.Regexp) bool {
	return name.MatchString(g.name) ||
		slices.ContainsFunc(g.contenders, func(c contender) bool { return name.MatchString(g.name + "/" + c.name) })
}
