package crash

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/idem-go/idem/internal/storeurl"
	"github.com/idem-go/idem/server"
)

// roleEnv tells a process of this binary which role it has; the others with
// what.
const (
	roleEnv    = "IDEM_CRASH_ROLE"
	addrEnv    = "IDEM_CRASH_ADDR"
	storeEnv   = "IDEM_CRASH_STORE"
	ledgerEnv  = "IDEM_CRASH_LEDGER"
	controlEnv = "IDEM_CRASH_CONTROL"
	serversEnv = "IDEM_CRASH_SERVERS"
	modeEnv    = "IDEM_CRASH_MODE"
	fileEnv    = "IDEM_CRASH_FILE"
	nameEnv    = "IDEM_CRASH_NAME"
	pointEnv   = "IDEM_CRASH_POINT"
)

// Play is the main function of a process that has a role. It reports false if
// this one has none.
func Play() (played bool, err error) {
	ctx := context.Background()
	switch os.Getenv(roleEnv) {
	case "ledger":
		err = serveLedger(os.Getenv(addrEnv), os.Getenv(fileEnv))
	case "server":
		err = serveOrders(ctx, os.Getenv(addrEnv), os.Getenv(storeEnv), os.Getenv(ledgerEnv), os.Getenv(nameEnv), os.Getenv(modeEnv), newPausing())
	case "client":
		err = runClient(ctx, os.Getenv(storeEnv), os.Getenv(controlEnv), strings.Split(os.Getenv(serversEnv), ","))
	default:
		return false, nil
	}
	return true, err
}

var modes = map[string]server.Effects{
	"opaque": server.Opaque, "marked": server.Marked, "idempotent": server.Idempotent, "transaction": server.Transaction,
}

// openStore opens a store that is migrated, and may be down at the moment.
func openStore(ctx context.Context, url string) (*storeurl.Opened, error) {
	store, err := storeurl.Open(ctx, url)
	if err == nil && store.Listen != nil {
		go func() { _ = store.Listen(ctx) }() // until the process ends
	}
	return store, err
}

// process is this binary in one of its roles.
type process struct {
	role string
	env  []string

	cmd    *exec.Cmd
	output *output
	exited chan struct{}
}

func newProcess(role string, env ...string) *process {
	return &process{role: role, env: append(os.Environ(), append(env, roleEnv+"="+role)...), output: &output{}}
}

// start starts it, also again.
func (p *process) start() error {
	cmd, exited := exec.Command(os.Args[0]), make(chan struct{})
	cmd.Env, cmd.Stdout, cmd.Stderr = p.env, p.output, p.output
	if err := cmd.Start(); err != nil {
		return err
	}
	p.cmd, p.exited = cmd, exited
	go func() {
		_ = cmd.Wait()
		close(exited)
	}()
	return nil
}

// kill kills it, and waits for its end.
func (p *process) kill() {
	if p.cmd == nil {
		return
	}
	_ = p.cmd.Process.Kill()
	<-p.exited
}

// listening waits until the process listens at addr.
func (p *process) listening(ctx context.Context, addr string) error {
	for {
		var d net.Dialer
		conn, err := d.DialContext(ctx, "tcp", addr)
		if err == nil {
			return conn.Close()
		}
		select {
		case <-p.exited:
			return fmt.Errorf("the %s has ended: %s", p.role, p.output)
		default:
		}
		if err := pause(ctx, 5*time.Millisecond); err != nil {
			return fmt.Errorf("nobody listens at %s: %w", addr, err)
		}
	}
}

// freeAddr is a local address that nobody listens at.
func freeAddr() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

// pause waits for d.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return errors.Join(ctx.Err(), context.Cause(ctx))
	}
}

// output keeps the last of what a process prints.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.b.Len() > 64<<10 {
		o.b.Reset()
	}
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}
