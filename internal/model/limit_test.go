package model

import (
	"strings"
	"testing"

	"github.com/idem-go/idem/keystore"
)

// A limit, not a fault: a claim is fenced, an effect that is under way is not.
// Where an owner was replaced and its effect lands after a recoverer has asked
// the world, the intent can have a second effect. Whoever asks has to wait
// until an effect that was under way must have landed, or has to have a world
// that refuses the late one. OneEffect shows that this is the only way.
func TestLimitLateEffect(t *testing.T) {
	for mode, want := range map[Mode][]string{
		Opaque: {"A starts", "takes", "asks the world: it has not happened", "A's effect lands", "Forget arrives", "B's effect lands"},
		Marked: {"A's Renew begun arrives: done", "takes", "asks the world: it has not happened", "A's effect lands", "Forget arrives", "B's effect lands"},
	} {
		m := Model{Mode: mode, Executors: 2, Recoverers: 1, Delayed: 1}
		trace, ok := m.Find(func(_ State, _ Step, to State) bool { return to.World.Effects+to.World.Late > 1 })
		if !ok {
			t.Errorf("%v: there is no second effect; the limit is gone, so say so in the documents", mode)
			continue
		}
		t.Logf("%v:\n%v", mode, trace)
		inOrder(t, trace, strings.NewReplacer("takes", "recoverer 1's Claim arrives: acquired"), want)
	}
}

// A limit, not a fault: the store knows the latest claim only. A copy of a
// claim that was freed is fenced as long as the record is free by that claim;
// once another owner has freed it too, the copy is granted to nobody. It has no
// effect, since its sender was told long ago; where claims are begun at once,
// the record is unresolved until somebody recovers it.
func TestLimitOldCopyGranted(t *testing.T) {
	m := Model{Mode: Opaque, Executors: 2, Delayed: 2}
	trace, ok := m.Find(func(s State, st Step, to State) bool {
		return st.Kind.arrives() && st.Call == Claim && s.World.Freed.has(st.Owner) && s.Owners[st.Owner].At == Ended &&
			s.Record.State == keystore.Free && to.Record.State == keystore.Running
	})
	if !ok {
		t.Fatal("no old copy is granted; the limit is gone, so say so in the documents")
	}
	t.Logf("%v:\n%v", m.Mode, trace)
	inOrder(t, trace, strings.NewReplacer(), []string{"A's Forget arrives", "B's Claim arrives: acquired", "B's Forget arrives", "A's Claim arrives: acquired"})
}

// inOrder wants the trace's words to have these parts, one after another.
func inOrder(t *testing.T, trace Trace, r *strings.Replacer, parts []string) {
	t.Helper()
	rest := trace.String()
	for _, part := range parts {
		part = r.Replace(part)
		_, after, ok := strings.Cut(rest, part)
		if !ok {
			t.Errorf("the shortest trace has no %q where it should:\n%v", part, trace)
			return
		}
		rest = after
	}
}
