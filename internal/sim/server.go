package sim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/server"
)

// host is where one server after another lives.
type host struct {
	w     *world
	name  string
	lives int
	up    *serving // nil while there is none; guarded by world.mu
}

// serving is a process with the server half.
type serving struct {
	*process
	server  *server.Server
	handler http.Handler
}

func (h *host) current() *serving {
	h.w.mu.Lock()
	defer h.w.mu.Unlock()
	return h.up
}

// start starts a server on the shared store.
func (h *host) start() error {
	w := h.w
	h.lives++
	s := &serving{process: w.process(h.name, h.lives)}
	sh := w.shape
	srv, err := server.New(server.Config{
		Store: s.open(w.shared, true), Effects: sh.effects,
		Scope:   func(r *http.Request) (string, error) { return r.Header.Get(scopeHeader), nil },
		Recover: s.recover, Lease: sh.lease, Wait: sh.wait, MaxRun: sh.maxRun,
	})
	if err != nil {
		return err
	}
	s.server = srv
	orders := http.Handler(http.HandlerFunc(s.order))
	protected := srv.Handler(orders)
	if w.planted.handler != nil {
		protected = w.planted.handler(orders, srv)
	}
	mux := http.NewServeMux()
	mux.Handle("POST /orders/{id}", protected)
	mux.HandleFunc("POST /deliveries/{id}", s.delivery)
	s.handler = mux
	w.mu.Lock()
	h.up = s
	w.mu.Unlock()
	w.note(s.name, "starts")
	return nil
}

// crash ends the server at once.
func (h *host) crash() {
	w := h.w
	w.mu.Lock()
	s := h.up
	h.up = nil
	w.mu.Unlock()
	if s == nil {
		return
	}
	w.note(s.name, "crashes")
	s.die()
	w.bury(s.server.Shutdown)
}

// stop shuts the server down, as for a new release, and ends it when it is
// ready or its time is up.
func (h *host) stop(patience time.Duration) {
	s := h.current()
	if s == nil {
		return
	}
	h.w.note(s.name, "shuts down")
	ctx, cancel := context.WithTimeout(s.ctx, patience)
	defer cancel()
	err := s.server.Shutdown(ctx)
	h.w.note(s.name, "has shut down: %v", err)
	time.Sleep(lastWords)
	h.crash()
}

// bury ends the goroutines of a dead process' half.
func (w *world) bury(shutdown func(context.Context) error) {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	w.graves.Go(func() { _ = shutdown(ended) })
}

// order handles a request to place an order.
func (s *serving) order(w http.ResponseWriter, r *http.Request) {
	var o order
	if err := json.NewDecoder(r.Body).Decode(&o); err != nil || o.ID != r.PathValue("id") {
		http.Error(w, "no order", http.StatusBadRequest)
		return
	}
	ctx := r.Context()
	got, err := s.place(ctx, intent{r.Header.Get(scopeHeader), o.ID}, o, r.Header.Get(callHeader))
	switch mark, _ := idem.MarkedOutcome(err); {
	case err == nil:
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		_ = json.NewEncoder(w).Encode(got)
	case mark == idem.OutcomeRejected:
		http.Error(w, "declined", http.StatusPaymentRequired)
	case mark == idem.OutcomeNotExecuted:
		server.MarkNotExecuted(ctx)
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
	default:
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}

// delivered is what a queue is told of its delivery.
type delivered struct {
	Outcome idem.Outcome
	Err     string
}

// delivery handles a queue's message by Run.
func (s *serving) delivery(w http.ResponseWriter, r *http.Request) {
	var o order
	if err := json.NewDecoder(r.Body).Decode(&o); err != nil {
		http.Error(w, "no order", http.StatusBadRequest)
		return
	}
	in := intent{r.Header.Get(scopeHeader), o.ID}
	// The same call for every copy of the message is too coarse: one of them
	// executes, another is told that it did not.
	call := r.Header.Get(callHeader) + "+" + count(s.w.nth("delivery "+in.String()))
	res, err := server.RunResult(r.Context(), s.server, idem.Intent{Scope: in.Scope, ID: in.ID, Payload: o},
		func(ctx context.Context) (receipt, error) { return s.place(ctx, in, o, call) })
	t := told{call: call, intent: in, amount: o.Amount, outcome: res.Outcome, key: res.Key, err: err}
	d := delivered{Outcome: res.Outcome}
	if err == nil {
		t.receipt = &res.Value
	} else {
		d.Err = err.Error()
	}
	if !s.dead() {
		s.w.judge(s.name, t)
	}
	_ = json.NewEncoder(w).Encode(d)
}

// Amounts that decide.
const declined = 13

// place carries an order out, or fails to. Its error is marked.
func (s *serving) place(ctx context.Context, in intent, o order, call string) (receipt, error) {
	w := s.w
	about := "handler of " + in.String()
	n := w.nth(about)
	r := w.dice(about, n)
	about = fmt.Sprintf("%s %s #%d", s.name, about, n)
	mishap := r.IntN(8)
	before, after := between(r, 200*time.Microsecond, 10*time.Millisecond), between(r, 200*time.Microsecond, 5*time.Millisecond)
	declines := o.Amount == declined
	if w.calm() || r.Float64() >= w.shape.handlerTrouble {
		mishap = -1
	}
	stalls := mishap >= 0 && mishap < 3
	if stalls { // for longer than its lease, which nobody may renew meanwhile
		before = between(r, w.shape.lease/2, 3*w.shape.lease)
		if r.IntN(3) > 0 {
			s.stall(ctx, in, before)
		}
	}
	if r.IntN(4) == 0 && !w.calm() {
		after = between(r, after, 2*w.shape.lease)
	}
	if chance := r.IntN(6); w.shape.fickle && !w.calm() && (chance == 0 || chance < 4 && stalls) {
		declines = true
	}
	w.note(about, "runs")
	if err := s.pause(ctx, before); err != nil {
		w.note(about, "is stopped: %v", err)
		return receipt{}, err
	}
	switch {
	case declines:
		w.note(about, "declines")
		return receipt{}, idem.Rejected(nil)
	case mishap == 3:
		w.note(about, "fails before its effect")
		return receipt{}, errors.New("failed early")
	case mishap == 4:
		w.note(about, "says that it did nothing")
		return receipt{}, idem.NotExecuted(nil)
	case mishap == 5:
		w.note(about, "panics before its effect")
		panic("early")
	}
	got, err := s.effect(ctx, in, o, call, r)
	if err != nil {
		w.note(about, "has no effect that it knows of: %v", err)
		return receipt{}, err
	}
	_ = s.pause(ctx, after)
	switch mishap {
	case 6:
		w.note(about, "fails after its effect")
		return receipt{}, idem.Unknown(nil)
	case 7:
		w.note(about, "panics after its effect")
		panic("late")
	}
	return got, nil
}

// stall keeps the process from renewing the claim that ctx runs under.
func (s *serving) stall(ctx context.Context, in intent, d time.Duration) {
	key, _ := idem.KeyFrom(ctx)
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	s.w.stalled[standstill{s.name, place{in.Scope, key}}] = time.Now().Add(d)
}

// standstill is a process that stands still with what it does under a key.
type standstill struct {
	process string
	where   place
}

// stands tells whether the process stands still with the record.
func (w *world) stands(process string, id [32]byte) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	where, ok := w.serverRecord[id]
	return ok && time.Now().Before(w.stalled[standstill{process, where}])
}

// effect sends the effect, unless the claim is lost, and waits for its number.
// Between the look at the claim and the effect's departure there is nothing.
func (s *serving) effect(ctx context.Context, in intent, o order, call string, r *rand.Rand) (receipt, error) {
	w := s.w
	there, back, mishap := between(r, 200*time.Microsecond, maxEffect), between(r, 200*time.Microsecond, maxEffect), r.IntN(12)
	if w.calm() {
		mishap = -1
	}
	if err := w.begin(ctx); err != nil {
		return receipt{}, err
	}
	if s.dead() {
		return receipt{}, errDead
	}
	key, _ := idem.KeyFrom(ctx)
	e := effect{intent: in, amount: o.Amount, key: key, by: s.name, call: call}
	came := make(chan receipt, 1)
	if mishap != 0 { // else it is lost
		time.AfterFunc(there, func() {
			landed := w.land(e, w.shape.effects == server.Idempotent)
			if mishap != 1 { // else its answer is
				time.AfterFunc(back, func() { came <- landed.receipt() })
			}
		})
	}
	patience := 2*maxEffect + time.Millisecond
	if mishap == 2 {
		patience = there / 2 // it does not wait for it
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case got := <-came:
		return got, nil
	case <-timer.C:
		return receipt{}, errors.New("the ledger does not answer")
	case <-s.ctx.Done():
		return receipt{}, errDead
	}
}

// recover asks the ledger what became of an intent.
func (s *serving) recover(ctx context.Context, p server.Pending) (server.Resolution, error) {
	in := intent{p.Scope, p.ID}
	if p.Path != "" {
		in.ID = strings.TrimPrefix(p.Path, "/orders/")
	}
	e, found, err := s.look(ctx, in, answerable)
	switch {
	case err != nil:
		return server.Resolution{}, err
	case !found:
		return server.Resolution{Outcome: idem.OutcomeNotExecuted}, nil
	case p.Path == "":
		return server.Resolution{Outcome: idem.OutcomeExecuted, Value: e.receipt()}, nil
	}
	body, err := json.Marshal(e.receipt())
	return server.Resolution{Outcome: idem.OutcomeExecuted, Status: http.StatusCreated, Body: body}, err
}

// look looks an intent up in the ledger, after a moment in which whatever was
// under way has landed. Sometimes there is no answer.
func (p *process) look(ctx context.Context, in intent, moment time.Duration) (e effect, found bool, err error) {
	w := p.w
	about := p.name + " asks about " + in.String()
	n := w.nth(about)
	r := w.dice(about, n)
	if err := p.pause(ctx, moment+between(r, time.Microsecond, 2*time.Millisecond)); err != nil {
		return e, false, err
	}
	if r.Float64() < w.shape.askTrouble && !w.calm() {
		w.note(about, "and gets no answer")
		if r.IntN(3) == 0 {
			panic("no answer")
		}
		return e, false, errBroken
	}
	e, found = w.ask(in)
	w.note(about, "and hears: effect %d", e.number)
	return e, found, nil
}
