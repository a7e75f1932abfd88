package redisstore

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/idem-go/idem/keystore"
)

// The package's documentation names these rights; no more are needed.
const rights = "+evalsha +eval +script|load +scan +type +hmget +hget +hexists +hset +hincrby " +
	"+persist +pexpireat +time +publish +subscribe +ping"

func TestDocumentedRightsSuffice(t *testing.T) {
	prefix := newPrefix()
	admin := newClient(t, shared)
	user := strings.TrimSuffix(prefix, ":")
	args := []any{"ACL", "SETUSER", user, "reset", "on", ">secret", "~" + prefix + "*", "&" + prefix + "*"}
	for _, right := range strings.Fields(rights) {
		args = append(args, right)
	}
	ok(t, admin.Do(t.Context(), args...).Err())
	t.Cleanup(func() { admin.Do(context.Background(), "ACL", "DELUSER", user) })
	client := redis.NewClient(&redis.Options{Addr: shared, Username: user, Password: "secret"})
	t.Cleanup(func() { _ = client.Close() })
	told := make(chan error, 100)
	s := storeOn(t, client, Config{Prefix: prefix, OnListen: func(err error) { told <- err }})

	ok(t, admin.ScriptFlush(t.Context()).Err())
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Listen(ctx) }()
	ok(t, receive(t, told))
	cancel()
	is(t, receive(t, ended), context.Canceled)

	p := params()
	for range 2 { // the second finds a Free record
		p = rival(p)
		o := acquire(t, s, p)
		ok(t, s.Renew(t.Context(), o, keystore.RenewParams{Lease: time.Hour, Meta: []byte("new")}))
		records(t, s, keystore.Query{})
		release(t, s, o, keystore.Abandon)
		release(t, s, o, keystore.Reject)
	}
	complete(t, s, acquire(t, s, rival(p)), "result")
	claim(t, s, rival(p), keystore.Completed)

	other := storeOn(t, client, Config{Prefix: "other:"})
	if _, err := other.Claim(t.Context(), p); !redis.HasErrorPrefix(errors.Unwrap(err), "NOPERM") {
		t.Errorf("a claim under a foreign prefix: %v", err)
	}
}
