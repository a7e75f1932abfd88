package redisstore

import (
	"bufio"
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/idem-go/idem/internal/lincheck"
	"github.com/idem-go/idem/keystore"
)

// What many workers are answered at once could have been answered one after
// another.
func TestLinearizable(t *testing.T) {
	t.Parallel()
	prefix := newPrefix()
	lincheck.Run(t, 8, 1300, newStore(t, shared, Config{Prefix: prefix}), newStore(t, shared, Config{Prefix: prefix}))
}

const (
	// racerEnv makes a process of this test binary a racer: address, prefix.
	racerEnv = "REDISSTORE_RACER"

	racerProcesses   = 4
	racersPerProcess = 4
	racedRecords     = 400 // of each kind
	recordsPerGate   = 40
)

// raced is the claim of a racer to the n-th record of a kind.
func raced(kind string, n int) keystore.ClaimParams {
	p := rival(keystore.ClaimParams{Lease: time.Hour, Keep: time.Hour, Begun: n%2 == 0, Takeover: true})
	p.ID = sha256.Sum256(fmt.Append(nil, kind, n))
	return p
}

var racedKinds = []string{"fresh", "dead"}

// B087, B143: of 16 racers in 4 processes exactly one acquires each record, be
// it new or its owner dead.
func TestB087RaceOfProcesses(t *testing.T) {
	t.Parallel()
	prefix := newPrefix()
	s := newStore(t, shared, Config{Prefix: prefix})
	for n := range racedRecords {
		release(t, s, acquire(t, s, raced("dead", n)), keystore.Abandon)
	}
	var mu sync.Mutex
	winners := map[string]int{}
	var wg sync.WaitGroup
	for range racerProcesses {
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), racerEnv+"="+shared+" "+prefix, "GORACE=atexit_sleep_ms=0")
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		ok(t, err)
		ok(t, cmd.Start())
		wg.Go(func() {
			for lines := bufio.NewScanner(out); lines.Scan(); {
				mu.Lock()
				winners[lines.Text()]++
				mu.Unlock()
			}
			if err := cmd.Wait(); err != nil {
				t.Errorf("a racing process: %v", err)
			}
		})
	}
	wg.Wait()
	for _, kind := range racedKinds {
		for n := range racedRecords {
			if got := winners[fmt.Sprint(kind, " ", n)]; got != 1 {
				t.Errorf("record %d of the %s ones has %d winners, want 1", n, kind, got)
			}
		}
	}
}

// racer is one of the processes. It prints the records that it acquires.
func racer() int {
	addr, prefix, _ := strings.Cut(os.Getenv(racerEnv), " ")
	client := redis.NewClient(&redis.Options{Addr: addr})
	defer client.Close()
	s, err := New(client, Config{Prefix: prefix})
	if err == nil {
		err = race(context.Background(), s)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func race(ctx context.Context, s *Store) error {
	for _, kind := range racedKinds {
		for n := range racedRecords {
			if n%recordsPerGate == 0 {
				if err := gate(ctx, s, fmt.Sprint(s.prefix, "gate-", kind, n)); err != nil {
					return err
				}
			}
			errs := make([]error, racersPerProcess)
			var wg sync.WaitGroup
			for i := range errs {
				wg.Go(func() {
					c, err := s.Claim(ctx, raced(kind, n))
					switch {
					case err != nil:
						errs[i] = err
					case c.Status == keystore.Acquired:
						fmt.Println(kind, n)
					case c.Status != keystore.InFlight:
						errs[i] = fmt.Errorf("a racing claim answered %v", c.Status)
					}
				})
			}
			wg.Wait()
			for _, err := range errs {
				if err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// gate returns when all processes have come to it, so that none runs ahead.
func gate(ctx context.Context, s *Store, name string) error {
	n, err := s.client.Incr(ctx, name).Result()
	if err == nil && n == racerProcesses {
		err = s.client.RPush(ctx, name+"-open", 1, 2, 3, 4).Err()
	}
	if err != nil {
		return err
	}
	return s.client.BLPop(ctx, time.Minute, name+"-open").Err()
}
