package provider

import (
	"time"

	"github.com/idem-go/idem"
)

// Stripe is Stripe's API v1. Keys are remembered for 24 hours at least. A 4xx
// that came after the execution had begun is stored, and so is a 500, which is
// replayed: then nobody but Stripe's records knows. Validation errors, 401, 429
// and concurrent requests are not stored. A key belongs to one endpoint and its
// parameters. Unverified: the status of a mismatch.
//
// Source: https://docs.stripe.com/api/idempotent_requests
var Stripe = idem.Contract{
	Name: "Stripe v1", Header: "Idempotency-Key", MaxKeyLen: 255, Retention: day,
	ReplayHeader: "Idempotent-Replayed", RetryHeader: "Stripe-Should-Retry",
	Answers: []idem.Answer{
		{Status: 409, Code: "idempotency_key_in_use", Means: idem.MeansInFlight}, // of the same type as a mismatch
		{Code: "idempotency_error", Means: idem.MeansMismatch},
		{Status: 429, Code: "lock_timeout", Means: idem.MeansNotExecuted},
	},
	Credentials: []string{"Stripe-Account"},
}

// StripeV2 is Stripe's API v2 (/v2/…). Keys are remembered for 30 days. Unlike in
// v1, a request that failed is carried out again under the same key. Unverified:
// the longest key, and what a mismatch and a request in flight are answered.
//
// Source: https://docs.stripe.com/api-v2-overview
var StripeV2 = idem.Contract{
	Name: "Stripe v2", Header: "Idempotency-Key", MaxKeyLen: 255, Retention: 30 * day,
	RetryHeader: "Stripe-Should-Retry",
	Credentials: []string{"Stripe-Account", "Stripe-Context"},
}

// PayPal is PayPal's REST APIs, with the shortest retention of any of them, 3
// hours; see PayPalOrders, PayPalPayments and PayPalPayouts. A repeat gets the
// state of now, not the first answer, and 200 instead of 201. A key is for one
// kind of call. Unverified: what a mismatch is answered, whether errors are
// stored.
//
// Source: https://developer.paypal.com/reference/guidelines/idempotency.md
var PayPal = idem.Contract{
	Name: "PayPal", Header: "PayPal-Request-Id", MaxKeyLen: 38, Retention: 3 * time.Hour,
	Answers: []idem.Answer{
		{Status: 409, Code: "PREVIOUS_REQUEST_IN_PROGRESS", Means: idem.MeansInFlight},
	},
}

// PayPalOrders is PayPal's orders v2: 6 hours, or up to 72 by agreement. The
// rest is as for PayPal.
//
// Source: https://developer.paypal.com/reference/guidelines/idempotency.md
var PayPalOrders = withRetention(PayPal, "PayPal orders v2", 6*time.Hour)

// PayPalPayments is PayPal's payments v2: 45 days. The rest is as for PayPal.
//
// Source: https://developer.paypal.com/reference/guidelines/idempotency.md
var PayPalPayments = withRetention(PayPal, "PayPal payments v2", 45*day)

// PayPalPayouts is PayPal's payouts v1: 30 days. The rest is as for PayPal.
// Payouts also refuse a sender_batch_id that they have seen.
//
// Source: https://developer.paypal.com/reference/guidelines/idempotency.md
var PayPalPayouts = withRetention(PayPal, "PayPal payouts v1", 30*day)

func withRetention(c idem.Contract, name string, d time.Duration) idem.Contract {
	c.Name, c.Retention = name, d
	return c
}

// Square takes the key in the body; 45 characters fit everywhere. It publishes
// no retention. A declined payment uses its key up. Unknown outcomes can be
// cancelled by key: POST /v2/payments/cancel. Unverified: what a request in
// flight is answered, the status of a mismatch.
//
// Source: https://developer.squareup.com/docs/working-with-apis/idempotency
var Square = idem.Contract{
	Name: "Square", Field: "idempotency_key", MaxKeyLen: 45, Retention: Unpublished,
	Answers: []idem.Answer{
		{Code: "IDEMPOTENCY_KEY_REUSED", Means: idem.MeansMismatch},
	},
}

// Adyen remembers keys for 7 days at least, per company account and region.
// Errors are stored, but for those that its header Transient-Error marks. A
// request in flight is error 704. Unverified: what a mismatch is answered;
// the retention and 704 are from other people's copies of its documentation.
//
// Source: https://docs.adyen.com/development-resources/api-idempotency
var Adyen = idem.Contract{
	Name: "Adyen", Header: "Idempotency-Key", MaxKeyLen: 64, Retention: 7 * day,
	RetryHeader: "Transient-Error",
	Answers: []idem.Answer{
		{Code: "704", Means: idem.MeansInFlight},
		{Code: "703", Means: idem.MeansNotExecuted},
	},
	Credentials: []string{"X-Api-Key"},
}

// Braintree is Braintree's GraphQL API, whose inputs take apiRequestKey; its
// older SDKs have no keys. Errors come with status 200, and an errorClass in
// their extensions: a mismatch and a request in flight are both VALIDATION, and
// can't be told apart, so that neither is repeated, nor taken for a refusal. An
// error without a known class is taken for an execution: look at the answer. A
// repeat gets the state of now. Unverified: the longest key, whether a guard or
// a limit answers AUTHENTICATION, AUTHORIZATION and RESOURCE_LIMIT before any
// work, as their descriptions say.
//
// Source: https://developer.paypal.com/braintree/graphql/integration_guides/idempotency
var Braintree = idem.Contract{
	Name: "Braintree GraphQL", Field: "variables.input.apiRequestKey", Retention: 30 * day,
	Answers: []idem.Answer{
		{Status: 200, Code: "VALIDATION", Means: idem.MeansUnknown},
		{Status: 200, Code: "INTERNAL", Means: idem.MeansUnknown},
		{Status: 200, Code: "SERVICE_AVAILABILITY", Means: idem.MeansUnknown},
		{Status: 200, Code: "NOT_FOUND", Means: idem.MeansUnknown},
		{Status: 200, Code: "NOT_IMPLEMENTED", Means: idem.MeansRejected},
		{Status: 200, Code: "UNSUPPORTED_CLIENT", Means: idem.MeansRejected},
		{Status: 200, Code: "AUTHENTICATION", Means: idem.MeansNotExecuted},
		{Status: 200, Code: "AUTHORIZATION", Means: idem.MeansNotExecuted},
		{Status: 200, Code: "RESOURCE_LIMIT", Means: idem.MeansNotExecuted},
	},
}

// CheckoutCom is Checkout.com's API, for payments and transfers only. Keys are
// remembered for a day, or as agreed. Only successes are replayed: after an
// error the same key is carried out again. Unverified: 429 for a request in
// flight, what a mismatch is answered, the longest key.
//
// Source: https://www.checkout.com/docs/payments/manage-payments/idempotency
var CheckoutCom = idem.Contract{
	Name: "Checkout.com", Header: "Cko-Idempotency-Key", Retention: day,
	Answers: []idem.Answer{
		{Status: 429, Means: idem.MeansInFlight},
	},
}

// Mollie remembers keys for one hour only. It answers a mismatch, also of the
// endpoint, with a 400 like any other. Unverified: the longest key, whether
// errors are stored.
//
// Source: https://docs.mollie.com/overview/api-idempotency
var Mollie = idem.Contract{
	Name: "Mollie", Header: "Idempotency-Key", Retention: time.Hour, ReplayHeader: "Idempotent-Replayed",
	Answers: []idem.Answer{
		{Status: 409, Means: idem.MeansInFlight},
	},
}

// GoCardless does not replay: a repeat is answered 409 with the reason
// idempotent_creation_conflict and the ID of what was created first, to be
// fetched. It is not seen to compare the payload. Unverified: the retention.
//
// Source: https://gocardless.com/blog/idempotency-keys
var GoCardless = idem.Contract{
	Name: "GoCardless", Header: "Idempotency-Key", Retention: Unpublished,
	Answers: []idem.Answer{
		{Status: 409, Code: "idempotent_creation_conflict", Means: idem.MeansNotRetained},
	},
}

// Klarna is Klarna's order management. The key alone counts: another amount under
// a key gets the old outcome, so it is this side that compares. Unverified: what
// a request in flight is answered, and what exactly is replayed.
//
// Source: https://docs.klarna.com/acquirer/klarna/get-started/integration-resilience/escalation-and-retry-policy
var Klarna = idem.Contract{
	Name: "Klarna order management", Header: "Klarna-Idempotency-Key", Retention: day,
}

// MercadoPago answers 423, or 409, while a request is in flight; 409 may be a
// conflict as well, so that it is waited for and then left unknown. Unverified:
// the retention, the longest key.
//
// Source: https://www.mercadopago.com.ar/developers/en/docs/wallet-connect/payment-flow/idempotency/responses
var MercadoPago = idem.Contract{
	Name: "Mercado Pago", Header: "X-Idempotency-Key", Retention: Unpublished,
	Answers: []idem.Answer{
		{Status: 423, Means: idem.MeansInFlight},
	},
}

// Rapyd honours keys when payments are created, and elsewhere by agreement. It
// compares key and amount: another amount under a key is a second payment there,
// which this side refuses. Another currency gets the first answer.
//
// Source: https://docs.rapyd.net/en/idempotency.html
var Rapyd = idem.Contract{
	Name: "Rapyd", Header: "Idempotency", Retention: day,
	Credentials: []string{"Access_key"},
}

// Worldpay is Worldpay's WPG (XML, direct). Its store of keys fails open: a
// request whose key can't be looked up is carried out. All its errors about keys
// have code 9, told apart by their text, which is not read here: an error with status
// 200 is taken for an execution, so look at the answer. The retention is
// agreed, a day at least. Unverified: what a mismatch is answered.
//
// Source: https://developer.worldpay.com/docs/wpg/idempotency/
var Worldpay = idem.Contract{
	Name: "Worldpay WPG", Header: "Idempotency-Key", Retention: day,
}

// AmazonPay takes 32 letters, digits, dashes and underscores, so that a UUID goes
// without its dashes. It never forgets a key. Unverified: the status of a
// mismatch, what a request in flight is answered.
//
// Source: https://developer.amazon.com/docs/amazon-pay-api-v2/idempotency.html
var AmazonPay = idem.Contract{
	Name: "Amazon Pay", Header: "X-Amz-Pay-Idempotency-Key", MaxKeyLen: 32, KeyChars: word, Undashed: true, Retention: Forever,
	Answers: []idem.Answer{
		{Code: "DuplicateIdempotencyKey", Means: idem.MeansMismatch},
	},
}
