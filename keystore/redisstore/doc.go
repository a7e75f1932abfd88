// Package redisstore keeps the records of package keystore in Redis.
//
//	client := redis.NewClient(&redis.Options{Addr: "localhost:6379", ContextTimeoutEnabled: true})
//	store, err := redisstore.New(client, redisstore.Config{})
//
// A record is one hash under one key, the prefix and the record's ID in
// braces, and every call is one Lua script on that key: it runs whole or not
// at all, by the server's clock, in a cluster as on a single server. There is
// no schema to create; every record carries the version of its format, and one
// of a newer format is keystore.ErrFormat. Tokens are 64-bit integers to Redis
// and text to Lua, whose numbers would lose digits above 2^53. A record's first
// token is the server's time in microseconds, so that tokens rise even over
// the loss or the end of a record, as long as that clock does not step back.
//
// # What Redis can and cannot promise
//
// A claim is as durable as the server's writes. That is a matter of the
// server's configuration, and this package cannot see it:
//
//   - appendonly yes, appendfsync always: what was acknowledged survives a
//     crash of the server and of its machine.
//   - appendfsync everysec: a crash of the machine loses up to about two
//     seconds of acknowledged writes.
//   - no append-only file, as Redis comes: a crash loses everything since the
//     last snapshot. FLUSHALL loses everything always.
//   - replicas: replication is asynchronous. A fail-over loses what the new
//     master had not received, Config.Replicas makes that rare, not impossible.
//   - maxmemory-policy must be noeviction. Any other one removes records that
//     are needed, running ones included. With noeviction a full server refuses
//     new claims (keystore.ErrFull), and renewals and completions too.
//
// When a claim is lost the next claim for the same intent is granted, while the
// first owner may be at work: the effect can happen twice. The record stays
// fenced even then: the first owner's Renew, Complete and Release are
// keystore.ErrFenced. Where an effect must not happen twice though a server
// was lost, use a store on a database that has synchronous replication.
//
// # Expiry
//
// Redis removes the records that no rule needs any more by itself: Done ones
// after their retention, Free ones and dead ones that had not begun after their
// Keep. So Purge has nothing to do. A begun record that is running or
// unresolved has no expiry, whatever its lease: somebody has to settle it.
//
// # Listing
//
// Records by ID is one script. Every other query walks through all keys of the
// database (of every master, in a cluster) with SCAN, once per page: it is meant
// for recovery at a start or every few minutes, not for each request. Each
// record was as returned at one moment, the page was not. While a cluster moves
// slots between its nodes a page may lack records, or fail.
//
// # Access rights and versions
//
// A Redis user (ACL) for the prefix idem: needs ~idem:* &idem:* and
//
//	+evalsha +eval +script|load +scan +type +hmget +hget +hexists +hset +hincrby
//	+persist +pexpireat +time +publish +subscribe +ping
//
// with Config.Replicas +wait too, and in a cluster +cluster +command +watch
// +unwatch. The scripts use what Redis 5 has; the tests run on Redis 7.0. All
// processes that share records must use one prefix and one database.
package redisstore
