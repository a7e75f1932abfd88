package redisstore

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/idem-go/idem/internal/servertest"
	"github.com/idem-go/idem/keystore"
	"github.com/idem-go/idem/keystore/keystoretest"
)

// shared is the address of the server of the tests that need no server of
// their own. Each has a prefix of its own there.
var shared string

func TestMain(m *testing.M) {
	redis.SetLogger(silent{})
	if os.Getenv(racerEnv) != "" {
		os.Exit(racer())
	}
	stop := func() {}
	if shared = os.Getenv(servertest.RedisEnv); shared == "" {
		server, err := servertest.StartRedis(servertest.RedisOptions{})
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		shared, stop = server.Addr, server.Stop
	}
	// The goroutine that waits for the server's end is no leak.
	goleak.VerifyTestMain(servertest.RedisTests(m), goleak.IgnoreCurrent(), goleak.Cleanup(func(code int) {
		stop()
		os.Exit(code)
	}))
}

// silent drops what go-redis logs of the servers that the tests kill.
type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

func TestContract(t *testing.T) {
	t.Parallel()
	prefix := newPrefix()
	keystoretest.Run(t, func(t *testing.T) keystore.Store { return newStore(t, shared, Config{Prefix: prefix}) })
}

func BenchmarkStore(b *testing.B) {
	keystoretest.Bench(b, func(b *testing.B) keystore.Store { return newStore(b, shared, Config{Prefix: newPrefix()}) })
}
