// Package model explores the claim protocol exhaustively: every order in which
// a few owners, the messages between them and the store, and time can take
// their steps. It checks what must hold of each step, and tells, where it does
// not hold, the shortest way to it in words.
//
// # What is modelled
//
// One record, as keystore.Store describes it: Claim with its nonce, Takeover
// and Begun, Renew with and without Begun, Complete, the three releases, Purge,
// and the end of a lease, of Keep and of the retention.
//
// Executors, which do what the server half does in the modes Opaque, Marked and
// Idempotent: they claim, write that they begin, have their effect, settle by
// what it came to, and take back a claim of unknown fate. Recoverers, which
// settle an unresolved record: they take it over, then ask the world, and then
// complete, forget, reject or abandon it.
//
// A call is on its way until it arrives. It may be lost, arrive later than its
// sender waits, arrive any number of times, or arrive without its answer coming
// back; its sender repeats it or gives up. An effect is on its way too, and may
// land after its owner has given up or crashed. Owners crash at any step. A
// paused owner is one whose next step comes late, and since every order of
// steps is explored, so is every pause.
//
// # What it shows
//
// The invariants (see Invariant) hold in every state that can be reached, and
// each rule (see Rule) is needed: without it, an invariant breaks. One limit is
// part of the protocol: a claim is fenced, an effect is not. An intent has at
// most one effect, not counting those of a replaced owner that land after a
// recoverer has taken the record over, asked the world and heard no. An Opaque
// owner may even start such an effect after it was replaced; a Marked one only
// if the store had accepted its begun before. Where nobody takes over, there is
// no such effect. A second limit: the store knows the nonce of the latest claim
// only, so a very late copy of an older, freed claim is granted to nobody; it
// has no effect, but may have to be recovered.
// The tests named TestLimit hold both.
//
// The tests also make memstore do all that the model's store does, and compare
// the answers and the record, so that contract and model do not drift apart.
//
// # What is not
//
// Durations and clocks: a lease may die at any moment, and an owner does not
// look at its own clock, which makes it only more careful. Keep and the
// retention are longer than any call is on its way, and the retention longer
// than any owner is stalled. Fingerprints, Meta, results, several records,
// transactions, and stores that lose what they have answered are left to
// keystoretest and to the stores' own tests. So many owners, and so many calls
// on their way at once, as the Model says: more are not explored.
package model
