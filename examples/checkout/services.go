package main

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/storeurl"
	"github.com/idem-go/idem/keystore/sqlitestore"
	"github.com/idem-go/idem/server"
)

// services are the three that a checkout needs, each with a database of its own.
type services struct {
	http.Handler
	processor string // the card processor's ledger, a file
	// afterEffect is called between a step's effect and its answer. It is where
	// a process is killed.
	afterEffect func(step string)
	ends        []func() error
}

// openServices opens the services on the files in dir.
func openServices(ctx context.Context, dir string, afterEffect func(step string)) (_ *services, err error) {
	s := &services{processor: filepath.Join(dir, "processor"), afterEffect: afterEffect}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	// Stock and orders are rows in the service's own database: effect and
	// record are committed together, and nothing is ever left unresolved.
	stock, err := s.open(ctx, filepath.Join(dir, "stock.db"), server.Transaction)
	if err != nil {
		return nil, err
	}
	orders, err := s.open(ctx, filepath.Join(dir, "orders.db"), server.Transaction)
	if err != nil {
		return nil, err
	}
	// A charge happens at a processor, outside of any transaction, which takes
	// no keys either; but its books can be read. So it is Marked, with Recover.
	// If the processor took keys, Idempotent would do: it would be handed a
	// child of idem.KeyFrom.
	payments, err := s.open(ctx, filepath.Join(dir, "payments.db"), server.Marked)
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.Handle("POST /reserve/{order}", stock.Handler(http.HandlerFunc(s.book)))
	mux.Handle("POST /release/{order}", stock.Handler(http.HandlerFunc(s.book)))
	mux.Handle("POST /order/{order}", orders.Handler(http.HandlerFunc(s.book)))
	mux.Handle("POST /charge/{order}", payments.Handler(http.HandlerFunc(s.pay)))
	mux.Handle("POST /refund/{order}", payments.Handler(http.HandlerFunc(s.pay)))
	s.Handler = mux
	return s, nil
}

// open makes one service's server half.
func (s *services) open(ctx context.Context, path string, effects server.Effects) (*server.Server, error) {
	store, err := storeurl.Open(ctx, "sqlite:"+path)
	if err != nil {
		return nil, err
	}
	s.ends = append(s.ends, store.Close)
	if err := store.Migrate(ctx); err != nil {
		return nil, err
	}
	if _, err := store.SQL.ExecContext(ctx, `CREATE TABLE IF NOT EXISTS ledger (entry TEXT)`); err != nil {
		return nil, err
	}
	srv, err := server.New(server.Config{Store: store.Store, Effects: effects, Scope: server.SingleTenant, Lease: lease, Recover: s.recover})
	if err != nil {
		return nil, err
	}
	s.ends = append(s.ends, func() error { return srv.Shutdown(context.Background()) })
	return srv, nil
}

// close waits for what is running, and closes the databases.
func (s *services) close() (err error) {
	for i := len(s.ends) - 1; i >= 0; i-- {
		err = errors.Join(err, s.ends[i]())
	}
	return err
}

// book adds a row, in the transaction that settles the record.
func (s *services) book(w http.ResponseWriter, r *http.Request) {
	var o Order
	if err := json.NewDecoder(r.Body).Decode(&o); err != nil {
		http.Error(w, "no order", http.StatusBadRequest)
		return
	}
	step := stepOf(r.URL.Path)
	if step == "order" && o.Address == "" {
		http.Error(w, "no address to deliver to", http.StatusUnprocessableEntity)
		return
	}
	tx, _ := sqlitestore.TxFrom(r.Context())
	if _, err := tx.ExecContext(r.Context(), `INSERT INTO ledger VALUES (?)`, step+" "+o.ID); err != nil {
		http.Error(w, "try again", http.StatusServiceUnavailable)
		return
	}
	s.afterEffect(step)
	w.WriteHeader(http.StatusCreated)
	fmt.Fprintf(w, "done: %s", r.URL.Path)
}

// pay has the card processor charge or refund.
func (s *services) pay(w http.ResponseWriter, r *http.Request) {
	var o Order
	if err := json.NewDecoder(r.Body).Decode(&o); err != nil {
		http.Error(w, "no order", http.StatusBadRequest)
		return
	}
	if o.Card == declined {
		http.Error(w, "card declined", http.StatusPaymentRequired)
		return
	}
	if err := server.BeginEffect(r.Context()); err != nil {
		http.Error(w, "try again", http.StatusServiceUnavailable)
		return
	}
	key, _ := idem.KeyFrom(r.Context())
	if err := appendLine(s.processor, entry(r.URL.Path, key)); err != nil {
		http.Error(w, "the processor hung up", http.StatusBadGateway)
		return
	}
	s.afterEffect(stepOf(r.URL.Path))
	w.WriteHeader(http.StatusCreated)
	fmt.Fprintf(w, "done: %s", r.URL.Path)
}

// recover looks a payment up whose process died on the way.
func (s *services) recover(_ context.Context, p server.Pending) (server.Resolution, error) {
	lines, err := readLines(s.processor)
	if err != nil {
		return server.Resolution{}, err
	}
	for _, line := range lines {
		if line == entry(p.Path, p.Key) {
			return server.Resolution{Outcome: idem.OutcomeExecuted, Status: http.StatusCreated, Body: []byte("done: " + p.Path)}, nil
		}
	}
	return server.Resolution{Outcome: idem.OutcomeNotExecuted}, nil
}

func stepOf(path string) string {
	step, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	return step
}

// entry is a line in the processor's books: step, order and a reference, since
// an order that was refunded may be charged again. The processor looks at none
// of them.
func entry(path string, key idem.Key) string {
	return strings.ReplaceAll(strings.TrimPrefix(path, "/"), "/", " ") + " " + key.Digest()
}

func appendLine(path, line string) error {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(f, line)
	return errors.Join(err, f.Sync(), f.Close())
}

func readLines(path string) (lines []string, err error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	defer f.Close()
	in := bufio.NewScanner(f)
	for in.Scan() {
		lines = append(lines, in.Text())
	}
	return lines, in.Err()
}

// readLedgers counts the steps that were taken, in all ledgers in dir.
func readLedgers(ctx context.Context, dir string) (map[string]int, error) {
	lines, err := readLines(filepath.Join(dir, "processor"))
	if err != nil {
		return nil, err
	}
	for _, name := range []string{"stock.db", "orders.db"} {
		booked, err := readTable(ctx, filepath.Join(dir, name))
		if err != nil {
			return nil, err
		}
		lines = append(lines, booked...)
	}
	counts := map[string]int{}
	for _, line := range lines {
		step, _, _ := strings.Cut(line, " ")
		counts[step]++
	}
	return counts, nil
}

func readTable(ctx context.Context, path string) (lines []string, err error) {
	store, err := storeurl.Open(ctx, "sqlite:"+path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	var all sql.NullString
	err = store.SQL.QueryRowContext(ctx, `SELECT group_concat(entry, char(10)) FROM ledger`).Scan(&all)
	return strings.FieldsFunc(all.String, func(r rune) bool { return r == '\n' }), err
}
