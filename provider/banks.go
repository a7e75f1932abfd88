package provider

import "github.com/idem-go/idem"

// ModernTreasury looks keys up per API credential, and not per route: another
// route under a key gets the first one's answer. Only successes are replayed.
// It does not compare the payload.
//
// Source: https://docs.moderntreasury.com/reference/idempotent-requests
var ModernTreasury = idem.Contract{
	Name: "Modern Treasury", Header: "Idempotency-Key", Retention: day,
	Answers: []idem.Answer{
		{Status: 409, Means: idem.MeansInFlight},
	},
}

// Dwolla looks up key and exact body together: a changed body under a key is
// likely a new transfer there, which this side refuses. Unverified: what it
// does then.
//
// Source: https://developers.dwolla.com/docs/balance/api-reference/api-fundamentals/idempotency-key
var Dwolla = idem.Contract{
	Name: "Dwolla", Header: "Idempotency-Key", Retention: day,
	Answers: []idem.Answer{
		{Status: 409, Means: idem.MeansInFlight},
	},
}

// Wise takes keys at some endpoints: profiles, balances, card orders. A transfer
// has the body's customerTransactionId instead; see WiseTransfers. Unverified:
// the retention, what a mismatch and a request in flight are answered.
//
// Source: github.com/transferwise/api-docs, source/includes/reference/_borderless.md
var Wise = idem.Contract{
	Name: "Wise", Header: "X-Idempotence-Uuid", Version4: true, Retention: Unpublished,
}

// WiseTransfers is how Wise's transfers take keys. The rest is as for Wise.
//
// Source: github.com/transferwise/api-docs, source/includes/reference/_transfers.md
var WiseTransfers = idem.Contract{
	Name: "Wise transfers", Field: "customerTransactionId", Version4: true, Retention: Unpublished,
}

// Plaid takes the key in the body, at some endpoints, and remembers it for 24
// hours (wallets) or 48. Transfers are created under their authorization_id
// instead. A transfer may have been created behind a 500. Unverified: what a
// mismatch and a request in flight are answered.
//
// Source: github.com/plaid/plaid-openapi, 2020-09-14.yml
var Plaid = idem.Contract{
	Name: "Plaid", Field: "idempotency_key", MaxKeyLen: 50, Retention: day,
	Credentials: []string{"Plaid-Client-Id"},
}

// Razorpay is RazorpayX payouts, where the key is mandatory. A payout that failed
// stays failed under its key. Unverified: the retention, what a request in
// flight is answered, the status of a mismatch, which is a BAD_REQUEST_ERROR like
// others.
//
// Source: https://razorpay.com/docs/api/x/payout-idempotency/
var Razorpay = idem.Contract{
	Name: "RazorpayX payouts", Header: "X-Payout-Idempotency", MaxKeyLen: 36, KeyChars: word + " ", Retention: Unpublished,
}

// Xendit says of payouts that keys do not expire, and of nothing else how long
// they live. A key that was used is 409 DUPLICATE_ERROR or IDEMPOTENCY_ERROR; which of
// the two means what is not said, so that either leaves the outcome unknown.
// Unverified: the longest key, what is replayed, requests in flight.
//
// Source: github.com/xendit/xendit-node, payment_method/models/CreatePaymentMethod409Response.ts
var Xendit = idem.Contract{
	Name: "Xendit", Header: "Idempotency-Key", Retention: Unpublished,
	Answers: []idem.Answer{
		{Status: 409, Code: "DUPLICATE_ERROR", Means: idem.MeansUnknown},
		{Status: 409, Code: "IDEMPOTENCY_ERROR", Means: idem.MeansUnknown},
	},
}

// CoinbaseCDP wants a UUID of version 4. A mismatch is idempotency_error, with
// 422 or, by other pages of it, 409. After a 500 the status is unknown.
//
// Source: https://docs.cdp.coinbase.com/api-reference/payment-apis/conventions
var CoinbaseCDP = idem.Contract{
	Name: "Coinbase CDP", Header: "X-Idempotency-Key", MaxKeyLen: 128, Version4: true, Retention: day,
	Answers: []idem.Answer{
		{Code: "idempotency_error", Means: idem.MeansMismatch},
		{Status: 409, Code: "already_exists", Means: idem.MeansInFlight},
	},
}

// Increase binds a key to the object that it created, for good as it seems; it
// states no retention. What was created can be listed by ?idempotency_key=.
// Unverified: the retention, requests in flight.
//
// Source: https://increase.com/documentation/idempotency-keys.md
var Increase = idem.Contract{
	Name: "Increase", Header: "Idempotency-Key", MaxKeyLen: 200, Retention: Unpublished,
	ReplayHeader: "Idempotent-Replayed", RetryHeader: "X-Should-Retry",
	Answers: []idem.Answer{
		{Status: 409, Code: "idempotency_key_already_used_error", Means: idem.MeansMismatch},
	},
}

// Column takes printable ASCII and remembers keys for 30 days, at the endpoints
// that it lists. Only successes are replayed. Unverified: what a mismatch and a
// request in flight are answered.
//
// Source: https://docs.column.com/markdown/working-with-the-api/idempotency.md
var Column = idem.Contract{
	Name: "Column", Header: "Idempotency-Key", MaxKeyLen: 255, Retention: 30 * day,
}

// Moov does not replay: every repeat is 409, which after an unknown outcome means
// that the first attempt went through, and has to be looked up. Keys never
// expire. Unverified: requests in flight.
//
// Source: https://docs.moov.io/guides/money-movement/idempotency
var Moov = idem.Contract{
	Name: "Moov", Header: "X-Idempotency-Key", MaxKeyLen: 36, Retention: Forever,
	Answers: []idem.Answer{
		{Status: 409, Means: idem.MeansNotRetained},
	},
}

// Circle takes the key in the body, as a UUID of version 4. Unverified: the
// retention, requests in flight.
//
// Source: https://developers.circle.com/api-reference/idempotent-requests
var Circle = idem.Contract{
	Name: "Circle", Field: "idempotencyKey", Version4: true, Retention: Unpublished,
	Answers: []idem.Answer{
		{Status: 409, Means: idem.MeansMismatch},
	},
}
