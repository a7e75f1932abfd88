package pgstore

import (
	"bufio"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/keystore"
)

// What a child process is told: its task, and where the store is.
const (
	childEnv = "IDEM_PGSTORE_CHILD"
	urlEnv   = "IDEM_PGSTORE_URL"
	tableEnv = "IDEM_PGSTORE_TABLE"
)

// child is this test binary once more, in a process of its own.
type child struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func startChild(t *testing.T, task string, s *Store) *child {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+task, urlEnv+"="+serverURL, tableEnv+"="+s.cfg.Table)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c := &child{cmd, in, bufio.NewReader(out)}
	t.Cleanup(c.kill)
	return c
}

// kill ends the process with SIGKILL. One that has ended is as good.
func (c *child) kill() {
	_ = c.cmd.Process.Kill()
	_ = c.cmd.Wait()
}

// runChild is the main function of a child.
func runChild(task string) int {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, os.Getenv(urlEnv))
	if err == nil {
		var s *Store
		if s, err = New(pool, Config{Table: os.Getenv(tableEnv)}); err == nil {
			err = map[string]func(context.Context, *Store) error{
				"race": raceChild, "pay": payChild,
				"ascending":  func(ctx context.Context, s *Store) error { return orderChild(ctx, s, false) },
				"descending": func(ctx context.Context, s *Store) error { return orderChild(ctx, s, true) },
			}[task](ctx, s)
		}
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "child %s: %v\n", task, err)
		return 1
	}
	return 0
}

const (
	raceKeys     = 400 // of each kind
	raceChildren = 4
	racersEach   = 4
)

// raceID is the ID of a key that all children want.
func raceID(table, kind string, i int) [32]byte {
	return sha256.Sum256(fmt.Append(nil, table, kind, i))
}

// raceChild claims all keys as several racers, beginning when it reads a line,
// and writes which of them it won.
func raceChild(ctx context.Context, s *Store) error {
	fmt.Println("ready")
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		return err
	}
	var wg sync.WaitGroup
	won := make([]map[string][]int, racersEach)
	errs := make([]error, racersEach)
	for r := range racersEach {
		won[r] = map[string][]int{}
		wg.Go(func() {
			for i := range raceKeys {
				for _, kind := range []string{"fresh", "dead"} {
					p := keystore.ClaimParams{ID: raceID(s.cfg.Table, kind, i), Fingerprint: [32]byte{1}, Lease: long}
					rand.Read(p.Nonce[:])
					c, err := s.Claim(ctx, p)
					if err != nil || c.Status != keystore.Acquired && c.Status != keystore.InFlight {
						errs[r] = fmt.Errorf("a racing claim answered %v, %w", c.Status, err)
						return
					}
					if c.Status == keystore.Acquired {
						won[r][kind] = append(won[r][kind], i)
					}
				}
			}
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(won)
}

// payStages is how many bytes a payment writes: when it is claimed, when it has
// had its effect, and when its commit is next.
const payStages = 3

// payChild makes payments, each of which is an effect and its record in one
// transaction, until it is killed.
func payChild(ctx context.Context, s *Store) error {
	stage := func(err error) error {
		if err == nil {
			_, err = os.Stdout.WriteString(".")
		}
		return err
	}
	pay := inTable(s, "INSERT INTO {table}_payments VALUES ($1)")
	for {
		p := params()
		err := s.InTx(ctx, func(ctx context.Context, inTx keystore.Store) error {
			c, err := inTx.Claim(ctx, p)
			if err := stage(err); err != nil {
				return err
			}
			tx, _ := TxFrom(ctx)
			_, err = tx.Exec(ctx, pay, p.ID[:])
			if err := stage(err); err != nil {
				return err
			}
			return stage(inTx.Complete(ctx, c.Owner, keystore.CompleteParams{Result: []byte("paid"), Retention: long}))
		})
		if err != nil {
			return err
		}
	}
}
