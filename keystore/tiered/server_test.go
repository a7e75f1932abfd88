package tiered_test

import (
	"bufio"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/idem-go/idem/internal/lincheck"
	"github.com/idem-go/idem/internal/servertest"
	"github.com/idem-go/idem/internal/storeurl"
	"github.com/idem-go/idem/keystore"
	"github.com/idem-go/idem/keystore/keystoretest"
	"github.com/idem-go/idem/keystore/tiered"
)

// What a child process is told: where the stores are.
const (
	frontEnv = "IDEM_TIERED_FRONT"
	backEnv  = "IDEM_TIERED_BACK"
)

func TestMain(m *testing.M) {
	if front := os.Getenv(frontEnv); front != "" {
		if err := race(context.Background(), front, os.Getenv(backEnv)); err != nil {
			fmt.Fprintln(os.Stderr, "child:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(servertest.RedisTests(m))
}

// open opens a store by its URL, migrated.
func open(t testing.TB, url string) *storeurl.Opened {
	t.Helper()
	s, err := storeurl.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	if err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

func redisURL(s *servertest.RedisServer) string { return "redis://" + s.Addr + "/0" }

// The contract holds with the real thing on either side.
func TestContractOnServers(t *testing.T) {
	redis, postgres := servertest.Redis(t, servertest.RedisOptions{}), servertest.Postgres(t)
	for name, back := range map[string]string{
		"redis and postgres": postgres.URL,
		"redis and sqlite":   "sqlite:" + filepath.Join(t.TempDir(), "idem.db"),
	} {
		t.Run(name, func(t *testing.T) {
			s := store(t, open(t, redisURL(redis)).Store, open(t, back).Store, tiered.Config{FrontTimeout: time.Second})
			keystoretest.Run(t, func(*testing.T) keystore.Store { return s })
		})
	}
}

func TestLinearizable(t *testing.T) {
	redis, postgres := servertest.Redis(t, servertest.RedisOptions{}), servertest.Postgres(t)
	one := store(t, open(t, redisURL(redis)).Store, open(t, postgres.URL).Store, tiered.Config{})
	two := store(t, open(t, redisURL(redis)).Store, open(t, postgres.URL).Store, tiered.Config{FrontTimeout: time.Second})
	lincheck.Run(t, 8, 1300, one, two)
}

// Redis is flushed, its scripts are, it is killed without having kept anything,
// and the database is killed as well, all in the middle of the load: no intent
// has two winners, and each is answered with its winner's result. (What Redis
// alone loses then, package redisstore shows.)
func TestLosingServers(t *testing.T) {
	redis, postgres := servertest.Redis(t, servertest.RedisOptions{}), servertest.Postgres(t)
	front := open(t, redisURL(redis))
	var lost atomic.Int64
	s := store(t, front.Store, open(t, postgres.URL).Store, tiered.Config{OnFrontError: func(error) { lost.Add(1) }})
	const workers, intents = 8, 400
	var settled atomic.Int64
	executed := make([]atomic.Int64, intents)
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for i := range intents {
				for done := false; !done && t.Context().Err() == nil; {
					done = carryOut(t, s, i, &executed[i])
				}
				settled.Add(1)
			}
		})
	}
	breakages := []func() error{
		func() error { return front.Redis.FlushAll(t.Context()).Err() },
		func() error { return front.Redis.ScriptFlush(t.Context()).Err() },
		func() error {
			redis.Kill()
			// Until somebody has noticed, or nobody is left who could.
			for before := lost.Load(); lost.Load() == before && settled.Load() < workers*intents && !t.Failed(); {
				<-time.After(time.Millisecond)
			}
			return redis.Restart()
		},
		func() error { postgres.Kill(); return postgres.Restart() },
	}
	const times = 12
	for n := range times {
		for settled.Load() < int64(workers*intents*n/times) {
			if t.Failed() {
				t.FailNow()
			}
			<-time.After(time.Millisecond)
		}
		if err := breakages[n%len(breakages)](); err != nil {
			t.Error(err)
		}
	}
	wg.Wait()
	for i := range executed {
		if n := executed[i].Load(); n != 1 {
			t.Errorf("intent %d was executed %d times", i, n)
		}
	}
	if lost.Load() == 0 {
		t.Error("the front has not failed once")
	}
}

// carryOut carries an intent out unless somebody has, and tells whether it is
// settled. A store that fails is asked again.
func carryOut(t *testing.T, s keystore.Store, i int, executed *atomic.Int64) bool {
	p := keystore.ClaimParams{ID: keystore.RecordID(keystore.Server, "load", "id", fmt.Sprint(i)), Lease: time.Hour, Begun: true}
	_, _ = rand.Read(p.Nonce[:])
	var c keystore.Claim
	for err := error(keystore.ErrFull); err != nil; {
		if t.Context().Err() != nil {
			return false
		}
		c, err = s.Claim(t.Context(), p)
	}
	switch c.Status {
	case keystore.Acquired:
		executed.Add(1)
		for err := error(keystore.ErrFull); err != nil; {
			if t.Context().Err() != nil {
				return false
			}
			err = s.Complete(t.Context(), c.Owner, keystore.CompleteParams{Result: []byte(fmt.Sprint(i)), Retention: time.Hour})
		}
		return true
	case keystore.Completed:
		if string(c.Record.Result) != fmt.Sprint(i) {
			t.Errorf("intent %d is answered %q", i, c.Record.Result)
		}
		return true
	case keystore.InFlight:
		return false
	}
	t.Errorf("intent %d: %v", i, c.Status)
	return true
}

const (
	raceKeys     = 400 // of each kind
	raceChildren = 4
	racersEach   = 4
)

func raceID(kind string, i int) [32]byte { return sha256.Sum256(fmt.Append(nil, kind, i)) }

// B087: racers of several processes, and one winner for each key, new or with a
// dead owner.
func TestRaceOfProcesses(t *testing.T) {
	redis, postgres := servertest.Redis(t, servertest.RedisOptions{}), servertest.Postgres(t)
	s := store(t, open(t, redisURL(redis)).Store, open(t, postgres.URL).Store, tiered.Config{})
	for i := range raceKeys {
		p := keystore.ClaimParams{ID: raceID("dead", i), Lease: time.Hour, Nonce: [16]byte{1}}
		c, err := s.Claim(t.Context(), p)
		if err == nil {
			err = s.Release(t.Context(), c.Owner, keystore.ReleaseParams{How: keystore.Abandon})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	type child struct {
		cmd   *exec.Cmd
		out   *bufio.Reader
		start func()
	}
	var children []child
	for range raceChildren {
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), frontEnv+"="+redisURL(redis), backEnv+"="+postgres.URL)
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
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
		children = append(children, child{cmd, bufio.NewReader(out), func() { fmt.Fprintln(in, "go") }})
	}
	for _, c := range children {
		if line, err := c.out.ReadString('\n'); err != nil {
			t.Fatalf("a child did not start: %q, %v", line, err)
		}
	}
	for _, c := range children {
		c.start()
	}
	winners := map[string]int{}
	for _, c := range children {
		var won []string
		if err := json.NewDecoder(c.out).Decode(&won); err != nil {
			t.Fatalf("a child told no result: %v", err)
		}
		for _, key := range won {
			winners[key]++
		}
	}
	for _, kind := range []string{"fresh", "dead"} {
		for i := range raceKeys {
			if n := winners[fmt.Sprint(kind, " ", i)]; n != 1 {
				t.Errorf("key %s %d has %d winners of %d racers, want 1", kind, i, n, raceChildren*racersEach)
			}
		}
	}
}

// race is the main function of a child: it claims all keys as several racers,
// when it reads a line, and writes which of them it won.
func race(ctx context.Context, frontURL, backURL string) error {
	front, err := storeurl.Open(ctx, frontURL)
	if err != nil {
		return err
	}
	back, err := storeurl.Open(ctx, backURL)
	if err != nil {
		return err
	}
	s, err := tiered.New(front.Store, back.Store, tiered.Config{})
	if err != nil {
		return err
	}
	fmt.Println("ready")
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		return err
	}
	var mu sync.Mutex // guards won and failed
	won := []string{}
	var failed error
	var wg sync.WaitGroup
	for range racersEach {
		wg.Go(func() {
			for i := range raceKeys {
				for _, kind := range []string{"fresh", "dead"} {
					p := keystore.ClaimParams{ID: raceID(kind, i), Lease: time.Hour}
					_, _ = rand.Read(p.Nonce[:])
					c, err := s.Claim(ctx, p)
					mu.Lock()
					switch {
					case err != nil || c.Status != keystore.Acquired && c.Status != keystore.InFlight:
						failed = fmt.Errorf("a racing claim answered %v, %w", c.Status, err)
					case c.Status == keystore.Acquired:
						won = append(won, fmt.Sprint(kind, " ", i))
					}
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	if failed != nil {
		return failed
	}
	return json.NewEncoder(os.Stdout).Encode(won)
}
