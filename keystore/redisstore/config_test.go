package redisstore

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

func TestNewNamesTheField(t *testing.T) {
	client := newClient(t, "localhost:1") // never asked
	ring := redis.NewRing(&redis.RingOptions{})
	t.Cleanup(func() { _ = ring.Close() })
	for _, tt := range []struct {
		client redis.UniversalClient
		cfg    Config
		want   string
	}{
		{nil, Config{}, "the client is nil"},
		{(*redis.Client)(nil), Config{}, "the client is nil"},
		{(*redis.ClusterClient)(nil), Config{}, "the client is nil"},
		{ring, Config{}, "*redis.Ring"},
		{client, Config{Prefix: "a{b}"}, "Config.Prefix"}, // would put all records in one slot
		{client, Config{Prefix: "a*"}, "Config.Prefix"},
		{client, Config{Prefix: "a b"}, "Config.Prefix"},
		{client, Config{Prefix: "é"}, "Config.Prefix"},
		{client, Config{Prefix: "a\x00"}, "Config.Prefix"},
		{client, Config{Prefix: strings.Repeat("a", 65)}, "Config.Prefix"},
		{client, Config{MaxResult: -1}, "Config.MaxResult"},
		{client, Config{Replicas: -1}, "Config.Replicas"},
		{client, Config{ReplicaTimeout: -1}, "Config.ReplicaTimeout"},
		{client, Config{ReplicaTimeout: time.Millisecond - 1}, "Config.ReplicaTimeout"},
		{client, Config{}, ""},
		{client, Config{Prefix: "Team-7_idem.v2:", MaxResult: 1, Replicas: 1, ReplicaTimeout: time.Millisecond}, ""},
	} {
		s, err := New(tt.client, tt.cfg)
		switch {
		case tt.want == "" && (err != nil || s == nil):
			t.Errorf("New with %+v: %v", tt.cfg, err)
		case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
			t.Errorf("New with %+v: %v, want an error naming %s", tt.cfg, err, tt.want)
		}
	}
}

func TestKeyHasTheDigestAsItsHashTag(t *testing.T) {
	s := storeOn(t, newClient(t, "localhost:1"), Config{Prefix: "p:"})
	id := [32]byte{0: 0xab, 31: 1}
	want := "p:{ab" + strings.Repeat("00", 30) + "01}"
	if got := s.key(id); got != want {
		t.Errorf("the key is %s, want %s", got, want)
	}
	if got, ok := s.idOf(want); !ok || got != id {
		t.Errorf("the ID of %s is %x, %t", want, got, ok)
	}
	for _, foreign := range []string{"", "p:", "p:{}", "p:{ab}", want + "x", "x" + want, want[2:], want[:len(want)-1],
		"p:{" + strings.ToUpper(want[3:67]) + "}"} {
		if _, ok := s.idOf(foreign); ok {
			t.Errorf("%q passes for a key of ours", foreign)
		}
	}
}

func TestDurationsKeepTheirOrder(t *testing.T) {
	if got := micros(1); got != 1 {
		t.Errorf("1 ns is %d µs, want 1: what is positive stays so", got)
	}
	if got := micros(time.Hour); got != 3_600_000_000 {
		t.Errorf("1 h is %d µs", got)
	}
	if got := micros(1<<63 - 1); got != micros(century) {
		t.Errorf("the longest duration is %d µs", got)
	}
	if got := duration(1<<63 - 1); got <= century {
		t.Errorf("the longest time is %v", got)
	}
}
