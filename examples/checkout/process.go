package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
)

// roleEnv tells a process of this binary what to do, as a task in JSON.
const roleEnv = "CHECKOUT_ROLE"

// task is what another process of this binary does.
type task struct {
	Role, Dir, URL, Kill string
	Order                Order
	Broken               bool
}

// role is the main function of a process that has a task; false if this one
// has none.
func role() (status int, ok bool) {
	text := os.Getenv(roleEnv)
	if text == "" {
		return 0, false
	}
	var t task
	err := json.Unmarshal([]byte(text), &t)
	if err == nil && t.Role == "services" {
		err = runServices(t)
	} else if err == nil {
		err = runFlow(context.Background(), t.Dir, t.URL, t.Order, t.Kill, t.Broken)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "checkout:", t.Role+":", err)
		return 1, true
	}
	return 0, true
}

// runServices serves the listener that this process was given until its input
// ends, so that it does not outlive the one that started it.
func runServices(t task) error {
	svc, err := openServices(context.Background(), t.Dir, func(step string) {
		if step == t.Kill {
			killSelf()
		}
	})
	if err != nil {
		return err
	}
	l, err := net.FileListener(os.NewFile(3, "listener"))
	if err != nil {
		return errors.Join(err, svc.close())
	}
	web := &http.Server{Handler: svc}
	served := make(chan error, 1)
	go func() { served <- web.Serve(l) }()
	_, err = io.Copy(io.Discard, os.Stdin)
	return errors.Join(err, web.Shutdown(context.Background()), svc.close())
}

// killSelf is SIGKILL: no deferred function runs, nothing is flushed.
func killSelf() {
	if p, err := os.FindProcess(os.Getpid()); err == nil {
		_ = p.Kill()
	}
	select {}
}

// process is another process of this binary. Methods but kill and stop are for
// one goroutine.
type process struct {
	cmd    *exec.Cmd
	input  io.Closer
	listen net.Listener
	err    error
	// started is closed once cmd may be killed.
	started chan struct{}
}

func (s *stage) process(ctx context.Context, role, kill string) *process {
	text, err := json.Marshal(task{role, s.dir, s.url, kill, s.order, s.broken})
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(os.Environ(), roleEnv+"="+string(text))
	cmd.Stderr = os.Stderr
	p := &process{cmd: cmd, err: err, started: make(chan struct{})}
	if role == "services" {
		p.listen = s.listener
	}
	return p
}

func (p *process) start() (err error) {
	if p.err != nil {
		return p.err
	}
	if p.input, err = p.cmd.StdinPipe(); err != nil {
		return err
	}
	if p.listen != nil {
		f, err := p.listen.(*net.TCPListener).File()
		if err != nil {
			return err
		}
		defer f.Close()
		p.cmd.ExtraFiles = []*os.File{f}
	}
	if err := p.cmd.Start(); err != nil {
		return err
	}
	close(p.started)
	return nil
}

// kill kills it; another goroutine has started it.
func (p *process) kill() {
	<-p.started
	_ = p.cmd.Process.Kill()
}

// stop ends its input, and so the services.
func (p *process) stop() {
	if p.input != nil {
		_ = p.input.Close()
	}
}

// wait waits for its end.
func (p *process) wait() error { return p.cmd.Wait() }

// killed tells, after its end, that a signal ended it.
func (p *process) killed() bool {
	return p.cmd.ProcessState != nil && p.cmd.ProcessState.ExitCode() == -1
}
