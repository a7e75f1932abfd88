package main

import (
	"context"
	"runtime"
	"strconv"
	"strings"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/keystore"
	"github.com/idem-go/idem/keystore/memstore"
	"github.com/idem-go/idem/server"
)

const memoryName = "memory per completed record"

// memories is what a record holds in the memory store that nobody asks for: with
// a result of 100 bytes, and as the server half leaves it.
func memories() []group { return []group{{name: memoryName, whole: idleRecords}} }

// idleResult takes 100 bytes as JSON.
var idleResult = strings.Repeat("r", 98)

func idleRecords(s *stage, o options) ([]row, error) {
	n := 200_000 / o.scale
	direct, err := perRecord(n, func(store keystore.Store) error { return completeMany(s, store, n) })
	if err != nil {
		return nil, err
	}
	run, err := perRecord(n, func(store keystore.Store) error { return runMany(s, store, n) })
	return []row{
		{Group: memoryName, Name: "memstore, 100 bytes of result", Ops: n, Checks: []result{check{unit: bytesPer}.within(600).judge(direct)}},
		{Group: memoryName, Name: "server.Run, 100 bytes of result", Ops: n, Checks: []result{check{unit: bytesPer}.judge(run)}},
	}, err
}

// perRecord is how many bytes more the heap holds for each of n records.
func perRecord(n int, fill func(keystore.Store) error) (float64, error) {
	store, err := memstore.New(memstore.Config{})
	if err != nil {
		return 0, err
	}
	before := heap()
	err = fill(store)
	held := heap() - before
	runtime.KeepAlive(store)
	return held / float64(n), err
}

// heap is how many bytes are in use after a collection.
func heap() float64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // the first one may have been under way
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}

func completeMany(ctx context.Context, store keystore.Store, n int) error {
	name := names()
	for i := range n {
		claim, err := store.Claim(ctx, claimOf(name(i)))
		if err != nil {
			return err
		}
		if err := store.Complete(ctx, claim.Owner, keystore.CompleteParams{Result: stored[:100], Retention: retention}); err != nil {
			return err
		}
	}
	return nil
}

func runMany(ctx context.Context, store keystore.Store, n int) error {
	srv, err := server.New(server.Config{Store: store, Effects: server.Opaque, Scope: server.SingleTenant})
	if err != nil {
		return err
	}
	defer srv.Shutdown(context.WithoutCancel(ctx))
	for i := range n {
		in := idem.Intent{Scope: "bench", ID: strconv.Itoa(i)}
		if _, err := server.Run(ctx, srv, in, func(context.Context) (string, error) { return idleResult, nil }); err != nil {
			return err
		}
	}
	return nil
}
