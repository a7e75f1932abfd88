package model

import (
	"maps"
	"slices"
	"testing"
)

// Each rule is needed: a model that breaks it breaks these invariants, and no
// others. The models are the smallest in which that shows. Among them are B093
// (a claim's answer is lost), B142 (an owner dies after its effect may have
// begun) and B143 (an owner goes on although it was replaced).
func TestRulesAreNeeded(t *testing.T) {
	alone := Model{Mode: Opaque, Executors: 1, Delayed: 1}
	pair := Model{Mode: Opaque, Executors: 2, Delayed: 1}
	recovered := Model{Mode: Opaque, Executors: 1, Recoverers: 1, Delayed: 1}
	rerun := Model{Mode: Opaque, Executors: 2, Recoverers: 1, Delayed: 1}
	for rule, tt := range map[Rule]struct {
		model Model
		mode  Mode
		want  []Invariant
	}{
		CompleteIsFenced:     {recovered, Opaque, []Invariant{OnlyOwner}},
		DoneIsFinal:          {recovered, Opaque, []Invariant{DoneStays, OnlyOwner}},
		RenewIsFenced:        {pair, Marked, []Invariant{OnlyOwner}},
		ReleaseIsFenced:      {pair, Marked, []Invariant{OnlyOwner}},
		CopyIsFenced:         {alone, Opaque, []Invariant{ReleasedStays}},
		LiveLeaseStands:      {recovered, Opaque, []Invariant{LiveLease}},
		BegunNeedsTakeover:   {pair, Opaque, []Invariant{UnresolvedStays}},
		TokenRises:           {recovered, Opaque, []Invariant{TokensRise}},
		AbandonLeaves:        {pair, Opaque, []Invariant{OneEffect, UnresolvedStays}},
		PurgeKeepsUnresolved: {alone, Opaque, []Invariant{UnresolvedStays}},
		PurgeKeepsDone:       {alone, Opaque, []Invariant{DoneStays}},
		BegunIsWritten:       {pair, Marked, []Invariant{OneEffect}},
		BegunIsObeyed:        {pair, Marked, []Invariant{OneEffect}},
		FailureStays:         {pair, Marked, []Invariant{OneEffect}},
		FenceThenAsk:         {rerun, Opaque, []Invariant{OneEffect}},
		RecoverByAsking:      {recovered, Opaque, []Invariant{Truth}},
		ForgetOnlyOnProof:    {rerun, Opaque, []Invariant{OneEffect}},
		WaitsEnd:             {alone, Marked, []Invariant{NobodyHangs}},
	} {
		t.Run(rule.String(), func(t *testing.T) {
			m := tt.model
			m.Mode, m.Broken = tt.mode, rule
			broken := m.Explore().Broken
			for _, inv := range slices.Sorted(maps.Keys(broken)) {
				t.Logf("%v is broken:\n%v", inv, broken[inv])
			}
			if got := slices.Sorted(maps.Keys(broken)); !slices.Equal(got, tt.want) {
				t.Errorf("it breaks %v, want %v", got, tt.want)
			}
		})
	}
}

// Every rule has its row above, and a name.
func TestEveryRuleIsNamed(t *testing.T) {
	seen := map[string]bool{}
	for rule := Rule(0); rule <= lastRule; rule++ {
		if name := rule.String(); seen[name] || name == "unknown rule" {
			t.Errorf("rule %d is named %q", rule, name)
		}
		seen[rule.String()] = true
	}
}
