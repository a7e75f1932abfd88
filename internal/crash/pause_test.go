package crash

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/idem-go/idem/internal/storeurl"
	"github.com/idem-go/idem/keystore"
)

// B143: an owner is stopped for longer than its lease, wherever it is, another
// takes over, and the owner goes on: it is refused from then on. With Opaque
// nobody takes over.
func TestPause(t *testing.T) {
	for _, b := range backends {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			backend := b.start(t)
			for _, mode := range []string{"opaque", "marked", "idempotent"} {
				for _, point := range []string{"claimed", "begun", "effect", "complete"} {
					t.Run(mode+"/"+point, func(t *testing.T) { pauseAt(t, backend, mode, point) })
				}
			}
		})
	}
}

// observer is told by the server that is paused where it is, and what it sees.
type observer struct {
	at   chan struct{} // it is at the point
	goOn chan struct{} // closed when it has been continued
	mu   sync.Mutex    // guards saw
	saw  []sight
}

func (o *observer) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	var s sight
	_ = json.NewDecoder(r.Body).Decode(&s)
	if s.What == "at" {
		o.at <- struct{}{}
		<-o.goOn
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.saw = append(o.saw, s)
}

// all returns the errors that were reported of one kind of call.
func (o *observer) all(what string) (errs []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, s := range o.saw {
		if s.What == what {
			errs = append(errs, s.Err)
		}
	}
	return errs
}

type reply struct {
	status   int
	body     string
	replayed string
	err      error
}

// place sends the order, always under the same key.
func place(ctx context.Context, addr string) (r reply) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+addr+"/orders/o1", strings.NewReader("o1"))
	if err != nil {
		return reply{err: err}
	}
	req.Header.Set("Idempotency-Key", "paused-order-1")
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return reply{err: err}
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return reply{resp.StatusCode, string(b), resp.Header.Get("Idempotent-Replayed"), err}
}

func pauseAt(t *testing.T, b backend, mode, point string) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	url := b.url(t, mode+"_"+point)
	store, err := storeurl.Open(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	if err := store.Migrate(ctx); err != nil {
		t.Fatal(err)
	}
	watch := &observer{at: make(chan struct{}), goOn: make(chan struct{})}
	control := httptest.NewServer(watch)
	t.Cleanup(control.Close)
	ledgerAddr, processes := "", []*process{}
	addrs := []string{}
	for i, role := range []string{"ledger", "server", "server"} {
		addr, err := freeAddr()
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			ledgerAddr = addr
		}
		at := point
		if i == 2 {
			at = "nowhere"
		}
		p := newProcess(role, addrEnv+"="+addr, storeEnv+"="+url, modeEnv+"="+mode, ledgerEnv+"=http://"+ledgerAddr, fmt.Sprintf("%s=server%d", nameEnv, i),
			controlEnv+"="+control.URL, pointEnv+"="+at, fileEnv+"="+filepath.Join(t.TempDir(), "ledger"))
		t.Cleanup(p.kill)
		if err := p.start(); err != nil {
			t.Fatal(err)
		}
		if err := p.listening(ctx, addr); err != nil {
			t.Fatal(err)
		}
		addrs, processes = append(addrs, addr), append(processes, p)
	}
	owner, other := addrs[1], addrs[2]

	first := make(chan reply, 1)
	go func() { first <- place(ctx, owner) }()
	select {
	case <-watch.at:
	case r := <-first:
		t.Fatalf("it never came to %q: %+v", point, r)
	}
	if err := processes[1].cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	// A duplicate asks elsewhere, until the owner counts as dead.
	var second reply
	for {
		second = place(ctx, other)
		if second.err != nil || second.status == http.StatusOK || strings.Contains(second.body, "recovery-required") {
			break
		}
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			t.Fatalf("the duplicate gets %+v", second)
		}
	}
	if err := processes[1].cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	close(watch.goOn)
	was := <-first
	third := place(ctx, other)

	effects, err := world{"http://" + ledgerAddr, "test"}.ask(ctx, http.MethodGet, "o1")
	if err != nil {
		t.Fatal(err)
	}
	if len(effects) != 1 {
		t.Errorf("effects %v", effects)
	}
	if third.status != http.StatusOK || third.replayed != "true" {
		t.Errorf("afterwards it is answered %+v", third)
	}
	if was.status != http.StatusOK || was.body != third.body {
		t.Errorf("the owner answered %+v, the record has %+v", was, third)
	}
	recs, err := store.Store.Records(ctx, keystore.Query{})
	if err != nil || len(recs) != 1 || recs[0].State != keystore.Done {
		t.Errorf("records %+v, %v", recs, err)
	}
	if mode == "opaque" {
		if second.status != http.StatusConflict || was.replayed != "false" {
			t.Errorf("the duplicate got %+v, and the owner answered %+v", second, was)
		}
		if late := watch.all("complete"); len(late) != 1 || late[0] != "" {
			t.Errorf("its late answer: %q", late)
		}
		return
	}
	if second.status != http.StatusOK || second.body != third.body || was.replayed != "true" {
		t.Errorf("the duplicate got %+v, the owner answered %+v, the record has %+v", second, was, third)
	}
	settled := append(watch.all("complete"), watch.all("release")...)
	if len(settled) == 0 {
		t.Error("the owner did not try to settle")
	}
	for _, err := range settled {
		if !strings.Contains(err, "fenced") {
			t.Errorf("the owner was answered %q, want that it is fenced", err)
		}
	}
	if slices.Contains(watch.all("renew"), "") {
		t.Error("the owner could renew its lease")
	}
	if ended := watch.all("context"); point != "complete" && (len(ended) != 1 || !strings.Contains(ended[0], "lease lost")) {
		t.Errorf("its context ended by %q, want that the lease is lost", ended)
	}
}
