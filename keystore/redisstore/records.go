package redisstore

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/idem-go/idem/keystore"
)

const (
	// keysPerScan is how many keys Redis looks at in one step of a walk. It
	// serves nobody else meanwhile, for about half a millisecond.
	keysPerScan = 500
	// readsPerTrip is how many records are read at once, results included.
	readsPerTrip = 32
	// scriptLoads is how often a walk loads its script for one trip. Somebody
	// must flush the scripts right between two commands to need a second one.
	scriptLoads = 5
)

// Records implements keystore.Store. A record that can't be read fails the
// page it belongs to, whatever its scope: its own word for it can't be trusted.
// To go on behind it, set Query.After to its ID, which the error tells.
func (s *Store) Records(ctx context.Context, q keystore.Query) ([]keystore.Record, error) {
	if err := q.Validate(); err != nil {
		return nil, err
	}
	p := newPage(q)
	var err error
	if q.ID == nil {
		err = s.walk(ctx, p)
	} else if p.wants(*q.ID) {
		answer, runErr := s.run(ctx, readScript, *q.ID, readArgs(q)...)
		err = s.enter(p, *q.ID, answer, runErr)
	}
	var recs []keystore.Record
	if err == nil {
		recs, err = p.records()
	}
	if err != nil {
		return nil, fmt.Errorf("redisstore: records: %w", err)
	}
	return recs, nil
}

// enter puts what the read script has answered on the page. Its error is one
// of the backend; a record that can't be read has its place on the page.
func (s *Store) enter(p *page, id [32]byte, answer []string, err error) error {
	unreadable := errors.Is(err, keystore.ErrCorrupt) || errors.Is(err, keystore.ErrFormat)
	if err != nil && !unreadable {
		return err
	}
	e := entry{id: id, err: err}
	if err == nil {
		if answer[0] == saysNone {
			return nil
		}
		e.rec, e.err = s.view(id, answer)
	}
	p.add(e)
	return nil
}

// Purge implements keystore.Store. There is nothing to remove: Redis has done
// so by itself.
func (s *Store) Purge(ctx context.Context, limit int) (int, error) {
	if err := keystore.ValidatePurge(limit); err != nil {
		return 0, err
	}
	return 0, ctx.Err()
}

func readArgs(q keystore.Query) []any {
	var scope []byte
	if q.Scope != nil {
		scope = q.Scope[:]
	}
	return []any{scope, flag(q.Unresolved)}
}

// node is one of the servers that hold the records.
type node interface {
	redis.Scripter
	Scan(ctx context.Context, cursor uint64, match string, count int64) *redis.ScanCmd
	Pipelined(ctx context.Context, fn func(redis.Pipeliner) error) ([]redis.Cmder, error)
}

// walk looks at all records.
func (s *Store) walk(ctx context.Context, p *page) error {
	if cluster, ok := s.client.(*redis.ClusterClient); ok {
		return cluster.ForEachMaster(ctx, func(ctx context.Context, c *redis.Client) error {
			return s.walkNode(ctx, c, p)
		})
	}
	return s.walkNode(ctx, s.client, p)
}

func (s *Store) walkNode(ctx context.Context, n node, p *page) error {
	var cursor uint64
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		keys, next, err := n.Scan(ctx, cursor, s.prefix+"{*", keysPerScan).Result()
		if err != nil {
			return err
		}
		// In order, because the first ones that fill the page make it
		// needless to read the others.
		slices.Sort(keys)
		var ids [][32]byte
		for _, key := range keys {
			if id, ok := s.idOf(key); ok {
				ids = append(ids, id)
			}
		}
		for batch := range slices.Chunk(ids, readsPerTrip) {
			batch = slices.DeleteFunc(batch, func(id [32]byte) bool { return !p.wants(id) })
			if err := s.read(ctx, n, batch, p); err != nil {
				return err
			}
		}
		if next == 0 {
			return nil
		}
		cursor = next
	}
}

// idOf is the ID in a key of ours.
func (s *Store) idOf(key string) (id [32]byte, ok bool) {
	digest := strings.TrimSuffix(strings.TrimPrefix(key, s.prefix+"{"), "}")
	if hex.DecodedLen(len(digest)) != len(id) {
		return id, false
	}
	_, err := hex.Decode(id[:], []byte(digest))
	return id, err == nil && s.key(id) == key
}

// read reads records of one node in one round trip.
func (s *Store) read(ctx context.Context, n node, ids [][32]byte, p *page) error {
	if len(ids) == 0 {
		return nil
	}
	args := readArgs(p.query)
	for loads := 0; ; loads++ {
		cmds, err := n.Pipelined(ctx, func(pipe redis.Pipeliner) error {
			for _, id := range ids {
				readScript.EvalSha(ctx, pipe, []string{s.key(id)}, args...)
			}
			return nil
		})
		if redis.HasErrorPrefix(err, "NOSCRIPT") && loads < scriptLoads {
			if err := readScript.Load(ctx, n).Err(); err != nil {
				return err
			}
			continue
		}
		if err != nil {
			return err
		}
		for i, id := range ids {
			answer, err := s.answer(id, cmds[i].(*redis.Cmd))
			if err := s.enter(p, id, answer, err); err != nil {
				return err
			}
		}
		return nil
	}
}
