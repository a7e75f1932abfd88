package model

// Rule is a rule of the protocol that a Model can break. The zero Rule is none
// of them: every rule is kept.
type Rule uint8

// The rules. The first ones are the store's, the others those of the owners.
const (
	CompleteIsFenced     Rule = iota + 1 // a replaced owner can't complete a running record
	DoneIsFinal                          // nobody can complete a record that is done
	RenewIsFenced                        // a replaced owner can't renew
	ReleaseIsFenced                      // a replaced owner can't release
	CopyIsFenced                         // a delayed copy of a released claim is not granted
	LiveLeaseStands                      // a take-over takes no record whose lease is alive
	BegunNeedsTakeover                   // a begun record is granted to a take-over only
	TokenRises                           // a new owner gets a new token
	AbandonLeaves                        // Abandon leaves the record running
	PurgeKeepsUnresolved                 // Purge removes no unresolved record
	PurgeKeepsDone                       // Purge removes no done record before its retention is over

	BegunIsWritten    // Marked: begun is written before the effect
	BegunIsObeyed     // Marked: no effect without the store's yes to begun
	FailureStays      // what may have had its effect is abandoned, not forgotten
	FenceThenAsk      // a recoverer takes over before it asks the world
	RecoverByAsking   // a recoverer completes only what the world has told
	ForgetOnlyOnProof // a recoverer that could not ask does not forget
	WaitsEnd          // nobody waits for an answer for ever
	lastRule          = WaitsEnd
)

// String says what the Model does where it breaks the rule.
func (r Rule) String() string {
	names := [...]string{
		"every rule is kept",
		"a replaced owner completes a running record",
		"a done record is completed again",
		"a replaced owner renews",
		"a replaced owner releases",
		"a delayed copy of a released claim is granted",
		"a living lease is taken over",
		"a begun record is claimed without a take-over",
		"a take-over keeps the token",
		"Abandon frees the record",
		"Purge removes an unresolved record",
		"Purge removes a done record",
		"begun is not written before the effect",
		"the effect starts without the store's yes to begun",
		"what may have had its effect is forgotten",
		"the world is asked before the take-over",
		"a recoverer completes what it was not told",
		"a recoverer that could not ask forgets",
		"an answer is waited for for ever",
	}
	if int(r) >= len(names) {
		return "unknown rule"
	}
	return names[r]
}
