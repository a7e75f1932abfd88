//go:build unix

// Command checkout is a flow of three steps, reserve, charge and order, whose
// process is killed at every point of it, and started again: it finishes, with
// one effect per step.
//
//	go run ./examples/checkout
//	go run ./examples/checkout -kill=charge:lost
//
// The flow is in flow.go. What it shows beside that:
//
//   - One key covers one step. The flow has a key, and each step a child of it
//     (Key.Child), so that a restart comes to the same keys.
//   - A step that is done is not sent again: its record answers. One that may be
//     done is sent again under its key, and the service answers from its record.
//   - Taking a step back is a step of its own, with a key of its own. It is due
//     only where a later step was definitely refused, never where its outcome is
//     unknown.
//   - What the steps leave undone when nobody starts the flow again, no key
//     covers. Start it again: with the same call, or with idem.Resume.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/idem-go/idem/internal/storeurl"
)

// Of the process that carries the flow out: where its records and the services
// are, and at which point it kills itself.
const (
	storeEnv    = "CHECKOUT_STORE"
	servicesEnv = "CHECKOUT_SERVICES"
	orderEnv    = "CHECKOUT_ORDER"
	killEnv     = "CHECKOUT_KILL"
)

var orders = map[string]order{"paid": {"order-17", 4200}, "declined": {"order-18", 420_000}}

func main() {
	if os.Getenv(storeEnv) != "" {
		if err := flow(context.Background(), os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, "checkout:", err)
			os.Exit(1)
		}
		return
	}
	kill := flag.String("kill", "", "kill at this point only, such as charge:lost; the points are NAME:before, NAME:lost and NAME:after")
	flag.Parse()
	if err := play(context.Background(), *kill, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "checkout:", err)
		os.Exit(1)
	}
}

// flow is the main function of the process that is killed.
func flow(ctx context.Context, out io.Writer) error {
	store, err := storeurl.Open(ctx, "sqlite:"+os.Getenv(storeEnv))
	if err != nil {
		return err
	}
	defer store.Close()
	if err := store.Migrate(ctx); err != nil {
		return err
	}
	base := &http.Transport{}
	defer base.CloseIdleConnections()
	shop, err := newShop(store.Store, os.Getenv(servicesEnv), base, func(point string) {
		if point == os.Getenv(killEnv) {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {} // it takes a moment
		}
	})
	if err != nil {
		return err
	}
	res, err := shop.checkout(ctx, orders[os.Getenv(orderEnv)])
	if err != nil {
		return err
	}
	if res.Value.Refused != "" {
		fmt.Fprintln(out, "refused:", res.Value.Refused)
	} else {
		fmt.Fprintln(out, "ordered:", res.Value.Order)
	}
	return shop.client.Shutdown(ctx)
}

// play kills the flow at every point of two orders, and starts it again.
func play(ctx context.Context, only string, out io.Writer) error {
	wrong, played := 0, 0
	for _, tt := range []struct {
		order string
		steps []string
		does  []string // what must have happened in the end
		ends  string
	}{
		{"paid", []string{"reserve", "charge", "order"}, []string{"reserve", "charge", "order"}, "ordered: order-17"},
		{"declined", []string{"reserve", "charge", "release"}, []string{"reserve", "release"}, "refused: the card was declined"},
	} {
		for _, step := range tt.steps {
			for _, when := range []string{"before", "lost", "after"} {
				point := step + ":" + when
				if only != "" && only != point {
					continue
				}
				played++
				killed, restarted, err := killAt(ctx, tt.order, point)
				if err != nil {
					return fmt.Errorf("%s, killed at %s: %w", tt.order, point, err)
				}
				verdict := "ok"
				if all := append(slices.Clone(killed), restarted.does...); !slices.Equal(all, tt.does) || restarted.says != tt.ends {
					verdict = "WRONG"
					wrong++
				}
				fmt.Fprintf(out, "%-8s killed at %-14s  before: %-20s  restarted: %-20s  %-33s %s\n", tt.order, point,
					strings.Join(killed, " "), strings.Join(restarted.does, " "), restarted.says, verdict)
			}
		}
	}
	switch {
	case played == 0:
		return fmt.Errorf("there is no point %q", only)
	case wrong > 0:
		return fmt.Errorf("%d of %d are wrong", wrong, played)
	}
	return nil
}

// run is what the services did for a process, and what it said.
type run struct {
	does []string
	says string
}

// killAt runs the flow until it is killed, and once more.
func killAt(ctx context.Context, order, point string) (killed []string, restarted run, err error) {
	s, err := startServices()
	if err != nil {
		return nil, run{}, err
	}
	defer func() { err = errors.Join(err, s.stop(ctx)) }()
	dir, err := os.MkdirTemp("", "checkout")
	if err != nil {
		return nil, run{}, err
	}
	defer os.RemoveAll(dir)
	start := func(kill string) (run, error) {
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, os.Args[0])
		cmd.Env = append(os.Environ(), storeEnv+"="+filepath.Join(dir, "idem.db"), servicesEnv+"="+s.url, orderEnv+"="+order, killEnv+"="+kill)
		cmd.Stderr = os.Stderr
		says, err := cmd.Output()
		return run{s.take(), strings.TrimSpace(string(says))}, err
	}
	first, err := start(point)
	var exit *exec.ExitError
	if status, ok := err, errors.As(err, &exit); !ok || !exit.Sys().(syscall.WaitStatus).Signaled() {
		return nil, run{}, fmt.Errorf("it was not killed: %v, it said %q", status, first.says)
	}
	restarted, err = start("")
	return first.does, restarted, err
}
