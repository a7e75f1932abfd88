package redisstore

import (
	"bytes"
	"context"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/idem-go/idem/internal/batch"
)

// maxBatches is how many batches are under way: while the server is at work on
// one, the client reads another.
const maxBatches = 2

// call is one run of a script on a record.
type call struct {
	script *redis.Script
	id     [32]byte
	args   []any
}

// said is what a script has answered, or what that means as an error.
type said struct {
	answer []string
	err    error
}

// calls are those that may travel together.
type calls = batch.Group[call, said]

func (s *Store) newCalls() *calls {
	return &calls{Left: func(err error) error { return err }, Keep: keepCall, Alone: s.alone, Together: s.together, Limit: maxBatches}
}

// keepCall returns the call with bytes of its own.
func keepCall(c call) call {
	c.args = slices.Clone(c.args)
	for i, arg := range c.args {
		if b, ok := arg.([]byte); ok {
			c.args[i] = bytes.Clone(b)
		}
	}
	return c
}

// size is how many bytes the call sends, roughly.
func (c call) size() (n int) {
	for _, arg := range c.args {
		if b, ok := arg.([]byte); ok {
			n += len(b)
		}
	}
	return n
}

// alone makes a call by itself. An error is the call's own.
func (s *Store) alone(ctx context.Context, c call) (said, error) {
	answer, err := s.answer(c.id, c.script.Run(ctx, s.client, []string{s.key(c.id)}, c.args...))
	return said{answer, err}, nil
}

// together makes the calls of a batch in one pipeline.
func (s *Store) together(ctx context.Context, members []*batch.Member[call, said]) (err error) {
	if len(members) == 1 {
		m := members[0]
		m.Answer, err = s.alone(ctx, m.Call)
		m.Answered = true
		return err
	}
	pipe := s.client.Pipeline()
	cmds := make([]*redis.Cmd, len(members))
	for i, m := range members {
		cmds[i] = m.Call.script.EvalSha(ctx, pipe, []string{s.key(m.Call.id)}, m.Call.args...)
	}
	if _, err := pipe.Exec(ctx); err != nil && cmds[0].Err() == nil && cmds[0].Val() == nil {
		return err // there was no connection, and no command knows of that
	}
	for i, m := range members {
		if redis.HasErrorPrefix(cmds[i].Err(), "NOSCRIPT") {
			continue // alone it brings the script along
		}
		answer, err := s.answer(m.Call.id, cmds[i])
		m.Answer, m.Answered = said{answer, err}, true
	}
	return nil
}
