package servertest

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

// MySQLEnv names the environment variable with the data source name of a MySQL
// or MariaDB server, as of go-sql-driver/mysql and without a database, for
// tests that need a server but not its end. The user must be allowed to create
// databases.
const MySQLEnv = "IDEM_TEST_MYSQL"

const (
	mariaStarts  = 5 // another process may take the free port first
	mariaReady   = 60 * time.Second
	mariaLook    = 10 * time.Millisecond
	mariaTimeout = time.Second
)

// MariaDBOptions say how a server is started. With the zero value a commit
// survives the end of the process, though not of the machine.
type MariaDBOptions struct {
	// Durable makes a commit be on the disk before it is answered, as a server
	// does by default.
	Durable bool
	// Args are further arguments of mariadbd.
	Args []string
}

// MariaDBServer is a mariadbd of our own, on a port and a socket and in a
// folder of its own. Its user is root, without a password. Its methods are for
// one goroutine.
type MariaDBServer struct {
	// Addr is the server's host and port. A Restart keeps it.
	Addr string
	// Socket is the path of its Unix socket.
	Socket string

	dir    string
	args   []string
	cmd    *exec.Cmd
	exited chan struct{}
}

// MariaDB starts a server that ends with the test.
func MariaDB(t testing.TB, opts MariaDBOptions) *MariaDBServer {
	t.Helper()
	s, err := StartMariaDB(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	return s
}

// StartMariaDB is MariaDB for a TestMain, which must call Stop.
func StartMariaDB(opts MariaDBOptions) (*MariaDBServer, error) {
	for _, tool := range []string{"mariadbd", "mariadb-install-db"} {
		if _, err := exec.LookPath(tool); err != nil {
			return nil, fmt.Errorf("these tests need a real MariaDB: install mariadb-server (Debian: apt-get install mariadb-server): %w", err)
		}
	}
	dir, err := os.MkdirTemp("", "idem-mariadb")
	if err != nil {
		return nil, err
	}
	s, err := startMariaDBIn(dir, opts)
	if err != nil {
		os.RemoveAll(dir)
		return nil, err
	}
	return s, nil
}

func startMariaDBIn(dir string, opts MariaDBOptions) (*MariaDBServer, error) {
	install := exec.Command("mariadb-install-db", append(mariaArgs(dir),
		"--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve")...)
	if out, err := install.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("servertest: mariadb-install-db: %w\n%s", err, out)
	}
	flush := "2"
	if opts.Durable {
		flush = "1"
	}
	var err error
	for range mariaStarts {
		var port int
		if port, err = freePort(); err != nil {
			break
		}
		s := &MariaDBServer{
			Addr: net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), Socket: filepath.Join(dir, "s"), dir: dir,
		}
		s.args = append(mariaArgs(dir), "--bind-address=127.0.0.1", "--port="+strconv.Itoa(port), "--socket="+s.Socket,
			"--pid-file="+filepath.Join(dir, "pid"), "--log-error="+s.logFile(), "--skip-name-resolve",
			"--innodb-buffer-pool-size=64M", "--innodb-flush-log-at-trx-commit="+flush,
			"--max-connections=400", "--performance-schema=0")
		s.args = append(s.args, opts.Args...)
		if err = s.Restart(); err == nil {
			return s, nil
		}
		s.Kill()
	}
	return nil, err
}

// mariaArgs are what both programs take.
func mariaArgs(dir string) []string {
	args := []string{"--no-defaults", "--datadir=" + filepath.Join(dir, "data"), "--innodb-log-file-size=32M"}
	if os.Geteuid() == 0 {
		args = append(args, "--user=root") // it refuses to be root unasked
	}
	return args
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// DSN returns a data source name of go-sql-driver/mysql for the database,
// which may be empty.
func (s *MariaDBServer) DSN(database string) string {
	return "root@tcp(" + s.Addr + ")/" + database
}

// Restart starts the process, which must not run, and returns when it answers.
func (s *MariaDBServer) Restart() error {
	cmd, exited := exec.Command("mariadbd", s.args...), make(chan struct{})
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("servertest: starting mariadbd: %w", err)
	}
	s.cmd, s.exited = cmd, exited
	go func() {
		_ = cmd.Wait() // killed, as a rule
		close(exited)
	}()
	return s.ready()
}

// ready waits until the server greets, which it does once it has recovered.
func (s *MariaDBServer) ready() error {
	deadline := time.NewTimer(mariaReady)
	defer deadline.Stop()
	tick := time.NewTicker(mariaLook)
	defer tick.Stop()
	for {
		err := s.greets()
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-s.exited:
			return fmt.Errorf("servertest: mariadbd has ended: %w\n%s", err, s.log())
		case <-deadline.C:
			return fmt.Errorf("servertest: mariadbd does not answer: %w\n%s", err, s.log())
		}
	}
}

// greets reads the first packet of the protocol, which the server sends.
func (s *MariaDBServer) greets() error {
	conn, err := net.DialTimeout("tcp", s.Addr, mariaTimeout)
	if err != nil {
		return err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(mariaTimeout))
	greeting := make([]byte, 5)
	if _, err := io.ReadFull(bufio.NewReader(conn), greeting); err != nil {
		return err
	}
	if greeting[4] != 10 { // the protocol's version; 255 is an error
		return errors.New("the server refuses connections")
	}
	return nil
}

func (s *MariaDBServer) logFile() string { return filepath.Join(s.dir, "mariadb.log") }

// log returns the end of what the server has said.
func (s *MariaDBServer) log() []byte {
	b, err := os.ReadFile(s.logFile())
	if err != nil {
		return []byte(err.Error())
	}
	lines := bytes.SplitAfter(b, []byte("\n"))
	return bytes.Join(lines[max(0, len(lines)-30):], nil)
}

// Kill ends the process with SIGKILL and returns when it has ended. A process
// that has ended before is as good.
func (s *MariaDBServer) Kill() {
	if s.cmd == nil {
		return
	}
	_ = s.cmd.Process.Kill()
	<-s.exited
}

// Stop ends the process and removes its folder.
func (s *MariaDBServer) Stop() {
	s.Kill()
	os.RemoveAll(s.dir)
}
