// Command postgres-tx shows an effect and its record in one transaction: a shop
// on PostgreSQL whose orders are committed together with the record of the key
// that they came under. Whatever breaks, there is an order and its answer, or
// neither.
//
//	go run ./examples/postgres-tx                                   # starts a server of its own
//	go run ./examples/postgres-tx -postgres=postgres://user@host/db # in a schema of its own
//
// What you would copy is in shop.go. The exit status is 1 if something is not as
// it should be.
package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemtest"
	"github.com/idem-go/idem/internal/servertest"
)

func main() {
	url := flag.String("postgres", "", "URL of a database to use; empty starts a server")
	flag.Parse()
	if err := run(context.Background(), *url, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "postgres-tx:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, url string, out io.Writer) (err error) {
	if url == "" {
		s, err := servertest.StartPostgres()
		if err != nil {
			return err
		}
		defer s.Stop()
		url = s.URL
	}
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		return err
	}
	cfg.MaxConns = 4 // fewer than there are duplicates
	schema := "idem_example_" + strings.ToLower(rand.Text())
	cfg.ConnConfig.RuntimeParams["search_path"] = schema
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return err
	}
	defer pool.Close()
	if _, err := pool.Exec(ctx, `CREATE SCHEMA `+schema); err != nil {
		return err
	}
	defer func() {
		_, dropped := pool.Exec(ctx, `DROP SCHEMA `+schema+` CASCADE`)
		err = errors.Join(err, dropped)
	}()
	shop, srv, err := newShop(ctx, pool)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	web := &http.Server{Handler: srv.Handler(shop)}
	served := make(chan error, 1)
	go func() { served <- web.Serve(l) }()
	defer func() {
		err = errors.Join(err, web.Shutdown(ctx), srv.Shutdown(ctx))
		if end := <-served; !errors.Is(end, http.ErrServerClosed) {
			err = errors.Join(err, end)
		}
	}()
	return play(ctx, &scenes{shop: shop, pool: pool, url: "http://" + l.Addr().String(), out: out})
}

// scenes are what happens to the shop.
type scenes struct {
	shop *shop
	pool *pgxpool.Pool
	url  string
	out  io.Writer
}

func play(ctx context.Context, s *scenes) error {
	base := &http.Transport{}
	defer base.CloseIdleConnections()

	fmt.Fprintln(s.out, "the reply is lost after the commit: the second attempt gets the stored answer")
	answer := s.order(ctx, base, "order-1", 1, idemtest.LoseReply)
	if err := s.expect(ctx, answer, "201, replayed: true, attempts: 2", 1, 4); err != nil {
		return err
	}

	fmt.Fprintln(s.out, "the connection dies before the commit: nothing is left of it, the second attempt runs")
	var once sync.Once
	s.shop.beforeCommit = func(ctx context.Context, tx pgx.Tx) {
		once.Do(func() { _, _ = tx.Exec(ctx, `SELECT pg_terminate_backend(pg_backend_pid())`) })
	}
	answer = s.order(ctx, base, "order-2", 1)
	if err := s.expect(ctx, answer, "201, replayed: false, attempts: 2", 2, 3); err != nil {
		return err
	}

	fmt.Fprintln(s.out, "20 callers of one order at once, on 4 connections: one order, one answer")
	s.shop.beforeCommit = func(ctx context.Context, _ pgx.Tx) {
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
		}
	}
	answers := make([]string, 20)
	var all sync.WaitGroup
	for i := range answers {
		all.Go(func() { answers[i], _, _ = strings.Cut(s.order(ctx, base, "order-3", 1), ",") })
	}
	all.Wait()
	for _, a := range answers {
		if a != answers[0] {
			return fmt.Errorf("the callers got %q", answers)
		}
	}
	if err := s.expect(ctx, answers[0], "201", 3, 2); err != nil {
		return err
	}

	fmt.Fprintln(s.out, "a refusal is an answer too: it is kept, and the stock is as it was")
	s.shop.beforeCommit = nil
	answer = s.order(ctx, base, "order-4", 3)
	if err := s.expect(ctx, answer, "422, replayed: false, attempts: 1", 3, 2); err != nil {
		return err
	}
	return s.expect(ctx, s.order(ctx, base, "order-4", 3), "422, replayed: true, attempts: 1", 3, 2)
}

// order sends an order as a client process that knows nothing of the others,
// and tells how it came out.
func (s *scenes) order(ctx context.Context, base http.RoundTripper, id string, quantity int, faults ...idemtest.Fault) string {
	client, err := idem.New(idem.Config{Scope: "shop/order", Policy: idem.Policy{BaseDelay: 5 * time.Millisecond, MaxDelay: 20 * time.Millisecond, RetryAfterCap: 5 * time.Second}})
	if err != nil {
		return err.Error()
	}
	hc := &http.Client{Transport: client.Transport(idemtest.NewTransport(base, faults...))}
	body, err := json.Marshal(order{"chair", quantity})
	if err != nil {
		return err.Error()
	}
	ctx = idem.WithIntent(ctx, idem.Intent{ID: id})
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url, bytes.NewReader(body))
	if err != nil {
		return err.Error()
	}
	resp, err := hc.Do(req)
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	return fmt.Sprintf("%d, replayed: %s, attempts: %d", resp.StatusCode, resp.Header.Get("Idempotent-Replayed"), idem.ReportOf(resp).Attempts)
}

// expect compares what the caller was told, and what is in the tables.
func (s *scenes) expect(ctx context.Context, told, want string, orders, pieces int) error {
	var gotOrders, gotPieces int
	err := s.pool.QueryRow(ctx, `SELECT (SELECT count(*) FROM orders), (SELECT pieces FROM stock)`).Scan(&gotOrders, &gotPieces)
	if err != nil {
		return err
	}
	fmt.Fprintf(s.out, "   told: %s; orders: %d, chairs: %d\n", told, gotOrders, gotPieces)
	if told != want || gotOrders != orders || gotPieces != pieces {
		return fmt.Errorf("that is wrong: it should be %s; orders: %d, chairs: %d", want, orders, pieces)
	}
	return nil
}
