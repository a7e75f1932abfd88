package redisstore

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/idem-go/idem/internal/servertest"
	"github.com/idem-go/idem/keystore"
	"github.com/idem-go/idem/keystore/keystoretest"
)

// startReplica starts a server that follows master, and waits until it does.
func startReplica(t *testing.T, master *servertest.RedisServer) *servertest.RedisServer {
	t.Helper()
	host, port, err := net.SplitHostPort(master.Addr)
	ok(t, err)
	replica := servertest.Redis(t, servertest.RedisOptions{Args: []string{"--replicaof", host + " " + port}})
	client := newClient(t, replica.Addr)
	eventually(t, "the replica's first synchronisation", func() bool {
		info, err := client.Info(t.Context(), "replication").Result()
		return err == nil && strings.Contains(info, "master_link_status:up")
	})
	return replica
}

// B160: with Replicas, what was acknowledged is on the replica. Without a
// replica that acknowledges it is an error, and the call may be repeated.
func TestB160Replicas(t *testing.T) {
	t.Parallel()
	master := servertest.Redis(t, servertest.RedisOptions{})
	replica := startReplica(t, master)
	prefix := newPrefix()
	careful := newStore(t, master.Addr, Config{Prefix: prefix, Replicas: 1, ReplicaTimeout: 10 * time.Second})
	hasty := newStore(t, master.Addr, Config{Prefix: prefix, Replicas: 2, ReplicaTimeout: time.Millisecond})
	there := newClient(t, replica.Addr)
	state := func(p keystore.ClaimParams) string {
		return there.HGet(t.Context(), careful.key(p.ID), "state").Val()
	}

	for range 20 {
		p := params()
		o := acquire(t, careful, p)
		if got := state(p); got != "running" {
			t.Fatalf("after an acknowledged claim the record is %q on the replica", got)
		}
		complete(t, careful, o, "result")
		if got := state(p); got != "done" {
			t.Fatalf("after an acknowledged completion the record is %q on the replica", got)
		}
	}

	p := params()
	_, err := hasty.Claim(t.Context(), p)
	is(t, err, ErrReplicas)
	o := acquire(t, careful, p) // its own earlier self
	is(t, hasty.Renew(t.Context(), o, keystore.RenewParams{Lease: time.Hour}), ErrReplicas)
	is(t, completeErr(t, hasty, o, "result"), ErrReplicas)
	complete(t, careful, o, "result")
	claim(t, hasty, rival(p), keystore.Completed) // waits for nothing
	is(t, hasty.Renew(t.Context(), o, keystore.RenewParams{Lease: time.Hour}), keystore.ErrFenced)

	// A repeat has nothing left to do, but waits like the first call: also on
	// another connection, on which nothing was written before.
	completed, released := acquire(t, careful, params()), acquire(t, careful, params())
	freeze(t, there, func() {
		for range 3 {
			s := newStore(t, master.Addr, Config{Prefix: prefix, Replicas: 1, ReplicaTimeout: 5 * time.Millisecond})
			is(t, completeErr(t, s, completed, "result"), ErrReplicas)
			s = newStore(t, master.Addr, Config{Prefix: prefix, Replicas: 1, ReplicaTimeout: 5 * time.Millisecond})
			is(t, s.Release(t.Context(), released, keystore.ReleaseParams{How: keystore.Reject}), ErrReplicas)
		}
	})
	complete(t, careful, completed, "result")
	release(t, careful, released, keystore.Reject)

	// The fail-over that Replicas is for.
	p = params()
	first := acquire(t, careful, p)
	master.Kill()
	ok(t, there.SlaveOf(t.Context(), "no", "one").Err())
	after := storeOn(t, there, Config{Prefix: prefix})
	claim(t, after, rival(p), keystore.InFlight)
	complete(t, after, first, "result")
}

// A connection that is lost between the write and the WAIT leaves nobody who
// knows: a new one, maybe to a new master, must not vouch for the write.
func TestReplicasOnALostConnection(t *testing.T) {
	master := servertest.Redis(t, servertest.RedisOptions{})
	startReplica(t, master)
	var cut atomic.Bool
	client := redis.NewClient(&redis.Options{Dialer: func(ctx context.Context, _, _ string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", master.Addr)
		return cutBeforeWait{conn, &cut}, err
	}})
	t.Cleanup(func() { _ = client.Close() })
	s := storeOn(t, client, Config{Replicas: 1, ReplicaTimeout: 10 * time.Second})
	p := params()
	if _, err := s.Claim(t.Context(), p); !errors.Is(err, io.EOF) {
		t.Errorf("a claim whose connection was lost before WAIT: %v, want the loss", err)
	}
	if n := len(records(t, s, keystore.Query{ID: &p.ID})); n != 1 {
		t.Errorf("%d records, want the one that was written before", n)
	}
}

// cutBeforeWait is a connection that ends before the first WAIT is sent.
type cutBeforeWait struct {
	net.Conn
	cut *atomic.Bool
}

func (c cutBeforeWait) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte("\r\nwait\r\n")) && c.cut.CompareAndSwap(false, true) {
		_ = c.Close()
		return 0, io.EOF
	}
	return c.Conn.Write(b)
}

func TestContractWithReplicas(t *testing.T) {
	t.Parallel()
	master := servertest.Redis(t, servertest.RedisOptions{})
	startReplica(t, master)
	prefix := newPrefix()
	keystoretest.Run(t, func(t *testing.T) keystore.Store {
		return newStore(t, master.Addr, Config{Prefix: prefix, Replicas: 1, ReplicaTimeout: 10 * time.Second})
	})
}

// freeze stops the server's process while do runs: connected, but silent.
func freeze(t *testing.T, server *redis.Client, do func()) {
	t.Helper()
	info, err := server.Info(t.Context(), "server").Result()
	ok(t, err)
	_, pid, _ := strings.Cut(info, "process_id:")
	pid, _, _ = strings.Cut(pid, "\r\n")
	ok(t, exec.Command("kill", "-STOP", pid).Run())
	defer func() { ok(t, exec.Command("kill", "-CONT", pid).Run()) }()
	do()
}
