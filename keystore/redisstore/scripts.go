package redisstore

import (
	"cmp"
	"context"
	_ "embed"
	"encoding/hex"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/idem-go/idem/keystore"
)

var (
	//go:embed lua/record.lua
	recordSource string
	//go:embed lua/claim.lua
	claimSource string
	//go:embed lua/renew.lua
	renewSource string
	//go:embed lua/complete.lua
	completeSource string
	//go:embed lua/release.lua
	releaseSource string
	//go:embed lua/read.lua
	readSource string

	claimScript    = redis.NewScript(recordSource + claimSource)
	renewScript    = redis.NewScript(recordSource + renewSource)
	completeScript = redis.NewScript(recordSource + completeSource)
	releaseScript  = redis.NewScript(recordSource + releaseSource)
	readScript     = redis.NewScript(recordSource + readSource)
)

// The first word of a script's answer. Errors of the server are something
// else: these are decisions.
const (
	saysOK       = "ok"
	saysAcquired = "acquired"
	saysNone     = "none"
	saysFenced   = "fenced"
	saysCorrupt  = "corrupt"
	saysFormat   = "format"
)

// key is the record's key. Its braces make the ID alone decide the slot in a
// cluster.
func (s *Store) key(id [32]byte) string {
	return s.prefix + "{" + hex.EncodeToString(id[:]) + "}"
}

// channel is where changes of records are published, with their IDs.
func (s *Store) channel() string { return s.prefix + "changes" }

// conn is what runs scripts and waits for replicas: a client, or one of its
// connections.
type conn interface {
	redis.Scripter
	Wait(ctx context.Context, replicas int, timeout time.Duration) *redis.IntCmd
}

// run runs a script on the record and returns its answer, or what the answer
// means as an error.
func (s *Store) run(ctx context.Context, script *redis.Script, id [32]byte, args ...any) ([]string, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	switch c := (call{script, id, args}); {
	case s.replicas > 0 && script != readScript:
	case s.calls != nil && script != readScript:
		said, err := s.calls.Do(ctx, id, c.size(), c)
		return said.answer, cmp.Or(err, said.err)
	default:
		said, _ := s.alone(ctx, c)
		return said.answer, said.err
	}
	keys := []string{s.key(id)}
	var answer []string
	err := s.onOneConn(ctx, keys[0], func(c conn) (err error) {
		answer, err = s.answer(id, script.Run(ctx, c, keys, args...))
		if err != nil || (answer[0] != saysOK && answer[0] != saysAcquired) {
			return err // nothing was written
		}
		n, err := c.Wait(ctx, s.replicas, s.replicaTimeout).Result()
		if err == nil && n < int64(s.replicas) {
			err = fmt.Errorf("%w: %d of %d within %v", ErrReplicas, n, s.replicas, s.replicaTimeout)
		}
		return err
	})
	return answer, err
}

// onOneConn calls do with a connection to the key's master: WAIT is about the
// writes of its own connection.
func (s *Store) onOneConn(ctx context.Context, key string, do func(conn) error) error {
	if client, ok := s.client.(*redis.Client); ok {
		c := client.Conn()
		defer c.Close()
		return do(c)
	}
	// A cluster finds the node, follows redirections, and keeps to one
	// connection, for Watch alone. Nothing depends on the WATCH that it sends.
	return s.client.Watch(ctx, func(tx *redis.Tx) error { return do(tx) }, key)
}

// answer is what a script has answered about the record, or what that means as
// an error.
func (s *Store) answer(id [32]byte, cmd *redis.Cmd) ([]string, error) {
	answer, err := cmd.StringSlice()
	if err != nil {
		return nil, err
	}
	if len(answer) == 0 {
		return nil, s.unreadable(id, keystore.ErrCorrupt)
	}
	switch answer[0] {
	case saysFenced:
		return nil, keystore.ErrFenced
	case saysCorrupt:
		return nil, s.unreadable(id, keystore.ErrCorrupt)
	case saysFormat:
		return nil, s.unreadable(id, keystore.ErrFormat)
	}
	return answer, nil
}

func (s *Store) unreadable(id [32]byte, why error) error {
	return fmt.Errorf("%w: key %s", why, s.key(id))
}

var states = map[string]keystore.State{
	"free": keystore.Free, "running": keystore.Running, "done": keystore.Done,
}

// view is the record in an answer of view in record.lua, which has checked it.
func (s *Store) view(id [32]byte, answer []string) (keystore.Record, error) {
	if len(answer) != 12 {
		return keystore.Record{}, s.unreadable(id, keystore.ErrCorrupt)
	}
	token, errToken := strconv.ParseUint(answer[5], 10, 64)
	generation, errGeneration := strconv.ParseUint(answer[6], 10, 32)
	now, errNow := strconv.ParseInt(answer[1], 10, 64)
	since, errSince := strconv.ParseInt(answer[8], 10, 64)
	ends, errEnds := strconv.ParseInt(answer[9], 10, 64)
	if cmp.Or(errToken, errGeneration, errNow, errSince, errEnds) != nil {
		return keystore.Record{}, s.unreadable(id, keystore.ErrCorrupt)
	}
	rec := keystore.Record{
		ID:         id,
		State:      states[answer[2]],
		Token:      token,
		Generation: uint32(generation),
		Begun:      answer[7] == "1",
		Age:        max(0, duration(now-since)), // a clock may step back
		Meta:       []byte(answer[10]),
		Result:     []byte(answer[11]),
	}
	copy(rec.Scope[:], answer[3])
	copy(rec.Fingerprint[:], answer[4])
	if rec.State == keystore.Running {
		rec.LeaseLeft = duration(ends - now)
	}
	return rec, nil
}

// century is the longest duration, so that the scripts' times stay exact.
const century = 100 * 365 * 24 * time.Hour

// micros is the duration in microseconds. It is rounded up: what is positive
// stays so.
func micros(d time.Duration) int64 {
	d = min(d, century)
	return int64((d + time.Microsecond - 1) / time.Microsecond)
}

// duration is the reverse of micros.
func duration(micros int64) time.Duration {
	const most = math.MaxInt64 / int64(time.Microsecond)
	return time.Duration(max(-most, min(micros, most))) * time.Microsecond
}

func flag(b bool) string {
	if b {
		return "1"
	}
	return "0"
}
