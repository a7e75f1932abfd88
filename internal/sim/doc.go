// Package sim plays both halves of idem, several processes of each, in one
// bubble of fake time, and lets everything go wrong that can: from one seed, so
// that what went wrong can be played again.
//
//	clients ── the client half, or a queue that delivers until it is acknowledged
//	  │ messages are lost, late, doubled, overtake each other
//	servers ── the server half: Handler, Run, Recover, Reconcile
//	  │ calls to the store are refused, lost, applied late, twice, or unanswered
//	store ── keystore/memstore, which never dies
//	ledger ── the world: an effect is on its way for a moment, and then stays
//
// Any process crashes and is started again: what it has sent arrives all the
// same, what it would have sent or heard does not, and its memory is gone.
// Messages and processes can be slower than a lease, renewals are lost, and no
// two processes' clocks run equally fast. Then everything is healed, what is
// unknown is driven again until it is known, and the ledger is compared with
// what every caller was told on the way; see Invariant.
//
// # Clocks
//
// Nothing that the halves send or store holds a point in time, only durations
// (leases, ages, retentions): so the offset between two clocks can't matter and
// there is nothing to simulate. That clocks run at different speeds can: what a
// process asks of the store, and hears from it, is stretched by a rate of its
// own, up to maxDrift.
//
// # The world's manners
//
// A claim is fenced, an effect under way is not (see package server): so the
// handlers here look at their claim right before the effect, and who recovers
// waits for longer than an effect can be under way before it asks the ledger. A
// handler in Idempotent mode refuses an order always or never, since a refusal
// after an effect is not idempotent; in the other modes it may change its mind
// from one run to the next. Messages that are doubled are doubled behind the
// guard that answers 401 and 429, as a proxy does it. Servers remember their
// answers for longer than anybody asks.
//
// Not here: Transaction mode, FailOpen, RandomKeys, redirects, stores that lose
// what they have answered, and a retention that ends. See the tests of the
// packages themselves, and internal/crash.
//
// # Playing a seed again
//
// What happens to a message follows from the seed, its sender, its subject and
// its number among those, never from the order in which goroutines run; and
// every message takes a time of its own, so that seldom two things happen at
// one instant. Four sources of chance are left in the code under test. The
// pauses between two attempts are of 1 ms by the policy. Retry-After, which the
// halves spread, is taken out on the way. A record is polled when its lease
// ends, which is before the spread poll. And the server half's repeats in the
// background, which are spread as well, are held up on their way to the store
// until the latest moment at which they could have been sent. So a seed gives
// one trace, but for the words of errors and where two deadlines of the code
// under test end at one instant; and but for the seeds that are not steady: one
// in eight has all of that as users have it. Nonces are random, and in no trace.
package sim
