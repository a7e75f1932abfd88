package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemtest"
	"github.com/idem-go/idem/keystore"
)

// scene is one thing that can go wrong.
type scene struct {
	name  string
	story []string
	play  func(*stage) error
}

// stage is where a scene is played: a ledger, servers and clients, which end
// with the scene.
type stage struct {
	options
	out    io.Writer
	ledger *idemtest.Ledger
	scope  string
	stores int // that were opened
	ends   []func() error
	wrong  bool
}

// play plays a scene and tells whether it came out as it should.
func play(sc scene, opts options, out io.Writer) bool {
	s := &stage{options: opts, out: out, ledger: new(idemtest.Ledger), scope: scopeOf(opts.store)}
	for _, line := range sc.story {
		s.printf("   %s\n", line)
	}
	err := sc.play(s)
	for i := len(s.ends) - 1; i >= 0; i-- {
		err = errors.Join(err, s.ends[i]())
	}
	if err != nil {
		s.printf("   error     %v\n", err)
	}
	return err == nil && !s.wrong
}

// atEnd has end called after the scene, the latest first.
func (s *stage) atEnd(end func() error) { s.ends = append(s.ends, end) }

// serve serves h on a free port and returns its URL.
func (s *stage) serve(h http.Handler) (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	srv := &http.Server{Handler: h}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(l) }()
	s.atEnd(func() error {
		err := srv.Shutdown(context.Background())
		if end := <-served; !errors.Is(end, http.ErrServerClosed) {
			err = errors.Join(err, end)
		}
		return err
	})
	return "http://" + l.Addr().String(), nil
}

// provider makes a provider that charges into the stage's ledger.
func (s *stage) provider(cfg idemtest.ProviderConfig) (*idemtest.Provider, error) {
	if cfg.Store == nil {
		store, err := s.store()
		if err != nil {
			return nil, err
		}
		cfg.Store = store
	}
	cfg.Store = breakServerStore(s.broken, cfg.Store)
	cfg.Ledger = s.ledger
	p, err := idemtest.NewProvider(cfg)
	if err != nil {
		return nil, err
	}
	s.atEnd(func() error { return p.Shutdown(context.Background()) })
	return p, nil
}

// serveProvider is provider and serve.
func (s *stage) serveProvider(cfg idemtest.ProviderConfig) (*idemtest.Provider, string, error) {
	p, err := s.provider(cfg)
	if err != nil {
		return nil, "", err
	}
	url, err := s.serve(p)
	return p, url, err
}

// clientStore is a store for a client.
func (s *stage) clientStore() (keystore.Store, error) {
	store, err := s.store()
	if err != nil {
		return nil, err
	}
	return breakClientStore(s.broken, store), nil
}

// process is a process of the caller's: a client, and a wire on which faults
// happen.
type process struct {
	name string
	url  string
	wire *idemtest.Transport
	http *http.Client

	mu       sync.Mutex // guards attempts
	attempts []idem.Attempt
	shown    int // attempts that were printed
}

// process starts a process that pays at url. Store and attempt timeout are the
// caller's to set.
func (s *stage) process(name, url string, cfg idem.Config, script ...idemtest.Fault) (*process, error) {
	base := &http.Transport{}
	s.atEnd(func() error { base.CloseIdleConnections(); return nil })
	p := &process{name: name, url: url, wire: idemtest.NewTransport(breakWire(s.broken, base), script...)}
	cfg.Scope = s.scope
	cfg.Observer = p
	cfg.Policy.Attempts = s.options.attempts
	cfg.Policy.BaseDelay, cfg.Policy.MaxDelay = 5*time.Millisecond, 20*time.Millisecond
	client, err := idem.New(cfg)
	if err != nil {
		return nil, err
	}
	s.atEnd(func() error { return client.Shutdown(context.Background()) })
	p.http = &http.Client{Transport: client.Transport(p.wire)}
	return p, nil
}

// Observe implements idem.Observer.
func (p *process) Observe(_ context.Context, e idem.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.attempts = append(p.attempts, e.Attempts...)
}

// answer is what a caller was told.
type answer struct {
	status  int // 0 if there was no answer that settles the payment
	charge  idemtest.Charge
	outcome idem.Outcome
	source  idem.Source
	key     idem.Key
	err     error
}

// pay is what the application does: it names its intent and sends a request.
func (p *process) pay(c idemtest.Charge) answer {
	ctx := idem.WithIntent(context.Background(), idem.Intent{ID: c.Reference})
	resp, err := post(ctx, p.http, p.url, c)
	var failure *idem.Error
	if errors.As(err, &failure) {
		return answer{outcome: failure.Outcome, key: failure.Key, err: err}
	}
	if err != nil {
		return answer{err: err}
	}
	report := idem.ReportOf(resp)
	a := answer{status: resp.StatusCode, outcome: report.Outcome, source: report.Source, key: report.Key}
	a.charge, a.err = decode(resp)
	return a
}

func post(ctx context.Context, hc *http.Client, url string, c idemtest.Charge) (*http.Response, error) {
	body, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/charges", bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	return hc.Do(req)
}

func decode(resp *http.Response) (c idemtest.Charge, err error) {
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(&c); err != nil {
		return c, fmt.Errorf("the answer: %w", err)
	}
	return c, nil
}
