// Package idemtest is the kit with which programs prove that what they do once
// happens once: a transport that injects the faults of a network, a ledger that
// counts effects, and a payment provider to test against.
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
// uses. The ledger belongs where the effect is.
package idemtest
