package sim

import (
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/idem-go/idem/server"
)

const (
	// maxEffect is how long an effect is on its way at most, and answerable
	// how long who recovers waits until every effect of a fenced owner must
	// have landed: the owner's clock may have been slow for a lease.
	maxEffect  = 15 * time.Millisecond
	answerable = maxEffect + 10*time.Millisecond
	// maxDrift is by how much a process' clock is faster or slower than the
	// store's.
	maxDrift = 0.004
	// longest is how long anything can be under way: message, store call or
	// handler.
	longest = 15 * time.Second
)

// shape is what a seed makes of the world: who is there, and how bad it gets.
type shape struct {
	effects                    server.Effects
	hosts, clients             int
	intents, deliveries        int
	lease, wait, maxRun        time.Duration
	attemptTimeout, overall    time.Duration
	inFlightWait               time.Duration
	chaos                      time.Duration // how long things go wrong
	storeTrouble, netTrouble   float64
	storeUsual, storeWorst     time.Duration
	netUsual, netWorst         time.Duration
	handlerTrouble, askTrouble float64
	crashes                    int
	// fickle: whether an order is refused may differ from one run of the
	// handler to the next.
	fickle bool
	// contested: some intents are asked for with two payloads.
	contested bool
	// expiring: the contract remembers keys for a short time, so that the
	// client half asks Recover.
	expiring bool
	// unsteady: with all chance that the code under test has, so that the seed
	// does not give one trace.
	unsteady bool
}

func shapeOf(r *rand.Rand) shape {
	ms := func(from, to int) time.Duration {
		return between(r, time.Duration(from)*time.Millisecond, time.Duration(to)*time.Millisecond)
	}
	s := shape{
		effects: []server.Effects{server.Opaque, server.Marked, server.Idempotent}[r.IntN(3)],
		hosts:   2 + r.IntN(2), clients: 2 + r.IntN(2),
		intents: 3 + r.IntN(4), deliveries: r.IntN(4),
		lease: ms(40, 110), wait: ms(20, 120), maxRun: ms(120, 400),
		attemptTimeout: ms(60, 250), overall: ms(500, 1200), inFlightWait: ms(50, 300),
		chaos:        ms(800, 1800),
		storeTrouble: 0.25 * r.Float64(), netTrouble: 0.4 * r.Float64(),
		storeUsual: ms(1, 4), storeWorst: ms(50, 500),
		netUsual: ms(2, 10), netWorst: ms(50, 700),
		handlerTrouble: 0.5 * r.Float64(), askTrouble: 0.4 * r.Float64(),
		crashes: r.IntN(7),
		fickle:  r.IntN(2) == 0, expiring: r.IntN(4) == 0, unsteady: r.IntN(8) == 0,
	}
	if r.IntN(4) == 0 {
		s.wait = server.NoWait
	}
	if s.effects == server.Idempotent {
		s.fickle = false // a refusal after an effect would not be idempotent
	}
	// The ledger does not tell by which payload an effect was asked for.
	s.contested = !s.expiring
	return s
}

// between draws a duration. In nanoseconds, so that two are seldom the same.
func between(r *rand.Rand, from, to time.Duration) time.Duration {
	return from + time.Duration(r.Int64N(int64(to-from)+1))
}

// dice are what decides about the nth message about something: by the seed, and
// by nothing that depends on who ran first.
func (w *world) dice(about string, n int) *rand.Rand {
	h := uint64(14695981039346656037) // FNV-1a
	for _, b := range []byte(about) {
		h = (h ^ uint64(b)) * 1099511628211
	}
	h = (h ^ uint64(n)) * 1099511628211
	return rand.New(rand.NewPCG(w.seed, h))
}

// nth counts the messages about something, from 1.
func (w *world) nth(about string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.counts[about]++
	return w.counts[about]
}

// fate is what happens to one message and its answer.
type fate struct {
	what string
	// there and back are how long it and its answer are under way.
	there, back time.Duration
	// lost: it never arrives. deaf: its answer never does.
	lost, deaf bool
	// again is how much later a copy arrives, 0 for none.
	again time.Duration
	// breaks is when the sender hears of a broken connection, whatever becomes
	// of the message; 0 is never.
	breaks time.Duration
}

// fate draws what happens to a message that leaves in a moment, and takes up to
// usual if nothing does, and up to worst otherwise.
func (w *world) fate(r *rand.Rand, moment time.Duration, trouble float64, usual, worst time.Duration) fate {
	f := fate{there: between(r, usual/8, usual), back: between(r, usual/8, usual)}
	if w.calmIn(moment) || r.Float64() >= trouble {
		return f
	}
	breaks := between(r, usual, 2*usual+worst/4)
	if r.IntN(5) == 0 {
		breaks = 0 // whoever has sent it waits in vain
	}
	switch r.IntN(8) {
	case 0:
		f.what, f.lost, f.breaks = "lost", true, breaks
	case 1, 2:
		f.what, f.deaf, f.breaks = "answer lost", true, breaks
	case 3:
		f.what, f.there = "late", between(r, usual, worst)
	case 4:
		f.what, f.back = "late answer", between(r, usual, worst)
	case 5:
		f.what, f.again = "twice", between(r, usual, worst)
	case 6:
		f.what, f.lost, f.breaks = "refused", true, between(r, usual/8, usual)
	case 7:
		f.what, f.there, f.breaks = "given up, late", between(r, usual, worst), between(r, usual/8, usual)
	}
	return f
}

func (f fate) words() string {
	if f.what == "" {
		return ""
	}
	return " (" + f.what + ")"
}

func count(n int) string { return strconv.Itoa(n) }
