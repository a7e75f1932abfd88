package redisstore

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/idem-go/idem/keystore"
)

const (
	defaultPrefix         = "idem:"
	maxPrefix             = 64
	defaultReplicaTimeout = time.Second
)

// ErrReplicas: a write was applied, but fewer than Config.Replicas replicas
// have acknowledged it in time. Like after any error of the backend, repeat
// the call with the same arguments, or leave the claim to its lease.
var ErrReplicas = errors.New("redisstore: too few replicas have acknowledged the write")

// Config configures a Store. The zero Config is valid.
type Config struct {
	// Prefix begins every key and the name of the channel of notifications;
	// empty means "idem:". It has at most 64 letters, digits and any of _:.-
	Prefix string
	// MaxResult is the size of the largest Result in bytes; 0 means
	// keystore.MaxResult. Over it Complete answers keystore.ErrTooLarge. A
	// smaller one than keystore.MaxResult is less than the contract promises.
	MaxResult int
	// Replicas is how many replicas must acknowledge (WAIT) what a call has
	// written before it succeeds; 0 means none. With fewer the call fails with
	// ErrReplicas. What was acknowledged is then lost in a fail-over only if
	// a replica is promoted that lacks it. Each writing call takes two round
	// trips instead of one, four in a cluster.
	Replicas int
	// ReplicaTimeout is how long Replicas are waited for; 0 means 1 s. At
	// least 1 ms.
	ReplicaTimeout time.Duration
	// Batch lets calls that are made while others are under way wait for one of those
	// to return, and then go together, in one pipeline: up to 128 of them and 1 MiB.
	// Each is answered as it would be alone. A call that finds none under way goes at
	// once. A pipeline has a context of its own, in which hooks of the client find no
	// caller's values, and a caller whose context ends leaves it at once. It does
	// nothing with Replicas. Turn it on for a store that has ten callers and more at a
	// time; see docs/performance.md.
	Batch bool
	// OnListen, if set, is told by Listen how it goes: nil whenever the
	// subscription stands, an error whenever it is lost or can't be had. It
	// is called on Listen's goroutine and must not block.
	OnListen func(error)
}

// Store is a keystore.Store and a keystore.Waiter in Redis. It is safe for
// concurrent use. It needs no closing, and does not close the client.
//
// How long a call may take, and how often it is repeated after a lost
// connection, the client's options decide. Without ContextTimeoutEnabled a
// context's end is noticed before a call and not during it. The client's own
// repeats are harmless: every call recognises its earlier self.
//
// Durations are rounded up to microseconds, and a century is the longest.
type Store struct {
	client         redis.UniversalClient
	prefix         string
	maxResult      int
	replicas       int
	replicaTimeout time.Duration
	onListen       func(error)
	pingEvery      time.Duration

	calls     *calls // nil without Config.Batch
	watches   watches
	listening atomic.Bool
}

var (
	_ keystore.Store  = (*Store)(nil)
	_ keystore.Waiter = (*Store)(nil)
)

// New returns a store on the client: a *redis.Client, also of a sentinel, or a
// *redis.ClusterClient. It sends nothing. It fails where the client is nil or a
// field of cfg is invalid, and for a *redis.Ring: when a shard is down, a Ring
// goes on with the other ones, which would grant its running claims again.
func New(client redis.UniversalClient, cfg Config) (*Store, error) {
	if v := reflect.ValueOf(client); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		return nil, errors.New("redisstore: the client is nil; pass a *redis.Client or another redis.UniversalClient")
	}
	if _, ok := client.(*redis.Ring); ok {
		return nil, errors.New("redisstore: the client is a *redis.Ring, which forgets claims when a shard is down; use a *redis.Client or a *redis.ClusterClient")
	}
	s := &Store{
		client:         client,
		prefix:         cfg.Prefix,
		maxResult:      cfg.MaxResult,
		replicas:       cfg.Replicas,
		replicaTimeout: cfg.ReplicaTimeout,
		onListen:       cfg.OnListen,
		pingEvery:      pingEvery,
	}
	if s.prefix == "" {
		s.prefix = defaultPrefix
	}
	if s.maxResult == 0 {
		s.maxResult = keystore.MaxResult
	}
	if s.replicaTimeout == 0 {
		s.replicaTimeout = defaultReplicaTimeout
	}
	if s.onListen == nil {
		s.onListen = func(error) {}
	}
	switch {
	case len(s.prefix) > maxPrefix || strings.ContainsFunc(s.prefix, notInPrefix):
		return nil, fmt.Errorf("redisstore: Config.Prefix is %q; use at most %d letters, digits and any of _:.-", s.prefix, maxPrefix)
	case s.maxResult < 0:
		return nil, fmt.Errorf("redisstore: Config.MaxResult is %d; use 0 for the default or a positive number", s.maxResult)
	case s.replicas < 0:
		return nil, fmt.Errorf("redisstore: Config.Replicas is %d; use 0 for none or a positive number", s.replicas)
	case s.replicaTimeout < time.Millisecond: // to Redis, 0 is for ever
		return nil, fmt.Errorf("redisstore: Config.ReplicaTimeout is %v; use 0 for %v or at least 1ms", s.replicaTimeout, defaultReplicaTimeout)
	}
	if cfg.Batch {
		s.calls = s.newCalls()
	}
	return s, nil
}

// notInPrefix keeps braces, which would decide the slot in a cluster, and the
// wildcards of SCAN out of the prefix.
func notInPrefix(r rune) bool {
	switch {
	case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9':
		return false
	}
	return !strings.ContainsRune("_:.-", r)
}
