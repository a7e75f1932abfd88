package tabletest

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/idem-go/idem/keystore"
)

const (
	crashes       = 60
	crashesAtOnce = 4
)

// Crashes kills processes in the midst of transactions. What the application
// has stored and which records are done must agree every time.
func Crashes(t *testing.T, b Backend) {
	dsn := b.NewDSN(t)
	s, db := b.open(t, dsn)
	effects(t, db)
	total := 0
	for range crashes / crashesAtOnce {
		var processes []*process
		for range crashesAtOnce {
			processes = append(processes, start(t, orders{Role: "crash", DSN: dsn}))
		}
		for _, p := range processes {
			if _, err := p.out.ReadByte(); err != nil {
				t.Fatalf("a process has ended by itself: %v", err)
			}
			p.kill()
		}
		total = agree(t, db)
	}
	if total == 0 {
		t.Error("no process has committed anything")
	}
	recs, err := s.Records(t.Context(), keystore.Query{Limit: 1 << 20})
	if err != nil || len(recs) != total {
		t.Errorf("there are %d records, %v; want %d, all done", len(recs), err, total)
	}
}

// agree returns how many effects there are, each of which must have its record
// and each record its effect.
func agree(t *testing.T, db *sql.DB) (n int) {
	t.Helper()
	// One statement, for a server may still commit what a dead client sent.
	var records, pairs int
	err := db.QueryRowContext(t.Context(), `SELECT
		(SELECT count(*) FROM effects),
		(SELECT count(*) FROM idem_records),
		(SELECT count(*) FROM effects e JOIN idem_records r ON e.id = r.id WHERE r.state = 3)`).Scan(&n, &records, &pairs)
	if err != nil {
		t.Fatal(err)
	}
	if n != records || n != pairs {
		t.Fatalf("there are %d effects and %d records, %d of which belong together", n, records, pairs)
	}
	return n
}

// crash has effects in transactions for ever. At one moment between a claim
// and its commit it asks for its end, and does not wait for it.
func crash(ctx context.Context, b Backend, s Store, _ string) error {
	at, stage := rand.IntN(4), rand.IntN(4)
	for n := 0; ; n++ {
		now := func(here int) {
			if n == at && here == stage {
				fmt.Print("x")
			}
		}
		_, err := claimInTx(ctx, s, params(), func(ctx context.Context, in keystore.Store, o keystore.Owner) error {
			now(0)
			tx, _ := b.TxFrom(ctx)
			if _, err := tx.ExecContext(ctx, "INSERT INTO effects (id) VALUES (?)", o.ID[:]); err != nil {
				return err
			}
			now(1)
			if err := in.Complete(ctx, o, keystore.CompleteParams{Retention: long}); err != nil {
				return err
			}
			now(2)
			return nil
		})
		if err != nil {
			return err
		}
		now(3)
	}
}
