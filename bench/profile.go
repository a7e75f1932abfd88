package main

import (
	"context"
	"errors"
	"os"
	"runtime/pprof"
)

// startProfile begins a CPU profile of everything that is measured; stop ends
// it. Without a path there is none.
func startProfile(path string) (stop func() error, err error) {
	if path == "" {
		return func() error { return nil }, nil
	}
	f, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() error {
		pprof.StopCPUProfile()
		return f.Close()
	}, nil
}

// labelled runs f so that a profile tells whose time it was, its goroutines'
// too: go tool pprof -tagfocus 'row=idem.Do'.
func labelled(ctx context.Context, row string, f func()) {
	pprof.Do(ctx, pprof.Labels("row", row), func(context.Context) { f() })
}
