package servertest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// PostgresEnv names the environment variable with the URL of a PostgreSQL
// database to test against, for tests that need a server but not its end. The
// user must be allowed to create databases.
const PostgresEnv = "IDEM_TEST_POSTGRES"

const (
	postgresStarts  = 5 // another process may take the free port first
	postgresReady   = 30 * time.Second
	postgresLook    = 10 * time.Millisecond
	postgresTimeout = 2 * time.Second
)

// PostgresServer is a PostgreSQL server of our own, on a port and in a folder
// of its own. Its methods are for one goroutine.
type PostgresServer struct {
	// URL is that of the server's first database. A Restart keeps it.
	URL string

	bin, dir string
	args     []string
	cmd      *exec.Cmd
	// exited is closed when the process has ended.
	exited chan struct{}
}

// Postgres starts a server with these settings ("name=value") that ends with
// the test. It survives the death of its process, not that of the machine:
// it does not wait for the disk unless told so by "fsync=on".
func Postgres(t testing.TB, settings ...string) *PostgresServer {
	t.Helper()
	s, err := StartPostgres(settings...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	return s
}

// StartPostgres is Postgres for a TestMain, which must call Stop.
func StartPostgres(settings ...string) (*PostgresServer, error) {
	bin, err := postgresBin()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "idem-postgres")
	if err != nil {
		return nil, err
	}
	s := &PostgresServer{bin: bin, dir: dir}
	if err := s.start(settings); err != nil {
		s.Stop()
		return nil, err
	}
	return s, nil
}

func (s *PostgresServer) start(settings []string) error {
	cmd := exec.Command(filepath.Join(s.bin, "initdb"), "-D", s.data(), "-U", "idem", "-A", "trust",
		"-E", "UTF8", "--locale=C", "--no-sync", "--no-instructions")
	cmd.Dir = s.dir
	if err := asServer(cmd, s.dir, "postgres", "nobody"); err != nil {
		return err
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("servertest: initdb: %w\n%s", err, out)
	}
	var err error
	for range postgresStarts {
		var l net.Listener
		if l, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			return err
		}
		port := strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
		l.Close()
		s.URL = "postgres://idem@127.0.0.1:" + port + "/postgres?sslmode=disable"
		s.args = []string{"-D", s.data(), "-p", port}
		for _, setting := range append([]string{
			"listen_addresses=127.0.0.1", "unix_socket_directories=", "max_connections=200", "shared_buffers=64MB",
			"fsync=off", "full_page_writes=off", "log_checkpoints=off",
		}, settings...) {
			s.args = append(s.args, "-c", setting)
		}
		if err = s.Restart(); err == nil {
			return nil
		}
	}
	return err
}

func (s *PostgresServer) data() string { return filepath.Join(s.dir, "data") }

// postgresBin returns the folder of the programs: that of $PATH, or else the
// newest one where the packages put it.
func postgresBin() (string, error) {
	if path, err := exec.LookPath("initdb"); err == nil {
		return filepath.Dir(path), nil
	}
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if len(found) == 0 {
		return "", errors.New("these tests need a real PostgreSQL: install its server programs " +
			"(Debian: apt-get install postgresql), or set " + PostgresEnv)
	}
	version := func(path string) int {
		n, _ := strconv.Atoi(strings.Split(path, "/")[4])
		return n
	}
	newest := slices.MaxFunc(found, func(a, b string) int { return version(a) - version(b) })
	return filepath.Dir(newest), nil
}

// Restart starts the process, which must not run, and returns when it answers.
// What a killed one has left behind ends by itself, and is waited for.
func (s *PostgresServer) Restart() error {
	ctx, cancel := context.WithTimeout(context.Background(), postgresReady)
	defer cancel()
	for {
		if err := s.launch(); err != nil {
			return err
		}
		err := s.ready(ctx)
		if err == nil {
			return nil
		}
		s.Kill()
		// Processes that outlive a killed server hold on to its memory.
		if ctx.Err() != nil || !strings.Contains(s.log(), "shared memory block") {
			return err
		}
	}
}

func (s *PostgresServer) launch() error {
	log, err := os.Create(s.logFile())
	if err != nil {
		return err
	}
	defer log.Close()
	cmd, exited := exec.Command(filepath.Join(s.bin, "postgres"), s.args...), make(chan struct{})
	cmd.Dir, cmd.Stdout, cmd.Stderr = s.dir, log, log
	if err := asServer(cmd, s.dir, "postgres", "nobody"); err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("servertest: starting postgres: %w", err)
	}
	s.cmd, s.exited = cmd, exited
	go func() {
		_ = cmd.Wait() // killed, as a rule
		close(exited)
	}()
	return nil
}

func (s *PostgresServer) ready(ctx context.Context) error {
	tick := time.NewTicker(postgresLook)
	defer tick.Stop()
	for {
		err := exec1(ctx, s.URL, "SELECT 1")
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-s.exited:
			return fmt.Errorf("servertest: postgres has ended: %w\n%s", err, s.log())
		case <-ctx.Done():
			return fmt.Errorf("servertest: postgres does not answer: %w\n%s", err, s.log())
		}
	}
}

func (s *PostgresServer) logFile() string { return filepath.Join(s.dir, "postgres.log") }

// log returns what the latest process has said.
func (s *PostgresServer) log() string {
	b, err := os.ReadFile(s.logFile())
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// Kill ends the server's processes with SIGKILL and returns when they have ended.
// Those of its connections would serve on for a moment. A server that has ended
// before is as good.
func (s *PostgresServer) Kill() {
	if s.cmd == nil {
		return
	}
	_ = s.cmd.Process.Kill()
	<-s.exited
	killIn(s.dir)
}

// Stop ends the process, whoever is connected, and removes its folder.
func (s *PostgresServer) Stop() {
	if s.cmd != nil {
		_ = s.cmd.Process.Signal(os.Interrupt)
		<-s.exited
	}
	os.RemoveAll(s.dir)
}

// exec1 runs one statement on a connection of its own.
func exec1(ctx context.Context, serverURL, sql string) error {
	ctx, cancel := context.WithTimeout(ctx, postgresReady)
	defer cancel()
	cfg, err := pgx.ParseConfig(serverURL)
	if err != nil {
		return err
	}
	cfg.ConnectTimeout = postgresTimeout
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, sql)
	return err
}
