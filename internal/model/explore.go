package model

import "fmt"

// Result is what an exploration has found.
type Result struct {
	States, Transitions, Depth int
	// Broken has a shortest trace to each invariant that does not hold. What
	// comes after a broken invariant is not explored.
	Broken map[Invariant]Trace
}

// Trace is a way from the first state to some other.
type Trace struct {
	Model Model
	Steps []Step
}

// Explore visits every state that can be reached, breadth first, and checks
// every step.
func (m Model) Explore() Result {
	broken := map[Invariant]Trace{}
	g := graph{model: m}
	g.walk(func(s State, mv move) bool {
		sound := true
		// Of NobodyHangs a state tells, not a step.
		for inv := range lastInvariant {
			if m.breaks(inv, s, mv) {
				sound = false
				if _, known := broken[inv]; !known {
					broken[inv] = g.trace(mv.Step)
				}
			}
		}
		return sound
	}, func(s State, ms []move) {
		if _, known := broken[NobodyHangs]; !known && m.hangs(s, ms) {
			broken[NobodyHangs] = g.trace()
		}
	})
	return Result{States: len(g.states), Transitions: g.transitions, Depth: g.depth(), Broken: broken}
}

// Find returns a shortest trace to a step for which goal holds; false means
// that there is none.
func (m Model) Find(goal func(from State, st Step, to State) bool) (found Trace, ok bool) {
	g := graph{model: m}
	g.walk(func(s State, mv move) bool {
		if !ok && goal(s, mv.Step, mv.to) {
			found, ok = g.trace(mv.Step), true
			g.stop = true
		}
		return !ok
	}, nil)
	return found, ok
}

// graph is the states found so far, in the order of their distance.
type graph struct {
	model       Model
	states      []State
	cameFrom    []int32 // the state through which each was found
	current     int32
	transitions int
	stop        bool
}

// walk visits the states. follow is told of every step, and whether to go on
// behind it; visited of every state with its steps.
func (g *graph) walk(follow func(State, move) bool, visited func(State, []move)) {
	if err := g.model.check(); err != nil {
		panic(err)
	}
	g.states, g.cameFrom = []State{{}}, []int32{-1}
	known := map[State]struct{}{{}: {}}
	for ; int(g.current) < len(g.states) && !g.stop; g.current++ {
		s := g.states[g.current]
		ms := g.model.moves(s)
		for _, mv := range ms {
			g.transitions++
			if !follow(s, mv) {
				continue
			}
			to := mv.to.normal()
			if _, ok := known[to]; ok {
				continue
			}
			known[to] = struct{}{}
			g.states = append(g.states, to)
			g.cameFrom = append(g.cameFrom, g.current)
		}
		if visited != nil {
			visited(s, ms)
		}
	}
}

func (m Model) check() error {
	if m.Mode < Opaque || m.Mode > Idempotent || m.Executors < 1 || m.Recoverers < 0 || m.owners() > MaxOwners || m.Delayed < 1 {
		return fmt.Errorf("model: %+v can't be explored; it needs a mode, 1 to %d owners, one of them an executor, and Delayed of at least 1", m, MaxOwners)
	}
	return nil
}

// path returns the states on the way to the one that is visited.
func (g *graph) path() []State {
	var back []State
	for i := g.current; i >= 0; i = g.cameFrom[i] {
		back = append(back, g.states[i])
	}
	for i, j := 0, len(back)-1; i < j; i, j = i+1, j-1 {
		back[i], back[j] = back[j], back[i]
	}
	return back
}

// trace is the way to the state that is visited, and on.
func (g *graph) trace(on ...Step) Trace {
	t := Trace{Model: g.model}
	path := g.path()
	for i, s := range path[:len(path)-1] {
		for _, mv := range g.model.moves(s) {
			if mv.to.normal() == path[i+1] {
				t.Steps = append(t.Steps, mv.Step)
				break
			}
		}
	}
	t.Steps = append(t.Steps, on...)
	return t
}

// depth is how many steps the state that is farthest away is away.
func (g *graph) depth() (n int) {
	for i := g.cameFrom[len(g.cameFrom)-1]; i >= 0; i = g.cameFrom[i] {
		n++
	}
	return n
}
