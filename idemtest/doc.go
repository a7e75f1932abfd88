// Package idemtest is the kit with which programs prove that what they do once
// happens once: checks that try a handler and a caller, a transport and a proxy
// that inject the faults of a network, a ledger that counts effects, and a
// payment provider to test against.
//
// CheckHandler tries a handler with duplicates, hang-ups, panics, restarts and
// more; CheckCaller tries code that calls such a handler. Both say in plain
// words which rule is broken, what usually causes that, and how to mend it.
//
// To write such tests by hand:
//
//	provider, _ := idemtest.NewProvider(idemtest.ProviderConfig{})
//	ts := httptest.NewServer(provider)
//	tr := idemtest.NewTransport(nil, idemtest.LoseReply) // charged, but the reply is lost
//	client, _ := idem.New(idem.Config{Scope: "acme/charge"})
//	charge(&http.Client{Transport: client.Transport(tr)}, ts.URL, order) // your code
//	provider.Ledger().Once(t, order.ID)
//
// Faults happen to attempts, so the transport goes below idem's: as the base
// that Client.Transport gets, or in the http.Client that a decorated function
// uses. A Proxy breaks real connections, also those to a store. The ledger
// belongs where the effect is.
package idemtest
