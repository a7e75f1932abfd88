package main

import (
	"context"
	"crypto/rand"

	"github.com/redis/go-redis/v9"

	"github.com/idem-go/idem/keystore"
	"github.com/idem-go/idem/keystore/redisstore"
)

// redisStores is Redis beside a SET NX and a SET.
func redisStores() []group {
	one := backend{
		name: "redisstore",
		hand: func(s *stage) (hand, error) {
			c, err := newRedis(s)
			return redisHand{c, "hand:" + rand.Text() + ":"}, err
		},
		stores: []variant{{name: byStore, open: openRedis(false)}, {name: byStore + ", Batch", open: openRedis(true)}},
	}
	many := one
	many.name, many.callers = "redisstore, 64 goroutines", crowd
	many.stores = []variant{
		{name: byStore, open: openRedis(false), fresh: []check{speed(byHand)}},
		{name: byStore + ", Batch", open: openRedis(true), fresh: []check{speed(byHand).atLeast(1)}},
	}
	return append(one.groups(), many.groups()...)
}

func openRedis(batch bool) func(*stage) (keystore.Store, error) {
	return func(s *stage) (keystore.Store, error) {
		c, err := newRedis(s)
		if err != nil {
			return nil, err
		}
		return redisstore.New(c, redisstore.Config{Prefix: "idem:" + rand.Text() + ":", Batch: batch})
	}
}

// newRedis is a client with its defaults. What a round has stored ends with it.
func newRedis(s *stage) (*redis.Client, error) {
	addr, err := s.shared.redisAddr()
	if err != nil {
		return nil, err
	}
	c := redis.NewClient(&redis.Options{Addr: addr})
	s.onEnd(func() {
		_ = c.FlushDB(context.WithoutCancel(s)).Err()
		_ = c.Close()
	})
	return c, c.Ping(s).Err()
}

type redisHand struct {
	client *redis.Client
	prefix string
}

func (h redisHand) insert(ctx context.Context, id, fingerprint []byte) error {
	set, err := h.client.SetNX(ctx, h.prefix+string(id), fingerprint, lease).Result()
	if err == nil && !set {
		err = errTaken
	}
	return err
}

func (h redisHand) update(ctx context.Context, id, result []byte) error {
	return h.client.Set(ctx, h.prefix+string(id), result, retention).Err()
}

func (h redisHand) read(ctx context.Context, id []byte) error {
	return h.client.Get(ctx, h.prefix+string(id)).Err()
}
