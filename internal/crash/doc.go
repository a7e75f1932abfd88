// Package crash kills things while intents are under way, and counts what
// happened in the end.
//
// A client, two servers, the store's server and a ledger run as processes of
// their own. One of them, picked at random, is killed with SIGKILL at a random
// moment and started again, some hundred times. The ledger is never killed: it
// is the world, in which effects happen. It knows intents by the names that the
// business gives them, not by keys.
//
//	client ── the client half, its records in the store
//	  │ POST /orders/{id}
//	servers ── the server half, its records in the same store
//	  │ POST /effects/{id}
//	ledger ── an append-only file
//
// At the end everything is driven until it is settled. Then each intent whose
// caller was told "executed" has exactly one effect, and the caller was told of
// that one; each that was refused has none; no record is unresolved.
package crash
