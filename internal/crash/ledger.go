package crash

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
)

// ledger is what has happened in the world: a line per effect, numbered from 1.
type ledger struct {
	mu    sync.Mutex // guards the rest
	file  *os.File
	lines int
	byID  map[string][]int
}

// serveLedger is the main function of the ledger's process.
func serveLedger(addr, path string) error {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	l := &ledger{file: file, byID: map[string][]int{}}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /effects/{id}", func(w http.ResponseWriter, r *http.Request) { l.answer(w, l.add(r, false)) })
	mux.HandleFunc("PUT /effects/{id}", func(w http.ResponseWriter, r *http.Request) { l.answer(w, l.add(r, true)) })
	mux.HandleFunc("GET /effects/{id}", func(w http.ResponseWriter, r *http.Request) { l.answer(w, l.of(r.PathValue("id"))) })
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	return http.Serve(listener, mux)
}

func (l *ledger) answer(w http.ResponseWriter, effects []int) { _ = json.NewEncoder(w).Encode(effects) }

// add has an effect; with once only if the intent has none yet. It returns all
// effects of the intent.
func (l *ledger) add(r *http.Request, once bool) []int {
	id := r.PathValue("id")
	l.mu.Lock()
	defer l.mu.Unlock()
	if once && len(l.byID[id]) > 0 {
		return l.byID[id]
	}
	l.lines++
	if _, err := fmt.Fprintf(l.file, "%d %s %s\n", l.lines, id, r.URL.Query().Get("by")); err != nil {
		panic(err) // a ledger that forgets proves nothing
	}
	l.byID[id] = append(l.byID[id], l.lines)
	return l.byID[id]
}

func (l *ledger) of(id string) []int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.byID[id]
}

// world is the ledger as others see it.
type world struct {
	url  string // of the ledger
	name string // of who has the effects
}

func (w world) ask(ctx context.Context, method, id string) (effects []int, err error) {
	req, err := http.NewRequestWithContext(ctx, method, w.url+"/effects/"+id+"?by="+w.name, nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the ledger answered %d, %w", resp.StatusCode, err)
	}
	return effects, json.NewDecoder(bytes.NewReader(b)).Decode(&effects)
}
