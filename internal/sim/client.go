package sim

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/keystore"
)

// door is how an intent is carried out, the same by every process.
type door int

const (
	byRequest door = iota // Transport, the intent by its ID
	byKey                 // Transport, the intent by a key of the application's
	byCall                // Do, around a request through Transport
	byQueue               // no client half: a queue that delivers at least once
)

// job is what a client has to get done, however often it crashes.
type job struct {
	name   string
	intent intent
	amount int
	door   door
	at     time.Duration

	// Guarded by world.mu.
	calls int
	last  told
}

// slot is where one client after another lives, and what they have to do.
type slot struct {
	w     *world
	name  string
	scope string
	store keystore.Store // nil: none
	jobs  []*job
	lives int
	up    *asking
}

// asking is a process with the client half.
type asking struct {
	*process
	slot   *slot
	client *idem.Client
	http   *http.Client
	raw    http.RoundTripper
}

// start starts a client on the slot's store.
func (c *slot) start() error {
	w := c.w
	c.lives++
	a := &asking{process: w.process(c.name, c.lives), slot: c}
	sh := w.shape
	cfg := idem.Config{
		Scope: c.scope, Lease: sh.lease, FlightGrace: 20 * time.Millisecond,
		Policy: idem.Policy{
			Attempts: 3, AttemptTimeout: sh.attemptTimeout, Overall: sh.overall, InFlightWait: sh.inFlightWait,
			BaseDelay: time.Millisecond, MaxDelay: time.Millisecond, RetryBudget: 1 << 20,
		},
	}
	if sh.unsteady {
		cfg.Policy.BaseDelay, cfg.Policy.MaxDelay = 10*time.Millisecond, 100*time.Millisecond
	}
	if c.store != nil {
		cfg.Store, cfg.MaxPayload = a.open(c.store, false), 1000
		if sh.expiring {
			cfg.Contract = idem.IETF
			cfg.Contract.Retention = expiry
			cfg.Recover = a.recover
		}
	}
	client, err := idem.New(cfg)
	if err != nil {
		return err
	}
	a.client, a.raw = client, wire{a.process}
	if w.planted.wire != nil {
		a.raw = w.planted.wire(a.raw)
	}
	a.http = &http.Client{Transport: client.Transport(a.raw)}
	c.up = a
	w.note(a.name, "starts")
	for _, j := range c.jobs {
		w.workers.Go(func() { a.work(j) })
	}
	if c.lives > 1 && c.store != nil {
		w.workers.Go(a.resume)
	}
	return nil
}

// crash ends the client at once.
func (c *slot) crash() {
	if a := c.up; a != nil {
		c.w.note(a.name, "crashes")
		c.up = nil
		a.die()
		c.w.bury(a.client.Shutdown)
	}
}

// stop shuts the client down, as for a new release.
func (c *slot) stop(patience time.Duration) {
	if c.up == nil {
		return
	}
	c.w.note(c.up.name, "shuts down")
	ctx, cancel := context.WithTimeout(c.up.ctx, patience)
	defer cancel()
	err := c.up.client.Shutdown(ctx)
	c.w.note(c.up.name, "has shut down: %v", err)
	time.Sleep(lastWords)
	c.crash()
}

// patience is how often a process calls while things go wrong.
const patience = 4

// work calls until the job is done, its process dies, or there is no use in it.
func (a *asking) work(j *job) {
	w := a.w
	about := a.name + " works on " + j.name
	if err := a.pause(a.ctx, max(j.at-time.Since(w.start), 0)); err != nil {
		return
	}
	for n := range patience {
		if w.calm() || j.done(w) {
			return
		}
		r := w.dice(about, n)
		if a.pause(a.ctx, between(r, time.Millisecond, 60*time.Millisecond)) != nil {
			return
		}
		ctx, cancel := a.ctx, context.CancelFunc(func() {})
		if r.IntN(4) == 0 { // its caller is in a hurry
			ctx, cancel = context.WithTimeout(ctx, between(r, 5*time.Millisecond, 300*time.Millisecond))
		}
		a.call(ctx, j)
		cancel()
	}
}

// resume takes up what the process before has left.
func (a *asking) resume() {
	if err := a.pause(a.ctx, between(a.w.dice(a.name+" resumes", 0), time.Millisecond, 40*time.Millisecond)); err != nil {
		return
	}
	ctx := withCall(a.ctx, a.name+" resuming")
	n, err := idem.Resume(ctx, a.client, func(ctx context.Context, _ idem.Key, o order) (receipt, error) {
		return a.post(ctx, intent{a.slot.scope, o.ID}, o, "/orders/")
	})
	a.w.note(a.name, "has resumed %d: %t", n, err == nil)
}

func (j *job) done(w *world) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return j.last.final()
}

// call makes one call for the job, and has what it is told judged.
func (a *asking) call(ctx context.Context, j *job) {
	w := a.w
	w.mu.Lock()
	j.calls++
	name := fmt.Sprintf("%s call %d", j.name, j.calls)
	w.mu.Unlock()
	ctx = withCall(ctx, name)
	w.note(a.name, "%s: %v, %d", name, j.intent, j.amount)
	o := order{j.intent.ID, j.amount}
	t := told{call: name, intent: j.intent, amount: j.amount}
	switch j.door {
	case byQueue:
		a.deliver(ctx, j, o, &t)
		return
	case byCall:
		res, err := idem.Do(ctx, a.client, idem.Intent{ID: o.ID, Payload: o}, func(ctx context.Context, _ idem.Key) (receipt, error) {
			return a.post(ctx, j.intent, o, "/orders/")
		})
		t.outcome, t.key, t.err = res.Outcome, res.Key, err
		if err == nil {
			t.receipt = &res.Value
		}
	default:
		in := idem.Intent{ID: o.ID}
		if j.door == byKey {
			in = idem.Intent{Key: idem.Key("key-" + o.ID)}
		}
		a.request(idem.WithIntent(ctx, in), j, o, &t)
	}
	t.mismatch = errors.Is(t.err, idem.ErrPayloadMismatch)
	if a.dead() {
		return // its caller as well
	}
	w.judge(a.name, t)
	w.tell(j, t)
}

// tell notes what the job's call was told.
func (w *world) tell(j *job, t told) {
	w.mu.Lock()
	defer w.mu.Unlock()
	not := t.outcome == idem.OutcomeRejected || t.outcome == idem.OutcomeNotExecuted
	if j.last.outcome == idem.OutcomeExecuted && not && !t.mismatch {
		w.violate(ExecutedStays, "%s was told that %v was executed, and %s that it is %v: %v", j.last.call, j.intent, t.call, t.outcome, t.err)
	}
	if !j.last.final() || t.final() {
		j.last = t
	}
}

// request places an order by a request of its own.
func (a *asking) request(ctx context.Context, j *job, o order, t *told) {
	resp, err := a.do(ctx, j.intent, o, "/orders/")
	if err != nil {
		var e *idem.Error
		if errors.As(err, &e) {
			t.outcome, t.key = e.Outcome, e.Key
		}
		t.err = err
		return
	}
	defer resp.Body.Close()
	rep := idem.ReportOf(resp)
	t.outcome, t.key = rep.Outcome, rep.Key
	if rep.Outcome == idem.OutcomeExecuted {
		t.receipt = new(receipt)
		t.err = json.NewDecoder(resp.Body).Decode(t.receipt)
	}
}

func (a *asking) do(ctx context.Context, in intent, o order, path string) (*http.Response, error) {
	body, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://service"+path+in.ID, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set(scopeHeader, in.Scope)
	if path == "/deliveries/" {
		return a.raw.RoundTrip(req)
	}
	return a.http.Do(req)
}

// post places an order within a call of Do.
func (a *asking) post(ctx context.Context, in intent, o order, path string) (got receipt, err error) {
	resp, err := a.do(ctx, in, o, path)
	if err != nil {
		return got, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusCreated {
		return got, &idem.ResponseError{StatusCode: resp.StatusCode}
	}
	return got, json.NewDecoder(resp.Body).Decode(&got)
}

// deliver delivers a queue's message once. What Run says is judged where it
// says so; the queue needs to know only whether to deliver again.
func (a *asking) deliver(ctx context.Context, j *job, o order, t *told) {
	ctx, cancel := context.WithTimeout(ctx, a.w.shape.overall)
	defer cancel()
	resp, err := a.do(ctx, j.intent, o, "/deliveries/")
	if err != nil {
		return
	}
	defer resp.Body.Close()
	var d delivered
	if json.NewDecoder(resp.Body).Decode(&d) != nil || resp.StatusCode != http.StatusOK || a.dead() {
		return
	}
	t.outcome = d.Outcome
	a.w.tell(j, *t)
}

// expiry is for how long keys are remembered by the contract of those that
// expire; the servers do so for longer.
const expiry = 4 * time.Second

// recover asks the ledger what became of an intent whose key may be forgotten.
// Attempts may have been sent until it expired, and be under way still.
func (a *asking) recover(ctx context.Context, p idem.Pending) (idem.Resolution, error) {
	id := p.ID
	if id == "" {
		id = string(p.Key)[len("key-"):]
	}
	if p.Age < expiry+longest {
		return idem.Resolution{}, nil // too early to tell
	}
	e, found, err := a.look(ctx, intent{p.Scope, id}, time.Millisecond)
	switch {
	case err != nil:
		return idem.Resolution{}, err
	case !found:
		return idem.Resolution{Outcome: idem.OutcomeNotExecuted}, nil
	case p.Payload != nil:
		return idem.Resolution{Outcome: idem.OutcomeExecuted, Value: e.receipt()}, nil
	}
	body, err := json.Marshal(e.receipt())
	return idem.Resolution{Outcome: idem.OutcomeExecuted, Status: http.StatusCreated, Body: body}, err
}
