package main

import (
	"context"
	"errors"
	"sync"

	"github.com/idem-go/idem/keystore"
	"github.com/idem-go/idem/keystore/memstore"
)

// memStores is the memory store beside a map.
func memStores() []group {
	b := backend{name: "memstore", memory: true, hand: newMap, stores: []variant{
		{name: byStore, open: func(*stage) (keystore.Store, error) { return memstore.New(memstore.Config{}) }},
	}}
	many := b
	many.name, many.callers = "memstore, 64 goroutines", crowd
	return append(b.groups(), many.groups()...)
}

// mapHand is a map and a mutex.
type mapHand struct {
	mu   sync.Mutex
	rows map[[32]byte]mapRow
}

type mapRow struct{ fingerprint, result []byte }

func newMap(*stage) (hand, error) { return &mapHand{rows: map[[32]byte]mapRow{}}, nil }

var (
	errTaken  = errors.New("the row exists")
	errAbsent = errors.New("there is no such row")
)

func (h *mapHand) insert(_ context.Context, id, fingerprint []byte) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, taken := h.rows[[32]byte(id)]; taken {
		return errTaken
	}
	h.rows[[32]byte(id)] = mapRow{fingerprint: append([]byte(nil), fingerprint...)}
	return nil
}

func (h *mapHand) update(_ context.Context, id, result []byte) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	row, found := h.rows[[32]byte(id)]
	if !found {
		return errAbsent
	}
	row.result = append([]byte(nil), result...)
	h.rows[[32]byte(id)] = row
	return nil
}

func (h *mapHand) read(_ context.Context, id []byte) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if row := h.rows[[32]byte(id)]; len(append([]byte(nil), row.result...)) == 0 {
		return errAbsent
	}
	return nil
}
