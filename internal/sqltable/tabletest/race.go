package tabletest

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/idem-go/idem/keystore"
)

const (
	raceProcesses = 4
	racersEach    = 4
	freshKeys     = 400
	deadKeys      = 400
	keysPerRound  = 20
)

// Races has racers of several processes claim new and dead records at once.
// Each record must have exactly one winner.
func Races(t *testing.T, b Backend) {
	dsn, seed := b.NewDSN(t), t.Name()
	s, _ := b.open(t, dsn)
	for i := freshKeys; i < freshKeys+deadKeys; i++ {
		p := raceParams(seed, i)
		p.Begun = i%2 == 0
		o := claim(t, s, p, keystore.Acquired).Owner
		if err := s.Release(t.Context(), o, keystore.ReleaseParams{How: keystore.Abandon}); err != nil {
			t.Fatal(err)
		}
	}
	var processes []*process
	for range raceProcesses {
		processes = append(processes, start(t, orders{Role: "race", DSN: dsn, Seed: seed}))
	}
	winners := make([]int, freshKeys+deadKeys)
	for first := 0; first < len(winners); first += keysPerRound {
		for _, p := range processes {
			fmt.Fprintln(p.in)
		}
		for _, p := range processes {
			var won []int
			line, err := p.out.ReadBytes('\n')
			if err == nil {
				err = json.Unmarshal(line, &won)
			}
			if err != nil {
				t.Fatalf("a process has failed: %v", err)
			}
			for _, i := range won {
				winners[i]++
			}
		}
	}
	for i, n := range winners {
		if n != 1 {
			t.Errorf("record %d has %d winners, want 1", i, n)
		}
	}
}

func raceParams(seed string, i int) keystore.ClaimParams {
	p := params()
	p.ID = sha256.Sum256(fmt.Appendf(nil, "%s %d", seed, i))
	p.Takeover = true
	return p
}

// race claims a round of records for each line that it reads, and writes which
// of them it has won.
func race(ctx context.Context, _ Backend, s Store, seed string) error {
	lines := bufio.NewScanner(os.Stdin)
	for first := 0; first < freshKeys+deadKeys && lines.Scan(); first += keysPerRound {
		var mu sync.Mutex
		var failed error
		won := []int{}
		for i := first; i < first+keysPerRound; i++ {
			var wg sync.WaitGroup
			for range racersEach {
				p := raceParams(seed, i)
				wg.Go(func() {
					c, err := s.Claim(ctx, p)
					mu.Lock()
					defer mu.Unlock()
					switch {
					case err != nil:
						failed = err
					case c.Status == keystore.Acquired:
						won = append(won, i)
					case c.Status != keystore.InFlight:
						failed = fmt.Errorf("a racing claim answered %v", c.Status)
					}
				})
			}
			wg.Wait()
		}
		if failed != nil {
			return failed
		}
		if err := json.NewEncoder(os.Stdout).Encode(won); err != nil {
			return err
		}
	}
	return lines.Err()
}
