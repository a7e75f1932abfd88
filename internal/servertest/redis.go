package servertest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"time"
)

// RedisEnv names the environment variable with the address of a Redis server
// to test against, for tests that need a server but not its end.
const RedisEnv = "IDEM_TEST_REDIS"

const (
	redisStarts  = 5 // another process may take the free port first
	redisReady   = 20 * time.Second
	redisLook    = 5 * time.Millisecond
	redisTimeout = time.Second
)

// RedisOptions say how a server is started. The zero value keeps nothing on
// disk.
type RedisOptions struct {
	// AOF makes the server write every command to its append-only file, and
	// the file to the disk, before it answers.
	AOF bool
	// Args are further arguments of redis-server.
	Args []string
}

// RedisServer is a redis-server of our own, on a port and in a folder of its
// own. Its methods are for one goroutine.
type RedisServer struct {
	// Addr is the server's host and port. A Restart keeps it.
	Addr string

	dir  string
	args []string
	cmd  *exec.Cmd
	// exited is closed when the process has ended.
	exited chan struct{}
}

// Redis starts a server that ends with the test.
func Redis(t testing.TB, opts RedisOptions) *RedisServer {
	t.Helper()
	s, err := StartRedis(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	return s
}

// StartRedis is Redis for a TestMain, which must call Stop.
func StartRedis(opts RedisOptions) (*RedisServer, error) {
	if _, err := exec.LookPath("redis-server"); err != nil {
		return nil, fmt.Errorf("these tests need a real Redis: install redis-server (Debian: apt-get install redis-server): %w", err)
	}
	dir, err := os.MkdirTemp("", "idem-redis")
	if err != nil {
		return nil, err
	}
	for range redisStarts {
		var addr string
		if addr, err = freeRedisAddr(); err != nil {
			break
		}
		s := &RedisServer{Addr: addr, dir: dir, args: redisArgs(addr, dir, opts)}
		if err = s.Restart(); err == nil {
			return s, nil
		}
		s.Kill()
	}
	os.RemoveAll(dir)
	return nil, err
}

func redisArgs(addr, dir string, opts RedisOptions) []string {
	host, port, _ := net.SplitHostPort(addr)
	args := []string{
		"--bind", host, "--port", port, "--dir", dir, "--logfile", "redis.log",
		"--daemonize", "no", "--save", "", "--appendonly", "no", "--appendfsync", "always",
		"--repl-diskless-sync-delay", "0", // a replica is served at once
	}
	if opts.AOF {
		args = append(args, "--appendonly", "yes")
	}
	return append(args, opts.Args...)
}

// freeRedisAddr returns a local address that nobody listens on, whose port
// leaves room for the cluster bus, 10000 above it.
func freeRedisAddr() (string, error) {
	for range 1000 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return "", err
		}
		l.Close()
		if l.Addr().(*net.TCPAddr).Port < 1<<16-10000 {
			return l.Addr().String(), nil
		}
	}
	return "", errors.New("servertest: no free port below 55536")
}

// Restart starts the process, which must not run, and returns when it answers.
func (s *RedisServer) Restart() error {
	cmd, exited := exec.Command("redis-server", s.args...), make(chan struct{})
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("servertest: starting redis-server: %w", err)
	}
	s.cmd, s.exited = cmd, exited
	go func() {
		_ = cmd.Wait() // killed, as a rule
		close(exited)
	}()
	return s.ready()
}

// ready waits until the server answers: it may have a file to load first.
func (s *RedisServer) ready() error {
	deadline := time.NewTimer(redisReady)
	defer deadline.Stop()
	tick := time.NewTicker(redisLook)
	defer tick.Stop()
	for {
		err := s.ping()
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-s.exited:
			return fmt.Errorf("servertest: redis-server has ended: %w\n%s", err, s.log())
		case <-deadline.C:
			return fmt.Errorf("servertest: redis-server does not answer: %w\n%s", err, s.log())
		}
	}
}

// ping tells whether our process answers, with all its data.
func (s *RedisServer) ping() error {
	conn, err := net.DialTimeout("tcp", s.Addr, redisTimeout)
	if err != nil {
		return err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(redisTimeout))
	if _, err := io.WriteString(conn, "PING\r\nINFO server\r\nQUIT\r\n"); err != nil {
		return err
	}
	answer, err := io.ReadAll(conn)
	if err != nil {
		return err
	}
	// Another process may have been quicker to take the port.
	ours := fmt.Sprintf("process_id:%d\r\n", s.cmd.Process.Pid)
	if !bytes.HasPrefix(answer, []byte("+PONG")) || !bytes.Contains(answer, []byte(ours)) {
		return fmt.Errorf("PING answered %.40q", answer)
	}
	return nil
}

// log returns what the server has said.
func (s *RedisServer) log() []byte {
	b, err := os.ReadFile(filepath.Join(s.dir, "redis.log"))
	if err != nil {
		return []byte(err.Error())
	}
	return b
}

// Kill ends the process with SIGKILL and returns when it has ended. A process
// that has ended before is as good.
func (s *RedisServer) Kill() {
	if s.cmd == nil {
		return
	}
	_ = s.cmd.Process.Kill()
	<-s.exited
}

// Stop ends the process and removes its folder.
func (s *RedisServer) Stop() {
	s.Kill()
	os.RemoveAll(s.dir)
}

// RedisTests is m for goleak.VerifyTestMain where a test takes a Redis server
// away: it ends when go-redis has seen that its clients are closed. A client
// that can't dial looks once a second only.
func RedisTests(m *testing.M) interface{ Run() int } { return redisTests{m} }

type redisTests struct{ *testing.M }

func (m redisTests) Run() int {
	code := m.M.Run()
	// A client that nobody has closed dials for ever, and is a leak.
	stacks := make([]byte, 1<<20)
	for end := time.Now().Add(3 * time.Second); time.Now().Before(end); time.Sleep(redisLook) {
		if !bytes.Contains(stacks[:runtime.Stack(stacks, true)], []byte("(*ConnPool).tryDial")) {
			break
		}
	}
	return code
}
