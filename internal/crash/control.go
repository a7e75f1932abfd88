package crash

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
)

// control hands out intents, and keeps what callers were told. It stays in the
// process of the test.
type control struct {
	server *httptest.Server

	mu       sync.Mutex // guards the rest
	issued   int
	out      map[string]bool // with the client that runs now
	open     []string        // to be handed out again
	told     map[string]told
	calls    int // that ended without a final outcome
	wrong    []string
	draining bool
}

func newControl() *control {
	c := &control{out: map[string]bool{}, told: map[string]told{}}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /next", func(w http.ResponseWriter, _ *http.Request) { _ = json.NewEncoder(w).Encode(order{c.next()}) })
	mux.HandleFunc("POST /told", func(w http.ResponseWriter, r *http.Request) {
		var t told
		if err := json.NewDecoder(r.Body).Decode(&t); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		c.note(t)
	})
	c.server = httptest.NewServer(mux)
	return c
}

// next returns an intent's ID, or "" if there is nothing to do any more.
func (c *control) next() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var id string
	switch {
	case len(c.open) > 0:
		id, c.open = c.open[0], c.open[1:]
	case c.draining:
		return ""
	default:
		c.issued++
		id = fmt.Sprintf("o%05d", c.issued)
	}
	c.out[id] = true
	return id
}

// note keeps what a caller was told. Nothing that was told before may change.
func (c *control) note(t told) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.out, t.ID)
	before, known := c.told[t.ID]
	switch {
	case known && before.final() && t.final() && (before.Outcome != t.Outcome || before.Answer != t.Answer):
		c.wrong = append(c.wrong, fmt.Sprintf("%s: told %+v, and then %+v", t.ID, before, t))
	case !t.final():
		c.calls++
		c.open = append(c.open, t.ID)
	}
	if !known || !before.final() {
		c.told[t.ID] = t
	}
}

// clientDied puts back what the dead client had.
func (c *control) clientDied() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id := range c.out {
		c.open = append(c.open, id)
	}
	clear(c.out)
}

// drain hands out no new intents; with again, all are asked for once more.
func (c *control) drain(again bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.draining = true
	for id, t := range c.told {
		if again && t.final() {
			c.open = append(c.open, id)
		}
	}
}

// left tells how many intents are not told of to the end.
func (c *control) left() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.open) + len(c.out)
}
