package model

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idem-go/idem/keystore"
)

var refined = []Model{
	{Mode: Opaque, Executors: 2, Recoverers: 1, Delayed: 1},
	{Mode: Marked, Executors: 2, Recoverers: 1, Delayed: 1},
	{Mode: Idempotent, Executors: 2, Delayed: 1},
}

// deed is a step as the store sees it.
type deed struct {
	kind   Kind
	owner  int
	call   Call
	record Record
	tokens [MaxOwners]uint8
}

// storeTraces returns a shortest trace to everything that the model's store
// does in any record.
func (m Model) storeTraces() (traces []Trace) {
	seen := map[deed]bool{}
	g := graph{model: m}
	g.walk(func(s State, mv move) bool {
		d := deed{kind: mv.Kind, owner: mv.Owner, call: mv.Call, record: s.Record}
		switch mv.Kind {
		case Arrives, ArrivesTwice, AnswerLost:
			d.kind = Arrives
			for i, o := range s.Owners {
				d.tokens[i] = o.Token
			}
		case LeaseDies, Purges, RetentionEnds:
		default:
			return true
		}
		if !seen[d] {
			seen[d] = true
			traces = append(traces, g.trace(mv.Step))
		}
		return true
	}, nil)
	return traces
}

// run replays the trace in a new store.
func (tr Trace) run(t *testing.T) error {
	r, err := newReplay(t.Context(), tr.Model)
	if err != nil {
		return err
	}
	for _, st := range tr.Steps {
		mv, ok := tr.Model.move(r.state, st)
		if !ok {
			return fmt.Errorf("the model can't make its own step %+v", st)
		}
		if err := r.step(mv); err != nil {
			return err
		}
	}
	return nil
}

// The memory store does all that the model's store does.
func TestStoreRefinesModel(t *testing.T) {
	for _, m := range refined {
		traces := m.storeTraces()
		t.Logf("%v: %d traces", m.Mode, len(traces))
		synctest.Test(t, func(t *testing.T) {
			for _, tr := range traces {
				if err := tr.run(t); err != nil {
					t.Fatalf("%v: %v; after\n%v", m.Mode, err, tr)
				}
			}
		})
	}
}

// That comparison finds every rule of the store that the model breaks.
func TestRefinementNotices(t *testing.T) {
	for rule := CompleteIsFenced; rule <= PurgeKeepsDone; rule++ {
		m := Model{Mode: Opaque, Executors: 1, Recoverers: 1, Delayed: 1, Broken: rule}
		noticed := false
		synctest.Test(t, func(t *testing.T) {
			for _, tr := range m.storeTraces() {
				if err := tr.run(t); err != nil {
					noticed = true
					t.Logf("%v: %v", rule, err)
					return
				}
			}
		})
		if !noticed {
			t.Errorf("nobody notices where %v", rule)
		}
	}
}

// Random walks through models that are too large to compare them step by step.
func TestStoreRefinesWalks(t *testing.T) {
	const calls = 7_000 // in each mode
	for _, m := range []Model{
		{Mode: Opaque, Executors: 2, Recoverers: 2, Delayed: 4},
		{Mode: Marked, Executors: 2, Recoverers: 2, Delayed: 4},
		{Mode: Idempotent, Executors: 3, Delayed: 4},
	} {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(uint64(m.Mode), 1))
			seen := map[string]int{}
			for n := 0; n < calls; {
				r, err := newReplay(t.Context(), m)
				if err != nil {
					t.Fatal(err)
				}
				tr := Trace{Model: m}
				for range 80 {
					mv, ok := pick(random, m.moves(r.state))
					if !ok {
						break
					}
					tr.Steps = append(tr.Steps, mv.Step)
					if err := r.step(mv); err != nil {
						t.Fatalf("%v: %v; after\n%v", m.Mode, err, tr)
					}
					if mv.Kind.arrives() {
						n++
						seen[mv.Call.String()+" "+mv.reply.words(mv.Call)]++
					}
				}
				if err := r.ages(); err != nil {
					t.Fatalf("%v: %v; after\n%v", m.Mode, err, tr)
				}
			}
			t.Logf("%v: %v", m.Mode, seen)
			for _, want := range []string{"Claim acquired", "Claim in-flight", "Claim completed", "Claim fenced", "Complete fenced", "Forget fenced"} {
				if seen[want] == 0 {
					t.Errorf("%v: no walk has seen: %s", m.Mode, want)
				}
			}
		})
	}
}

// pick prefers anything to a crash, or the walks would be short.
func pick(random *rand.Rand, ms []move) (move, bool) {
	if len(ms) == 0 {
		return move{}, false
	}
	mv := ms[random.IntN(len(ms))]
	if mv.Kind == Crashes {
		mv = ms[random.IntN(len(ms))]
	}
	return mv, true
}

// ages lets a long time pass: what is unresolved is there still, and nothing
// else is after a Purge.
func (r *replay) ages() error {
	time.Sleep(10 * (lease + keep + retention))
	want := r.state.Record
	want.Alive = false
	if !want.Unresolved() {
		want = Record{}
	}
	if _, err := r.store.Purge(r.ctx, 10); err != nil {
		return err
	}
	recs, err := r.store.Records(r.ctx, keystore.Query{ID: &r.id, Unresolved: true})
	if err != nil || (len(recs) == 1) != (want.State != 0) {
		return fmt.Errorf("after a long time the store has %d unresolved records, %v; the model has %+v", len(recs), err, want)
	}
	return nil
}
