// Package provider has the contracts of payment providers and of specifications:
// how each takes keys, for how long it remembers them, and what its answers
// mean. Set one as idem.Config.Contract:
//
//	client, err := idem.New(idem.Config{Scope: "shop/charge", Contract: provider.Stripe})
//
// A Contract is a plain value: copy it and change what your account has agreed
// otherwise. Each is written from the provider's own documentation or source,
// named in its comment; what is not found there is marked "unverified". Where a
// provider publishes no retention, Unpublished stands for it; where it says that
// keys never expire, Forever.
//
// None of this makes a provider's promise yours. Try yours in its sandbox.
package provider

import "time"

const (
	// Unpublished is the retention that is assumed where a provider publishes
	// none: no attempt is sent later than that after the first one. No contract
	// here has a shorter one; some queues and databases do.
	Unpublished = time.Hour
	// Forever is the retention of providers that never forget a key.
	Forever = 10 * 365 * day

	day = 24 * time.Hour
	// word are the characters that some take, and no others.
	word = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
)
