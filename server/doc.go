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
// Where the store fails after the run, an execution is answered all the same,
// and recorded as soon as the store is back. A refusal is answered 503 until it
// is recorded: whoever is told of it may go on to its next key, while another
// run under this one might still have the effect.
//
// # Routers and frameworks
//
// Handler takes and gives an http.Handler, and fits wherever those do: around a
// mux or behind one, as chi's With, as echo.WrapMiddleware. What a framework
// answers only after its middleware, an error that an echo handler returns, say,
// this package can't see: it sees a handler that wrote nothing, which is an
// answer with status 200. Have the error answered within, by calling c.Error
// in a middleware of your own between this one and the handler.
//
// # Transactions
//
// With Effects Transaction the handler or function runs inside InTx of the
// store: it finds the transaction by its context (pgstore.TxFrom,
// sqlitestore.TxFrom), and what it does there is committed together with the
// record, before the answer is written. All of its effects must be in that
// transaction. A failure, a panic, and MaxRun roll them back, and the next
// attempt runs. So does the process' death: the claim is part of the
// transaction and needs no lease. A definitive refusal (4xx, idem.Rejected) is
// recorded, but rolls back what was done on the way to it.
//
// Until the commit nothing may leave, so the whole answer is held back: the
// ResponseWriter can neither flush nor be hijacked, and an answer over
// Config.MaxResponse is rolled back. Duplicates in the same process wait in
// memory, and those elsewhere for a moment at a time in a transaction of their
// own: none of them keeps a connection while it waits. Requests that run
// unprotected, on an optional route, have no transaction.
//
// Where a commit fails, the record is asked whether it happened. If that
// can't be told either, the outcome is unknown, and a retry is safe: it finds
// the record, or runs.
//
// # Unresolved records
//
// What may have happened is never run again by itself. Such a record answers
// recovery-required, and does not expire. Config.Recover is asked what became of
// it: by the next duplicate, which then gets the answer that was found, or runs;
// and by Reconcile, on a timer, for those whose clients do not come back. Before
// it is asked the record is taken over: a former owner that is still at work has
// lost its claim by then, and finds that out at BeginEffect, by its context, and
// when it settles. What it does in between, unasked, nobody can prevent.
//
//	for range time.Tick(time.Minute) {
//		n, err := srv.Reconcile(ctx)
//	}
//
// Without a hook, somebody has to say it by hand: find it with
// Query{Unresolved: true}, claim it with Takeover under its own fingerprint, and
// Complete it, or Release it with Forget if it did not happen. The command idem
// does that.
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
//	recovery-required      409  nobody knows whether it was executed; with Config.Recover,
//	                            Retry-After tells when it is asked again
//	response-not-retained  409  executed, but the answer was not kept
//	answer-too-large       500  rolled back: the answer is over Config.MaxResponse
//	record-unreadable      500  the record is corrupt or of a newer format
//	store-unavailable      503  the store failed, the handler did not run
//	rolled-back            503  the transaction could not be committed
//	commit-unknown         503  nobody knows whether the transaction was committed
//	shutting-down          503  Shutdown was called
package server
