// Package server is the server half of idem: a net/http middleware and a
// function-level Run that let one key have at most one effect.
//
//	srv, err := server.New(server.Config{
//		Store:   store,
//		Effects: server.Marked,
//		Scope:   func(r *http.Request) (string, error) { return userID(r), nil },
//	})
//	mux.Handle("POST /charges", srv.Handler(chargeHandler))
//
// A request is claimed in the store under its key before the handler runs.
// Duplicates wait for the first one and get its stored answer, marked with
// Idempotent-Replayed: true; the first answer says false there. A key that
// comes again with another payload is refused. What may be run again after a
// failure, the application declares with Effects.
//
// # Order
//
// Authenticate and resolve the tenant in front of this package, so that Scope
// can tell who asks, and a 401, 403 or 429 of yours never takes a key. Compress
// in front of it as well: the handler is asked for the identity encoding, since
// a replay may go to a client that accepts another one. Within, the order is:
// key, body and fingerprint, scope, claim, handler, store, wire. The answer is
// stored before it is written.
//
// # What is stored
//
// A definitive answer: 2xx, 3xx, and 4xx except 401, 403, 407, 408, 425 and
// 429. Anything else, and a panic, is a failure, which is never stored. Status,
// body and headers are kept, except for those that belong to one exchange:
// hop-by-hop headers and trailers, Date, Content-Length, cookies, credentials,
// rate limits, Retry-After and trace headers. An answer that is flushed (as
// httputil.ReverseProxy does where the length is unknown), hijacked, an event
// stream or larger than Config.MaxResponse goes to its caller as it is written
// and leaves a tombstone: retries are told how it ended, and it is
// never run again.
//
// # Problems
//
// Refusals are application/problem+json (RFC 9457) with these codes:
//
//	key-missing            400  the route requires a key
//	key-invalid            400  empty, malformed, too long, or two header lines
//	body-incomplete        400  the request's body was cut short
//	body-invalid           400  Config.Fingerprint refused the body
//	scope-refused          403  Config.Scope gave no scope
//	replay-refused         403  Config.Authorize refused the replay
//	body-too-large         413  over Config.MaxRequest
//	key-reused             422  the key belongs to another payload
//	in-flight              409  another attempt is running; 425 with Config.TooEarly
//	recovery-required      409  nobody knows whether it was executed
//	response-not-retained  409  executed, but the answer was not kept
//	record-unreadable      500  the record is corrupt or of a newer format
//	store-unavailable      503  the store failed, the handler did not run
//	shutting-down          503  Shutdown was called
package server
