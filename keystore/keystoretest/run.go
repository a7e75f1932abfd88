// Package keystoretest checks whether a keystore.Store keeps the contract of
// package keystore, rule by rule, and measures it.
//
//	func TestStore(t *testing.T) {
//		keystoretest.Run(t, func(t *testing.T) keystore.Store { return newStore(t) })
//	}
//
// The suite asks only what the contract promises, so it fits a memory, an SQL
// and a Redis store alike. It runs in real time, with leases and retentions of
// a few milliseconds where they have to end and of an hour where they must
// not, and it waits for conditions, so a slow server makes it slower and not
// red. Every record has a random ID and every list a random scope: the store
// may hold other records, and one store may serve all rules.
package keystoretest

import (
	"testing"

	"github.com/idem-go/idem/keystore"
)

// rule is one promise of the contract.
type rule struct {
	// name names the rule in the subtest and in every message of a failure.
	name string
	// cases are the known faults that break the rule, for the subtest's name.
	cases string
	check func(*probe)
}

// Run checks every rule of the contract in a subtest of its own, named after
// the topic and the rule. A failure begins with the rule that the store
// breaks: `rule "complete-fenced": …`. newStore is called once per rule and
// registers whatever closing the store needs with t.Cleanup; the stores it
// returns may share a backend. Rules about keystore.Waiter are checked where
// the store implements it.
func Run(t *testing.T, newStore func(t *testing.T) keystore.Store) {
	for _, topic := range []struct {
		name  string
		rules []rule
	}{
		{"params", paramsRules},
		{"claim", claimRules},
		{"fingerprint", fingerprintRules},
		{"takeover", takeoverRules},
		{"fencing", fencingRules},
		{"renew", renewRules},
		{"complete", completeRules},
		{"release", releaseRules},
		{"meta", metaRules},
		{"data", dataRules},
		{"records", recordsRules},
		{"purge", purgeRules},
		{"race", raceRules},
		{"watch", watchRules},
	} {
		t.Run(topic.name, func(t *testing.T) {
			for _, r := range topic.rules {
				name := r.name
				if r.cases != "" {
					name += " " + r.cases
				}
				t.Run(name, func(t *testing.T) { r.check(newProbe(t, r.name, newStore(t))) })
			}
		})
	}
}
