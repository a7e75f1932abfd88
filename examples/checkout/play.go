package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/storeurl"
)

// play kills at one point, starts again, and tells what came of it.
func play(ctx context.Context, p point, broken bool) (line string, ok bool) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	s := &stage{order: p.order, broken: broken}
	had, now, err := s.run(ctx, p.name)
	if err != nil {
		return fmt.Sprintf("%-16s  error: %v", p.name, err), false
	}
	line = fmt.Sprintf("%-16s  then: %-30s  at the end: %s", p.name, show(had), show(now))
	return line, show(now) == show(countOf(p.want))
}

func (s *stage) run(ctx context.Context, name string) (had, now map[string]int, err error) {
	if s.dir, err = os.MkdirTemp("", "checkout"); err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(s.dir)) }()
	if s.listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		return nil, nil, err
	}
	defer s.listener.Close()
	s.url = "http://" + s.listener.Addr().String()
	if step, ok := strings.CutPrefix(name, "services:"); ok {
		had, err = s.killServices(ctx, step)
	} else {
		had, err = s.killFlow(ctx, name)
	}
	if err != nil {
		return nil, nil, err
	}
	now, err = readLedgers(ctx, s.dir)
	return had, now, err
}

// stage is where a point is played.
type stage struct {
	order    Order
	broken   bool
	dir      string
	url      string
	listener net.Listener
}

// killFlow runs the flow in a process that is killed, and then in another one.
// The services live on.
func (s *stage) killFlow(ctx context.Context, name string) (had map[string]int, err error) {
	first := s.process(ctx, "flow", name)
	svc, err := openServices(ctx, s.dir, func(string) {})
	if err != nil {
		return nil, err
	}
	var once sync.Once
	web := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if stepOf(r.URL.Path)+":effect" == name {
			w = &lateWriter{w, func() { once.Do(first.kill) }}
		}
		svc.ServeHTTP(w, r)
	})}
	served := make(chan error, 1)
	go func() { served <- web.Serve(s.listener) }()
	defer func() {
		err = errors.Join(err, web.Shutdown(context.WithoutCancel(ctx)), svc.close())
		if end := <-served; !errors.Is(end, http.ErrServerClosed) {
			err = errors.Join(err, end)
		}
	}()
	if err := first.start(); err != nil {
		return nil, err
	}
	if err := first.wait(); !first.killed() {
		return nil, fmt.Errorf("the flow was not killed: %w", err)
	}
	if had, err = readLedgers(ctx, s.dir); err != nil {
		return nil, err
	}
	second := s.process(ctx, "flow", "")
	if err := second.start(); err != nil {
		return nil, err
	}
	return had, second.wait()
}

// lateWriter calls before before the answer is written: the effect and its
// record are settled by then.
type lateWriter struct {
	http.ResponseWriter
	before func()
}

func (w *lateWriter) WriteHeader(status int) {
	w.before()
	w.ResponseWriter.WriteHeader(status)
}

// killServices runs the flow here, and the services in a process that is
// killed and started again. Meanwhile connections wait in the listener.
func (s *stage) killServices(ctx context.Context, step string) (had map[string]int, err error) {
	first, second := s.process(ctx, "services", step), s.process(ctx, "services", "")
	if err := first.start(); err != nil {
		return nil, err
	}
	restarted := make(chan error, 1)
	go func() {
		err := first.wait()
		if !first.killed() {
			restarted <- fmt.Errorf("the services were not killed: %w", err)
			return
		}
		had, err = readLedgers(ctx, s.dir)
		restarted <- errors.Join(err, second.start())
	}()
	err = runFlow(ctx, s.dir, s.url, s.order, "", s.broken)
	first.stop()
	err = errors.Join(err, <-restarted)
	second.stop()
	return had, errors.Join(err, second.wait())
}

// runFlow is what the flow's process does.
func runFlow(ctx context.Context, dir, url string, o Order, kill string, broken bool) (err error) {
	store, err := storeurl.Open(ctx, "sqlite:"+filepath.Join(dir, "flow.db"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	if err := store.Migrate(ctx); err != nil {
		return err
	}
	tcp := &http.Transport{}
	defer tcp.CloseIdleConnections()
	var base http.RoundTripper = tcp
	if broken {
		base = roundTripper(func(req *http.Request) (*http.Response, error) {
			req.Header.Set("Idempotency-Key", string(idem.NewKey()))
			return tcp.RoundTrip(req)
		})
	}
	die := func(point string) {
		if point == kill {
			killSelf()
		}
	}
	// Around the client half: by "after" the step's own record is settled.
	f, err := newFlow(store, url, func(inner http.RoundTripper) http.RoundTripper {
		return roundTripper(func(req *http.Request) (*http.Response, error) {
			step := stepOf(req.URL.Path)
			die(step + ":before")
			resp, err := inner.RoundTrip(req)
			die(step + ":after")
			return resp, err
		})
	}, base)
	if err != nil {
		return err
	}
	_, err = f.checkout(ctx, o)
	die("flow:after")
	return errors.Join(err, f.client.Shutdown(ctx))
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// show spells counts in the order of the steps.
func show(counts map[string]int) string {
	var parts []string
	for _, step := range []string{"reserve", "charge", "order", "refund", "release"} {
		if n := counts[step]; n > 0 {
			parts = append(parts, fmt.Sprint(n, " ", step))
		}
	}
	if parts == nil {
		return "nothing"
	}
	return strings.Join(parts, ", ")
}

func countOf(steps string) map[string]int {
	counts := map[string]int{}
	for _, step := range strings.Fields(steps) {
		counts[step]++
	}
	return counts
}
