package main

import (
	"slices"

	"github.com/idem-go/idem/internal/servertest"
)

// shared are the servers that groups have in common, each started when the
// first of them needs it. It is for one goroutine.
type shared struct {
	postgres *servertest.PostgresServer
	redis    *servertest.RedisServer
	mariadb  *servertest.MariaDBServer
	stops    []func()
}

func (sh *shared) stop() {
	for _, f := range slices.Backward(sh.stops) {
		f()
	}
}

// postgresURL is that of a server which waits for its disk, as one does by
// default. What the autovacuum does at times would be met by one contender
// only, so it is off.
func (sh *shared) postgresURL() (string, error) {
	if sh.postgres == nil {
		s, err := servertest.StartPostgres("fsync=on", "full_page_writes=on", "autovacuum=off", "max_wal_size=4GB", "checkpoint_timeout=1h")
		if err != nil {
			return "", err
		}
		sh.postgres, sh.stops = s, append(sh.stops, s.Stop)
	}
	return sh.postgres.URL, nil
}

// redisAddr is that of a server without a file.
func (sh *shared) redisAddr() (string, error) {
	if sh.redis == nil {
		s, err := servertest.StartRedis(servertest.RedisOptions{})
		if err != nil {
			return "", err
		}
		sh.redis, sh.stops = s, append(sh.stops, s.Stop)
	}
	return sh.redis.Addr, nil
}

// mariadbServer is one that waits for its disk.
func (sh *shared) mariadbServer() (*servertest.MariaDBServer, error) {
	if sh.mariadb == nil {
		s, err := servertest.StartMariaDB(servertest.MariaDBOptions{Durable: true})
		if err != nil {
			return nil, err
		}
		sh.mariadb, sh.stops = s, append(sh.stops, s.Stop)
	}
	return sh.mariadb, nil
}
