package idem

import "testing"

// A flight leaves the map in the moment in which its callers are told: a moment
// later, one of them could join what has ended. Only an unsettled one stays.
func TestDeliverDrops(t *testing.T) {
	for _, later := range []func(){nil, func() {}} {
		fs := &flights{running: make(map[[32]byte]*flight)}
		f := &flight{op: &operation{}, delivered: make(chan struct{}), ended: make(chan struct{}), later: later, callers: 1}
		fs.running[f.op.id] = f
		fs.deliver(f)
		<-f.delivered
		if dropped := len(fs.running) == 0; dropped != (later == nil) {
			t.Errorf("settled %v: dropped %v", later == nil, dropped)
		}
		fs.remove(f)
		<-f.ended
		if len(fs.running) != 0 {
			t.Error("an ended flight stays")
		}
	}
}
