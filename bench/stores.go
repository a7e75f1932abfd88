package main

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	mathrand "math/rand/v2"
	"slices"
	"time"

	"github.com/idem-go/idem/keystore"
)

const (
	byHand  = "by hand"
	byStore = "idem"
)

// stores compare each store with the least that somebody would write by hand on
// the same driver.
func stores() []group {
	return slices.Concat(memStores(), pgStores(), pgTransactions(), redisStores(), sqliteStores(), mysqlStores())
}

// hand is a store that was written by hand: a row per key.
type hand interface {
	// insert fails where the row exists.
	insert(ctx context.Context, id, fingerprint []byte) error
	update(ctx context.Context, id, result []byte) error
	// read fails where the row has no result.
	read(ctx context.Context, id []byte) error
}

// backend is what a store runs on, and its counterpart by hand.
type backend struct {
	name    string
	callers int
	// memory tells that it needs neither a disk nor a server.
	memory bool
	hand   func(*stage) (hand, error)
	stores []variant
}

// variant is a store, and what it is held to; nil is the plain ratio.
type variant struct {
	name          string
	open          func(*stage) (keystore.Store, error)
	fresh, replay []check
}

// groups are a new intent from claim to result, and its replay.
func (b backend) groups() []group {
	fresh := b.group("claim and complete", freshByHand, floorFsync, floorRoundTrip)
	replay := b.group("replay", replayByHand, floorRoundTrip)
	for _, v := range b.stores {
		fresh.contenders = append(fresh.contenders, v.contender(freshByStore, v.fresh))
		replay.contenders = append(replay.contenders, v.contender(replayByStore, v.replay))
	}
	return []group{fresh, replay}
}

// group has what is not idem's.
func (b backend) group(what string, way func(*stage, hand) (func(int) error, error), floors ...contender) group {
	g := group{name: b.name + ", " + what, callers: b.callers, servers: !b.memory, slow: !b.memory}
	if !b.memory {
		g.contenders = floors
	}
	g.contenders = append(g.contenders, contender{name: byHand, open: func(s *stage) (func(int) error, error) {
		h, err := b.hand(s)
		if err != nil {
			return nil, err
		}
		return way(s, h)
	}})
	return g
}

func (v variant) contender(way func(*stage, keystore.Store) (func(int) error, error), checks []check) contender {
	if checks == nil {
		checks = []check{ratio(byHand)}
	}
	return contender{name: v.name, checks: checks, open: func(s *stage) (func(int) error, error) {
		store, err := v.open(s)
		if err != nil {
			return nil, err
		}
		return way(s, store)
	}}
}

const (
	// kept is how many records are replayed in turn.
	kept      = 256
	lease     = 30 * time.Second
	retention = 24 * time.Hour
)

// stored is the result of every intent, and fingerprint what it asked for.
var (
	stored      = make([]byte, 1<<10)
	fingerprint = sha256.Sum256([]byte(requestBody))
)

// names gives every n an ID of its own, spread as digests are.
func names() func(n int) [32]byte {
	var prefix [24]byte
	_, _ = rand.Read(prefix[:])
	return func(n int) (id [32]byte) {
		binary.BigEndian.PutUint64(id[:], uint64(n)*0x9e3779b97f4a7c15)
		copy(id[8:], prefix[:])
		return id
	}
}

func freshByHand(s *stage, h hand) (func(int) error, error) {
	name := names()
	return func(n int) error {
		id := name(n)
		if err := h.insert(s, id[:], fingerprint[:]); err != nil {
			return err
		}
		return h.update(s, id[:], stored)
	}, nil
}

func freshByStore(s *stage, store keystore.Store) (func(int) error, error) {
	name := names()
	return func(n int) error { return execute(s, store, name(n)) }, nil
}

// execute claims a new record and completes it.
func execute(ctx context.Context, store keystore.Store, id [32]byte) error {
	claim, err := store.Claim(ctx, claimOf(id))
	if err == nil && claim.Status != keystore.Acquired {
		err = fmt.Errorf("a new claim is %v", claim.Status)
	}
	if err != nil {
		return err
	}
	return store.Complete(ctx, claim.Owner, keystore.CompleteParams{Result: stored, Retention: retention})
}

func claimOf(id [32]byte) keystore.ClaimParams {
	p := keystore.ClaimParams{
		ID: id, Scope: fingerprint, Fingerprint: fingerprint, Lease: lease, Keep: retention, Begun: true, Meta: []byte("meta"),
	}
	binary.BigEndian.PutUint64(p.Nonce[:], mathrand.Uint64())
	binary.BigEndian.PutUint64(p.Nonce[8:], mathrand.Uint64())
	return p
}

func replayByHand(s *stage, h hand) (func(int) error, error) {
	name := names()
	for n := range kept {
		id := name(n)
		if err := h.insert(s, id[:], fingerprint[:]); err != nil {
			return nil, err
		}
		if err := h.update(s, id[:], stored); err != nil {
			return nil, err
		}
	}
	return func(n int) error {
		id := name(n % kept)
		return h.read(s, id[:])
	}, nil
}

func replayByStore(s *stage, store keystore.Store) (func(int) error, error) {
	name := names()
	for n := range kept {
		if err := execute(s, store, name(n)); err != nil {
			return nil, err
		}
	}
	return func(n int) error {
		claim, err := store.Claim(s, claimOf(name(n%kept)))
		if err == nil && (claim.Status != keystore.Completed || len(claim.Record.Result) != len(stored)) {
			err = fmt.Errorf("a replay is %v", claim.Status)
		}
		return err
	}, nil
}
