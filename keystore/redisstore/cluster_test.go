package redisstore

import (
	"context"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/idem-go/idem/internal/servertest"
	"github.com/idem-go/idem/keystore"
	"github.com/idem-go/idem/keystore/keystoretest"
)

// newCluster starts a cluster of three masters and returns a client of it.
func newCluster(t *testing.T) *redis.ClusterClient {
	t.Helper()
	const nodes, slots = 3, 16384
	var addrs []string
	var clients []*redis.Client
	for i := range nodes {
		server := servertest.Redis(t, servertest.RedisOptions{Args: []string{"--cluster-enabled", "yes"}})
		c := newClient(t, server.Addr)
		ok(t, c.ClusterAddSlotsRange(t.Context(), i*slots/nodes, (i+1)*slots/nodes-1).Err())
		ok(t, c.Do(t.Context(), "CLUSTER", "SET-CONFIG-EPOCH", i+1).Err())
		addrs, clients = append(addrs, server.Addr), append(clients, c)
	}
	for _, addr := range addrs[1:] {
		host, port, err := net.SplitHostPort(addr)
		ok(t, err)
		ok(t, clients[0].ClusterMeet(t.Context(), host, port).Err())
	}
	for _, c := range clients {
		eventually(t, "the cluster's start", func() bool {
			info, err := c.ClusterInfo(t.Context()).Result()
			return err == nil && strings.Contains(info, "cluster_state:ok") &&
				strings.Contains(info, "cluster_known_nodes:"+strconv.Itoa(nodes))
		})
	}
	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs, ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = cluster.Close() })
	return cluster
}

// B161: in a cluster every script finds its only key's slot, whatever the
// prefix, and lists, pages and notifications span all nodes.
func TestB161Cluster(t *testing.T) {
	t.Parallel()
	cluster := newCluster(t)
	prefix := newPrefix()
	t.Run("contract", func(t *testing.T) {
		keystoretest.Run(t, func(t *testing.T) keystore.Store { return storeOn(t, cluster, Config{Prefix: prefix}) })
	})

	t.Run("records are on all nodes", func(t *testing.T) {
		err := cluster.ForEachMaster(t.Context(), func(ctx context.Context, c *redis.Client) error {
			keys, _, err := c.Scan(ctx, 0, prefix+"{*", 1<<20).Result()
			if len(keys) == 0 {
				t.Errorf("%v has no records", c)
			}
			return err
		})
		ok(t, err)
	})

	t.Run("scripts flushed on all nodes", func(t *testing.T) {
		s := storeOn(t, cluster, Config{Prefix: prefix})
		for range 5 {
			ok(t, cluster.ScriptFlush(t.Context()).Err())
			records(t, s, keystore.Query{})
			ok(t, cluster.ScriptFlush(t.Context()).Err())
			acquire(t, s, params())
		}
	})

	t.Run("notifications", func(t *testing.T) {
		told := make(chan error, 100)
		here := storeOn(t, cluster, Config{Prefix: prefix, OnListen: func(err error) { told <- err }})
		there := storeOn(t, cluster, Config{Prefix: prefix})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- here.Listen(ctx) }()
		defer func() {
			cancel()
			is(t, receive(t, ended), context.Canceled)
		}()
		ok(t, receive(t, told))
		for range 10 { // on any node
			o := acquire(t, there, params())
			changed, stop := here.Watch(o.ID)
			complete(t, there, o, "result")
			receive(t, changed)
			stop()
		}
	})

	t.Run("replicas", func(t *testing.T) {
		s := storeOn(t, cluster, Config{Prefix: prefix, Replicas: 1, ReplicaTimeout: time.Millisecond})
		p := params()
		_, err := s.Claim(t.Context(), p)
		is(t, err, ErrReplicas) // there are none, but it has found its node
		s = storeOn(t, cluster, Config{Prefix: prefix})
		acquire(t, s, p)
	})
}
