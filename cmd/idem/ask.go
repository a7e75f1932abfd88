package main

import (
	"bufio"
	"errors"
	"fmt"
	"strings"
)

var errNotConfirmed = errors.New("not confirmed, nothing was changed; answer y, or set -yes")

// ask asks on standard input whether to do it, unless -yes is set.
func (c *call) ask(what string) error {
	if c.yes {
		return nil
	}
	fmt.Fprintf(c.errOut, "%s? [y/N] ", what)
	answered := make(chan string, 1)
	go func() { // a read can't be interrupted; the process ends with it
		line, _ := bufio.NewReader(c.in).ReadString('\n')
		answered <- line
	}()
	select {
	case <-c.ctx.Done():
		return fmt.Errorf("%w: %w", errNotConfirmed, c.ctx.Err())
	case line := <-answered:
		switch strings.ToLower(strings.TrimSpace(line)) {
		case "y", "yes":
			return nil
		}
		return errNotConfirmed
	}
}
