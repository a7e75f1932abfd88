package tabletest

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"testing"
)

// processEnv holds the orders of a process that a test has started, in JSON.
const processEnv = "IDEM_TABLETEST_PROCESS"

// orders say what a process does on which database.
type orders struct {
	Role, DSN string
	// Seed names the records.
	Seed string
}

// Process does what a test has started the process for, and ends it; in any
// other process it does nothing. A TestMain begins with it.
func Process(b Backend) {
	text, ok := os.LookupEnv(processEnv)
	if !ok {
		return
	}
	var o orders
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		panic(err)
	}
	db, err := sql.Open(b.Driver, o.DSN)
	if err != nil {
		panic(err)
	}
	db.SetMaxIdleConns(8)
	s, err := b.New(db)
	if err != nil {
		panic(err)
	}
	role := map[string]func(context.Context, Backend, Store, string) error{"race": race, "crash": crash}[o.Role]
	if err := role(context.Background(), b, s, o.Seed); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// process is a process of the test binary that follows orders.
type process struct {
	*exec.Cmd
	in  *os.File
	out *bufio.Reader
}

func start(t testing.TB, o orders) *process {
	t.Helper()
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), processEnv+"="+string(text))
	cmd.Stderr = os.Stderr
	theirs, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer theirs.Close()
	cmd.Stdin = theirs
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := &process{cmd, in, bufio.NewReader(out)}
	t.Cleanup(p.kill)
	return p
}

// kill ends the process with SIGKILL, if it has not ended, and waits for that.
func (p *process) kill() {
	_ = p.Process.Kill()
	_ = p.Wait()
	p.in.Close()
}
