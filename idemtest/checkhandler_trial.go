package idemtest

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/keystore"
)

// handlerCheck is one run of CheckHandler.
type handlerCheck struct {
	HandlerCheck
	t      TB
	faults *faults
	store  keystore.Store
	asked  int // intents so far
	// unlike: rule replay has found that answers are not replayed as they were.
	// The others need not say so again.
	unlike bool
}

func newCheck(t TB, c HandlerCheck) *handlerCheck {
	f := &faults{}
	return &handlerCheck{HandlerCheck: c, t: t, faults: f, store: watchStore(f, c.Store)}
}

// trial is the run of one rule, with a handler of its own.
type trial struct {
	*handlerCheck
	rule    string
	handler http.Handler
	advised map[string]bool // what was advised already
}

func (c *handlerCheck) trial(rule string) *trial {
	tr := &trial{handlerCheck: c, rule: rule, advised: map[string]bool{}}
	tr.start()
	return tr
}

// start makes a new handler, as a restart does.
func (tr *trial) start() {
	tr.handler = tr.New(tr.store, func() { _ = tr.faults.reach(atEffect) })
}

// fail reports what was seen and expected, and, once in a rule, why that
// happens mostly.
func (tr *trial) fail(seen, want, advice string) {
	tr.t.Helper()
	if tr.advised[advice] {
		tr.t.Errorf("CheckHandler: %s: %s\n\twant: %s", tr.rule, seen, want)
		return
	}
	tr.advised[advice] = true
	tr.t.Errorf("CheckHandler: %s: %s\n\twant: %s\n\t%s", tr.rule, seen, want, advice)
}

// ask is an intent, and how it is asked for: its attempts are copies.
type ask struct {
	n    int
	keys []string
	req  *http.Request
	body []byte
}

// ask makes a new intent, under a new key.
func (tr *trial) ask() *ask { return tr.askWith(tr.Request) }

func (tr *trial) askWith(request func(int) *http.Request) *ask {
	tr.asked++
	a := &ask{n: tr.asked, keys: []string{string(idem.NewKey())}, req: request(tr.asked)}
	body, err := readBody(a.req)
	if err != nil {
		tr.fail(fmt.Sprintf("the body of request %d can't be read: %v", a.n, err), "a request whose body is at hand", adviceRequest)
	}
	a.body = body
	return a
}

// under returns the same with other key lines.
func (a *ask) under(keys ...string) *ask {
	b := *a
	b.keys = keys
	return &b
}

// request returns one attempt, as a server would see it.
func (tr *trial) request(ctx context.Context, a *ask) *http.Request {
	r := a.req.Clone(ctx)
	r.Header.Del(tr.Header)
	for _, key := range a.keys {
		r.Header.Add(tr.Header, key)
	}
	r.Body, r.GetBody, r.ContentLength = http.NoBody, nil, int64(len(a.body))
	if len(a.body) > 0 {
		r.Body = watchBody(tr.faults, a.body)
	}
	if r.Host == "" {
		r.Host = "example.com"
	}
	r.URL = &url.URL{Path: r.URL.Path, RawPath: r.URL.RawPath, RawQuery: r.URL.RawQuery}
	if r.URL.Path == "" {
		r.URL.Path = "/"
	}
	r.RequestURI = r.URL.RequestURI()
	if r.RemoteAddr == "" {
		r.RemoteAddr = "192.0.2.1:1234" // for documentation, RFC 5737
	}
	return r
}

// call is an attempt under way.
type call struct {
	n     int
	done  chan struct{}
	reply reply // once done is closed
}

// begin makes an attempt, whose client hangs up when ctx ends.
func (tr *trial) begin(ctx context.Context, a *ask) *call {
	ctx, end := context.WithCancel(ctx)
	r, h := tr.request(ctx, a), tr.handler
	w := &watchedWriter{httptest.NewRecorder(), tr.faults}
	c := &call{n: a.n, done: make(chan struct{})}
	go func() {
		defer close(c.done)
		defer end() // as net/http does
		broken := any("its goroutine was ended")
		defer func() {
			if p := recover(); p != nil {
				broken = p
			}
			c.reply = replyOf(w.ResponseRecorder, broken)
		}()
		h.ServeHTTP(w, r)
		broken = nil
	}()
	return c
}

// wait returns the reply. A handler that does not return in time breaks the
// rule.
func (tr *trial) wait(c *call) reply {
	if inTime(c.done, tr.Patience) {
		return c.reply
	}
	tr.fail(fmt.Sprintf("the handler has not answered request %d within %v", c.n, tr.Patience), "an answer, if only 409 with Retry-After", adviceHangs)
	return reply{silent: true}
}

// send makes an attempt and waits for its answer.
func (tr *trial) send(a *ask) reply { return tr.wait(tr.begin(a.req.Context(), a)) }

// settled retries, as a client does, until the answer is none for now. If it
// does not come to that, the last one is returned.
func (tr *trial) settled(a *ask) reply {
	r := tr.send(a)
	for delay := 20 * time.Millisecond; r.busy() && delay < time.Second; delay *= 2 {
		inTime(nil, delay)
		r = tr.send(a)
	}
	return r
}

// holdFor is how long an attempt is kept at a moment for others to overtake it.
// Where that is too short, less is found, but nothing wrong.
const holdFor = 100 * time.Millisecond

// inTime tells whether done was closed in time.
func inTime(done <-chan struct{}, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
		return false
	}
}

// effects reports an error, and false, if the intent had not this many effects.
func (tr *trial) effects(a *ask, want int, after, advice string) bool {
	tr.t.Helper()
	got := tr.Effects(a.n)
	if got != want {
		tr.fail(fmt.Sprintf("%s, the intent has had %s", after, effectCount(got)), effectCount(want), advice)
	}
	return got == want
}

func effectCount(n int) string {
	if n == 1 {
		return "1 effect"
	}
	return fmt.Sprint(n, " effects")
}

// equal reports an error, and false, if the retry's answer is not the first
// one.
func (tr *trial) equal(first, again reply, after, advice string) bool {
	tr.t.Helper()
	if tr.unlike || tr.Unstored && again.refused() {
		return true
	}
	diff := first.diff(again)
	if diff != "" {
		tr.fail(after+", "+diff, "the first answer, "+first.String(), advice)
	}
	return diff == ""
}
