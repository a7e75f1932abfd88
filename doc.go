// Package idem is for operations that must happen once: charging a card,
// creating an order, sending a notification.
//
// The reply to a request gets lost. "Never arrived" and "done, but the reply
// was lost" look the same to the caller, so a retry may do the work twice and
// giving up may lose it. The way out is an agreement: the caller names its
// intent once, and sends the same name and the same payload with every attempt;
// the server lets one name have at most one effect. This package is the
// caller's half of it, the client half; package server is the other. Either
// works with a stranger on the other side, as far as that one keeps to the
// agreement.
//
// # Three doors
//
// Inside an HTTP client, every POST gets a key, and is retried where that is
// safe:
//
//	client, err := idem.New(idem.Config{Scope: "shop/charge"})
//	hc := &http.Client{Transport: client.Transport(nil)}
//	ctx = idem.WithIntent(ctx, idem.Intent{ID: order.ID})
//	req, err := http.NewRequestWithContext(ctx, "POST", url, body)
//	resp, err := hc.Do(req)
//
// Around a function, such as a payment provider's SDK:
//
//	res, err := idem.Do(ctx, client, idem.Intent{ID: order.ID, Payload: order},
//		func(ctx context.Context, key idem.Key) (Receipt, error) {
//			return gateway.Charge(ctx, order, string(key))
//		})
//
// As a decorator, where the intent follows from the argument:
//
//	charge := idem.Wrap(client, func(o Order) idem.Intent { return idem.Intent{ID: o.ID} }, chargeOrder)
//	receipt, err := charge(ctx, order)
//
// # What is promised
//
// All attempts of an intent carry one key and one payload. An attempt is
// repeated only if it was proven not to have been executed, or if the server
// honours the key. Callers of one intent in a process share one call. What is
// known about the execution is said, and "unknown" is said where it is unknown:
// every error is an *Error with an Outcome. With a store, the key is written
// before the first byte leaves, another payload under it is refused, and a
// settled result is replayed after a restart.
//
// # What is not promised
//
// There is no exactly-once delivery, and no library can add it. A server that
// ignores keys is not made safe by sending them (use Keyless for it). Once a
// server has forgotten a key, a retry is a new operation. One key covers one
// step, not a workflow: give each step a child key (Key.Child). A key is no
// authorization. And a claim protects the record, not the world: an e-mail that
// was sent stays sent.
//
// # Outcome and error
//
// Ask two separate questions of a failed call: was it executed, and what now?
//
//	OutcomeNotExecuted  it did not happen; calling again is safe
//	OutcomeRejected     it did not happen, and won't; change the request
//	OutcomeInFlight     somebody else is at it; ask again later
//	OutcomeUnknown      nobody knows: call again with the same intent, or park
//	                    the key and reconcile; never start anew
//	OutcomeExecuted     it happened, but its result is not to be had
//
// # After a crash
//
// With a durable store an intent outlives its process. The next call with the
// same scope and ID finds its record, and goes on under the same key, with the
// same payload or not at all; Resume finds and carries out all that is left in
// a scope. When the server may have forgotten the key nothing is sent any more
// (ErrKeyExpired), and Config.Recover is asked what became of the intent.
//
// # Composition
//
// A Client is made once and shared: it merges calls and keeps retry budgets.
// Inside a function that Do calls, a request through Transport is sent once,
// under the same key: layers do not multiply attempts. Put circuit breakers and
// fallbacks inside the function, so that a joined or replayed call starts none
// of them; fall back to another provider only after NotExecuted or Rejected.
package idem
