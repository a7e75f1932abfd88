//go:build unix

package main

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"sync"

	"github.com/idem-go/idem/keystore/memstore"
	"github.com/idem-go/idem/server"
)

// services are the three that a checkout needs, behind one server half. They are
// in the process that is not killed, and know nothing of flows.
type services struct {
	url string
	srv *server.Server
	web *http.Server

	served chan error

	mu     sync.Mutex // guards ledger
	ledger []string   // what has happened
}

func startServices() (*services, error) {
	store, err := memstore.New(memstore.Config{})
	if err != nil {
		return nil, err
	}
	// Marked: what fails before its effect is run again, what fails after it is
	// not.
	srv, err := server.New(server.Config{Store: store, Effects: server.Marked, Scope: server.SingleTenant})
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &services{url: "http://" + l.Addr().String(), srv: srv, served: make(chan error, 1)}
	mux := http.NewServeMux()
	for _, name := range []string{"reserve", "charge", "order", "release"} {
		mux.Handle("POST /"+name, srv.Handler(s.does(name)))
	}
	s.web = &http.Server{Handler: mux}
	go func() { s.served <- s.web.Serve(l) }()
	return s, nil
}

func (s *services) does(name string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var o order
		if err := json.NewDecoder(r.Body).Decode(&o); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		if name == "charge" && o.Cents > 10_000 {
			http.Error(w, "declined", http.StatusPaymentRequired)
			return
		}
		if err := server.BeginEffect(r.Context()); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.ledger = append(s.ledger, name)
	}
}

// take returns what has happened since the last call.
func (s *services) take() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	done := s.ledger
	s.ledger = nil
	return done
}

func (s *services) stop(ctx context.Context) error {
	err := errors.Join(s.web.Shutdown(ctx), s.srv.Shutdown(ctx))
	if end := <-s.served; !errors.Is(end, http.ErrServerClosed) {
		err = errors.Join(err, end)
	}
	return err
}
