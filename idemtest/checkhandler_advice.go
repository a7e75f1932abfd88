package idemtest

// What usually causes a failure, and how to mend it.
const (
	adviceRequest = "Nothing else can be tried with a request that is refused or leaves no trace. See that Request makes a valid request " +
		"for each n, and that Effects counts what the n-th one has done by the time of its answer."
	adviceTwice = "Usual cause: the handler does not look at the key, or forgets it. Claim the key before the effect and keep the answer " +
		"under it, as server.Handler does."
	adviceReplay = "Usual cause: the answer is put together anew, or only a part of it is kept. Keep status, headers and body of the first " +
		"answer, and answer retries with nothing else."
	adviceRace = "Usual cause: the key is looked up first and remembered after the effect, so that others come between. Claim it in one " +
		"atomic step (insert if absent) before the effect."
	adviceWaiting = "Usual cause: the duplicate finds the key taken and no answer yet, and answers with what is there. Let it wait for the " +
		"answer, or refuse it with 409 and Retry-After."
	advicePayload = "Usual cause: the key alone is compared. Keep a fingerprint of the request beside the key, and answer another one with " +
		"422 and nothing of the stored answer."
	adviceMissing = "Usual cause: an absent key turns the protection off. Answer 400 before anything is done, or set Optional if that is " +
		"how it is meant."
	adviceBadKey = "Usual cause: any text is taken for a key, or a bad one for none. Answer 400 if the header is empty, has control " +
		"characters or more than 255 bytes, or comes twice: idem.ParseKey tells."
	adviceHangUp = "Usual cause: the work or the record ends with the request's context, or a failed write of the answer counts as a " +
		"failure of the work. Detach both with context.WithoutCancel, and record the answer before it is written."
	advicePanic = "Usual cause: a deferred clean-up frees the key although the effect has happened. Free it only before the effect; after it " +
		"keep the key, and answer 409 until somebody knows."
	adviceStuck = "Usual cause: nothing takes the key back when the handler panics, or a failure is kept like an answer. In a deferred " +
		"function free the key if the effect has not begun, and otherwise answer 409 without Retry-After."
	adviceSlow = "Usual cause: a claim ends with its request, or is taken for dead while its owner still works. Keep it until the handler " +
		"has returned; meanwhile let retries wait, or answer 409 with Retry-After."
	adviceUnrecorded = "Usual cause: the key is freed, or taken for new, when the answer can't be stored after the effect. Keep the claim, " +
		"store the answer later, and answer 409 meanwhile."
	adviceLarge = "Usual cause: what is kept is cut at the size that the store takes. Keep a note instead that the intent was carried out, " +
		"and answer retries with 409."
	adviceRestart = "Usual cause: keys or answers are in the process' memory. Keep them in a store that outlives it and that all replicas " +
		"share."
	adviceKeys = "Usual cause: answers are kept by something else than the key, such as one variable, the URL or the user. Look both the " +
		"claim and the answer up by the key."
	adviceScopes = "Usual cause: the key alone names the record. Make the tenant or user a part of every look-up (server.Config.Scope): a key " +
		"is chosen by clients, and is no authorization."
	adviceHangs = "Usual cause: something that the first attempt holds is never let go, such as a mutex that is not unlocked in a defer. Bound " +
		"the wait of duplicates, and free what they wait for in a defer."
	adviceLie = "Usual cause: the answer is recorded before the effect. Record it after the effect, or in one transaction with it."
)
