package txtest

import (
	"bufio"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/keystore"
	"github.com/idem-go/idem/server"
)

// childEnv holds the orders of a process that a test has started, in JSON.
const childEnv = "IDEM_TXTEST_CHILD"

// childOrders say what a child works on.
type childOrders struct {
	Backend, DSN, Worker string
	// First is the number of its first intent.
	First int
}

// What a child writes while it works, a byte each: when it has the claim, when
// its effect is written, when the commit is next, and when it was told how it
// ended.
const stages = "abce"

// runChild carries out one intent after another, until it is killed.
func runChild(text string) int {
	err := work(context.Background(), text)
	fmt.Fprintln(os.Stderr, "child:", err)
	return 1
}

func work(ctx context.Context, text string) error {
	var o childOrders
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		return err
	}
	for _, b := range backends {
		if b.name != o.Backend {
			continue
		}
		db, err := b.connect(ctx, o.DSN, 2)
		if err != nil {
			return err
		}
		stage := func(i int) { _, _ = os.Stdout.WriteString(stages[i : i+1]) }
		store := &hooked{txStore: db.store, beforeCommit: func() { stage(2) }}
		s, err := server.New(server.Config{Store: store, Effects: server.Transaction, Scope: server.SingleTenant})
		if err != nil {
			return err
		}
		for n := o.First; ; n++ {
			id := fmt.Sprint(o.Worker, "-", n)
			_, err := server.Run(ctx, s, idem.Intent{Scope: "orders", ID: id}, func(ctx context.Context) (string, error) {
				stage(0)
				if err := b.effect(ctx, recordRef(id)); err != nil {
					return "", err
				}
				stage(1)
				return "done " + id, nil
			})
			switch {
			case err == nil:
				stage(3)
			case errors.Is(err, idem.ErrInFlight):
				n-- // a dead process may still have the database's attention
			default:
				return err
			}
		}
	}
	return fmt.Errorf("there is no backend %q", o.Backend)
}

// recordRef is the ID of an intent's record as text.
func recordRef(id string) string {
	record := keystore.RecordID(keystore.Server, "orders", "id", id)
	return hex.EncodeToString(record[:])
}

// agree counts effects, each of which must have its completed record and each
// record its one effect.
func (db *database) agree(t testing.TB) int {
	t.Helper()
	var counts []int
	for _, query := range []string{
		// One statement, for a server may still commit what a dead client sent.
		`SELECT (SELECT count(*) FROM effects) - (SELECT count(*) FROM idem_records)`,
		`SELECT count(*) FROM effects WHERE ref NOT IN (SELECT ` + db.hex + ` FROM idem_records WHERE state = 3)`,
		`SELECT count(*) - count(DISTINCT ref) FROM effects`,
		`SELECT count(*) FROM effects`,
	} {
		n, err := db.number(t.Context(), query)
		if err != nil {
			t.Fatal(err)
		}
		counts = append(counts, n)
	}
	if counts[0] != 0 || counts[1] != 0 || counts[2] != 0 {
		t.Fatalf("there are %d more effects than records, %d effects without their record, %d effects that came twice", counts[0], counts[1], counts[2])
	}
	return counts[3]
}

// A process that dies anywhere between claim and commit leaves effect and
// record, or neither; and the next one, with the same intent, makes it one.
func TestKilled(t *testing.T) {
	const kills, atOnce = 200, 2
	onEach(t, func(t *testing.T, b *backend) {
		db, dsn := b.open(t)
		var all sync.WaitGroup
		var last [len(stages)]atomic.Int64 // by the stage that was the last
		var told atomic.Int64
		for w := range atOnce {
			all.Go(func() {
				o := childOrders{Backend: b.name, DSN: dsn, Worker: fmt.Sprint("w", w)}
				for range kills / atOnce {
					wrote, err := killed(o, 1+rand.IntN(3*len(stages)))
					if err != nil {
						t.Error(err)
						return
					}
					done := strings.Count(wrote, "e")
					o.First += done
					told.Add(int64(done))
					last[strings.IndexByte(stages, wrote[len(wrote)-1])].Add(1)
					db.agree(t)
				}
			})
		}
		all.Wait()
		n := db.agree(t)
		if told := int(told.Load()); n < told || n > told+atOnce {
			t.Errorf("%d effects, and %d were told of", n, told)
		}
		between := last[0].Load() + last[1].Load() + last[2].Load()
		if n == 0 || between == 0 {
			t.Errorf("%d effects, and %d processes died between claim and commit; want some of both", n, between)
		}
		t.Logf("%d effects; %d processes died after the claim, %d after the effect, %d at the commit, %d after it",
			n, last[0].Load(), last[1].Load(), last[2].Load(), last[3].Load())
	})
}

// killed starts a child, kills it once it has written that many bytes, and
// returns what it wrote in all.
func killed(o childOrders, bytes int) (wrote string, err error) {
	text, err := json.Marshal(o)
	if err != nil {
		return "", err
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+string(text))
	cmd.Stderr = os.Stderr
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		return "", err
	}
	if err := cmd.Start(); err != nil {
		return "", err
	}
	out := bufio.NewReader(pipe)
	first := make([]byte, bytes)
	_, err = io.ReadFull(out, first)
	_ = cmd.Process.Kill()
	rest, _ := io.ReadAll(out)
	_ = cmd.Wait() // killed
	if err != nil {
		return "", fmt.Errorf("a child has ended by itself: %w", err)
	}
	return string(first) + string(rest), nil
}
