package pgstore

import (
	"bufio"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/keystore"
)

// B087: racers of two stores, whose batches have the same records, and one
// winner for each.
func TestRaceOfBatches(t *testing.T) {
	t.Parallel()
	const keys, racers = 200, 16
	a := meeting(t, newPool(t, serverURL, conns(4)))
	b := openStore(t, newPool(t, serverURL, conns(4)), a.cfg)
	meet(b)
	for kind, prepare := range map[string]func(keystore.ClaimParams){
		"fresh": func(keystore.ClaimParams) {},
		"dead":  func(p keystore.ClaimParams) { release(t, a, claim(t, a, p, keystore.Acquired).Owner, keystore.Abandon) },
		"free":  func(p keystore.ClaimParams) { release(t, a, claim(t, a, p, keystore.Acquired).Owner, keystore.Forget) },
	} {
		var ps [keys]keystore.ClaimParams
		for i := range ps {
			ps[i] = params()
			prepare(rival(ps[i]))
		}
		var winners [keys]atomic.Int32
		var wg sync.WaitGroup
		for r := range racers {
			s := []*Store{a, b}[r%2]
			// Each racer has several calls at a time, so that they meet.
			for part := range 5 {
				wg.Go(func() {
					for n := range keys / 5 {
						i := n*5 + part
						if r%4 > 1 {
							i = keys - 1 - i
						}
						c, err := s.Claim(t.Context(), rival(ps[i]))
						if err == nil && c.Status == keystore.Acquired {
							winners[i].Add(1)
							err = s.Complete(t.Context(), c.Owner, keystore.CompleteParams{Result: []byte("result"), Retention: long})
						} else if err == nil && c.Status != keystore.InFlight && c.Status != keystore.Completed {
							err = fmt.Errorf("a racing claim answered %v", c.Status)
						}
						if err != nil {
							t.Error(err)
						}
					}
				})
			}
		}
		wg.Wait()
		for i := range winners {
			if n := winners[i].Load(); n != 1 {
				t.Errorf("%s key %d has %d winners of %d racers, want 1", kind, i, n, racers)
			}
		}
	}
}

// How often two processes claim the same records in batches, and how many.
const (
	orderRounds = 2000
	orderKeys   = 8
)

// orderID is the ID of a record that both processes want.
func orderID(table string, i int) [32]byte { return sha256.Sum256(fmt.Append(nil, table, "order", i)) }

// Two processes call for the same records in opposite order. Their batches wait
// for each other, but never both.
func TestBatchesOfProcesses(t *testing.T) {
	t.Parallel()
	store := newStore(t, newPool(t, serverURL))
	children := []*child{startChild(t, "ascending", store), startChild(t, "descending", store)}
	for _, c := range children {
		if line, err := c.out.ReadString('\n'); err != nil {
			t.Fatalf("a child did not start: %q, %v", line, err)
		}
	}
	for _, c := range children {
		fmt.Fprintln(c.in, "go")
	}
	for _, c := range children {
		if line, err := c.out.ReadString('\n'); err != nil || line != "done\n" {
			t.Errorf("a child told %q, %v", line, err)
		}
	}
}

// refusals counts the statements that the server refused.
type refusals struct{ atomic.Int64 }

func (*refusals) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}

func (r *refusals) TraceQueryEnd(_ context.Context, _ *pgx.Conn, data pgx.TraceQueryEndData) {
	if code(data.Err) != "" {
		r.Add(1)
	}
}

// orderChild claims the records in batches, again and again, and completes
// them: whoever comes next is granted them, as soon as he has waited for who is
// at it. Nothing must be refused, so nobody has waited in a circle.
func orderChild(ctx context.Context, s *Store, descending bool) error {
	var refused refusals
	cfg := s.pool.Config()
	cfg.ConnConfig.Tracer = &refused
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return err
	}
	defer pool.Close()
	if s, err = New(pool, s.cfg); err != nil {
		return err
	}
	meet(s)
	// They wait for as long as it takes.
	s.sql.claimBatch = strings.Replace(s.sql.claimBatch, "200ms", "0", 1)
	s.sql.completeBatch = strings.Replace(s.sql.completeBatch, "200ms", "0", 1)
	fmt.Println("ready")
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		return err
	}
	errs := make([]error, orderKeys)
	for range orderRounds {
		var wg sync.WaitGroup
		for i := range orderKeys {
			if descending {
				i = orderKeys - 1 - i
			}
			wg.Go(func() { errs[i] = claimShortly(ctx, s, orderID(s.cfg.Table, i)) })
		}
		wg.Wait()
		if err := errors.Join(errs...); err != nil {
			return err
		}
	}
	if n := refused.Load(); n != 0 {
		return fmt.Errorf("the server refused %d statements", n)
	}
	fmt.Println("done")
	return nil
}

// claimShortly has a record for a microsecond, and completes it if nobody else
// has it by then.
func claimShortly(ctx context.Context, s *Store, id [32]byte) error {
	p := keystore.ClaimParams{ID: id, Lease: 1}
	rand.Read(p.Nonce[:])
	c, err := s.Claim(ctx, p)
	if err == nil && c.Status == keystore.Acquired {
		if err = s.Complete(ctx, c.Owner, keystore.CompleteParams{Retention: 1}); errors.Is(err, keystore.ErrFenced) {
			err = nil
		}
	}
	return err
}
