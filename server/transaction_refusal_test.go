package server_test

import (
	"net/http"
	"strconv"
	"testing"

	"github.com/idem-go/idem/keystore"
	"github.com/idem-go/idem/server"
)

// A refusal is recorded in a second transaction, and another owner may come
// between the two.
func TestTransactionRefusalOvertaken(t *testing.T) {
	store := newTxStore(t)
	c := inTx(func(w http.ResponseWriter, r *http.Request, run int) {
		status(map[int]int{1: 404}[run]+map[int]int{2: 201}[run], strconv.Itoa(run))(w, r, run)
	})
	cfg := server.Config{Store: store, Effects: server.Transaction}
	h, other := newServer(t, cfg).Handler(c), newServer(t, cfg).Handler(c)
	store.begin = func() error {
		if c.runs() == 1 {
			store.begin = nil
			wantFirst(t, post(other, "k", "{}"), 201, "2")
		}
		return nil
	}
	wantReplay(t, post(h, "k", "{}"), 201, "2")
	c.want(t, 2)
	store.wantEffects(t, "2")
}

// A refusal that can't be recorded is not told: the next run may decide
// otherwise.
func TestTransactionRefusalNotKept(t *testing.T) {
	store := newTxStore(t)
	c := inTx(status(404, "none"))
	h := newServer(t, server.Config{Store: store, Effects: server.Transaction}).Handler(c)
	store.complete = func(keystore.CompleteParams) error { return errDown }
	want(t, post(h, "k", "{}"), 503, "store-unavailable")
	store.complete = nil
	wantFirst(t, post(h, "k", "{}"), 404, "none")
	c.want(t, 2)
	store.wantEffects(t)
}
