package provider_test

import "github.com/idem-go/idem"

// fixture is what one provider sends and takes, written from the source that its
// contract's comment names, and not from the contract.
type fixture struct {
	carrier string // header NAME, or field PATH
	body    string // a request that it takes
	// inFlight and mismatch are replies, with what they must come to; a zero
	// status where none is known.
	inFlight reply
	mismatch reply
	// repeat is the reply to a repeat of what was done, if it is not the first
	// one again.
	repeat reply
	// stored is the header of an error that comes from a record, where those
	// are stored.
	stored string
	// fits tells of a derived key whether the provider would take it.
	fits func(string) bool
}

type reply struct {
	status int
	header string // NAME: VALUE
	body   string
	means  idem.Outcome
	is     error
}

const plain = `{"amount":100}`

func short(n int) func(string) bool { return func(k string) bool { return len(k) <= n } }

func version4(k string) bool { return len(k) == 36 && k[14] == '4' && (k[19] >= '8' && k[19] <= 'b') }

var fixtures = map[string]fixture{
	"Stripe": {carrier: "header Idempotency-Key", body: "amount=100&currency=eur", fits: short(255), stored: "Idempotent-Replayed: true",
		inFlight: reply{status: 409, body: `{"error":{"code":"idempotency_key_in_use","type":"idempotency_error","message":"There is currently another in-progress request using this Idempotent Key"}}`},
		mismatch: reply{status: 400, body: `{"error":{"type":"idempotency_error","message":"Keys for idempotent requests can only be used with the same parameters they were first used with."}}`, is: idem.ErrPayloadMismatch},
	},
	"StripeV2": {carrier: "header Idempotency-Key", body: plain, fits: short(255)},
	"PayPal": {carrier: "header PayPal-Request-Id", body: plain, fits: short(38),
		inFlight: reply{status: 409, body: `{"name":"RESOURCE_CONFLICT","details":[{"issue":"PREVIOUS_REQUEST_IN_PROGRESS","description":"A previous request on this resource is currently in progress."}]}`},
		repeat:   reply{status: 200, body: `{"id":"5O1","status":"COMPLETED"}`, means: idem.OutcomeExecuted},
	},
	"PayPalOrders":   {carrier: "header PayPal-Request-Id", body: plain, fits: short(38)},
	"PayPalPayments": {carrier: "header PayPal-Request-Id", body: plain, fits: short(38)},
	"PayPalPayouts":  {carrier: "header PayPal-Request-Id", body: plain, fits: short(38)},
	"Square": {carrier: "field idempotency_key", body: plain, fits: short(45),
		mismatch: reply{status: 400, body: `{"errors":[{"category":"INVALID_REQUEST_ERROR","code":"IDEMPOTENCY_KEY_REUSED","detail":"Different request parameters used for the same idempotency_key."}]}`, is: idem.ErrPayloadMismatch},
	},
	"Adyen": {carrier: "header Idempotency-Key", body: plain, fits: short(64), stored: "Transient-Error: false",
		inFlight: reply{status: 422, body: `{"status":422,"errorCode":"704","message":"request already processed or in progress","errorType":"validation"}`},
	},
	"Braintree": {carrier: "field variables.input.apiRequestKey", body: `{"query":"mutation …","variables":{"input":{"transaction":{"amount":"1.00"}}}}`,
		mismatch: reply{status: 200, body: `{"errors":[{"message":"…","extensions":{"errorClass":"VALIDATION","legacyCode":"93107"}}]}`},
	},
	"CheckoutCom": {carrier: "header Cko-Idempotency-Key", body: plain, inFlight: reply{status: 429}},
	"Mollie": {carrier: "header Idempotency-Key", body: plain,
		inFlight: reply{status: 409, body: `{"status":409,"title":"Conflict"}`},
		repeat:   reply{status: 201, header: "Idempotent-Replayed: true", body: `{"resource":"payment"}`, means: idem.OutcomeExecuted},
	},
	"GoCardless": {carrier: "header Idempotency-Key", body: plain,
		repeat: reply{status: 409, body: `{"error":{"type":"invalid_state","code":409,"errors":[{"reason":"idempotent_creation_conflict","links":{"conflicting_resource_id":"PM123"}}]}}`, means: idem.OutcomeExecuted, is: idem.ErrResultNotRetained},
	},
	"Klarna":         {carrier: "header Klarna-Idempotency-Key", body: plain},
	"MercadoPago":    {carrier: "header X-Idempotency-Key", body: plain, inFlight: reply{status: 423}},
	"Rapyd":          {carrier: "header idempotency", body: plain},
	"Worldpay":       {carrier: "header Idempotency-Key", body: `<paymentService/>`},
	"AmazonPay":      {carrier: "header x-amz-pay-idempotency-key", body: plain, fits: short(32), mismatch: reply{status: 400, body: `{"reasonCode":"DuplicateIdempotencyKey","message":"…"}`, is: idem.ErrPayloadMismatch}},
	"ModernTreasury": {carrier: "header Idempotency-Key", body: plain, inFlight: reply{status: 409}},
	"Dwolla":         {carrier: "header Idempotency-Key", body: plain, inFlight: reply{status: 409, body: `{"code":"Conflict"}`}},
	"Wise":           {carrier: "header X-idempotence-uuid", body: plain, fits: version4},
	"WiseTransfers":  {carrier: "field customerTransactionId", body: plain, fits: version4},
	"Plaid":          {carrier: "field idempotency_key", body: plain, fits: short(50)},
	"Razorpay":       {carrier: "header X-Payout-Idempotency", body: plain, fits: short(36)},
	"Xendit":         {carrier: "header idempotency-key", body: plain, mismatch: reply{status: 409, body: `{"error_code":"DUPLICATE_ERROR","message":"…"}`}},
	"CoinbaseCDP": {carrier: "header X-Idempotency-Key", body: plain, fits: version4,
		inFlight: reply{status: 409, body: `{"errorType":"already_exists","errorMessage":"Another request with the same idempotency key is currently processing."}`},
		mismatch: reply{status: 422, body: `{"errorType":"idempotency_error","errorMessage":"Idempotency key already used with a different request payload."}`, is: idem.ErrPayloadMismatch},
	},
	"Increase": {carrier: "header Idempotency-Key", body: plain, fits: short(200),
		mismatch: reply{status: 409, body: `{"type":"idempotency_key_already_used_error","resource_id":"x_1","status":409,"title":"…"}`, is: idem.ErrPayloadMismatch},
		repeat:   reply{status: 200, header: "Idempotent-Replayed: true", body: `{"id":"x_1"}`, means: idem.OutcomeExecuted},
	},
	"Column": {carrier: "header Idempotency-Key", body: plain, fits: short(255)},
	"Moov": {carrier: "header X-Idempotency-Key", body: plain, fits: short(36),
		repeat: reply{status: 409, body: `{"error":"duplicate X-Idempotency-Key"}`, means: idem.OutcomeExecuted, is: idem.ErrResultNotRetained},
	},
	"Circle": {carrier: "field idempotencyKey", body: plain, fits: version4,
		mismatch: reply{status: 409, body: `{"code":409,"message":"conflict: re-using an idempotencyKey for a different request"}`, is: idem.ErrPayloadMismatch},
	},
	"AIP155": {carrier: "field request_id", body: plain, fits: version4},
	"IETF": {carrier: "header Idempotency-Key", body: plain, fits: func(k string) bool { return k[0] == '"' && k[len(k)-1] == '"' },
		inFlight: reply{status: 409, body: `{"type":"https://developer.example.com/idempotency","title":"A request is outstanding for this Idempotency-Key","detail":"…"}`},
		mismatch: reply{status: 422, body: `{"type":"https://developer.example.com/idempotency","title":"Idempotency-Key is already used","detail":"…"}`, is: idem.ErrPayloadMismatch},
	},
}
