package idem_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/idem-go/idem"
)

// wireDialer fails every dial with one error.
func wireDialer(err error) func(*testing.T) (*http.Transport, string) {
	return func(t *testing.T) (*http.Transport, string) {
		base := wireBase(t)
		base.DialContext = func(context.Context, string, string) (net.Conn, error) { return nil, err }
		return base, "http://charges.example/charges"
	}
}

// wireDNS resolves names by a server that answers every query with the code.
func wireDNS(rcode byte) func(*testing.T) (*http.Transport, string) {
	return func(t *testing.T) (*http.Transport, string) {
		base := wireBase(t)
		dialer := &net.Dialer{Resolver: &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
			client, server := net.Pipe()
			go func() {
				defer server.Close()
				var size [2]byte
				if _, err := io.ReadFull(server, size[:]); err != nil {
					return
				}
				msg := make([]byte, int(size[0])<<8|int(size[1]))
				if _, err := io.ReadFull(server, msg); err != nil {
					return
				}
				// The query becomes its own answer; the additional section is cut off.
				msg[2], msg[3], msg[11] = msg[2]|0x80, 0x80|rcode, 0
				end := 12
				for msg[end] != 0 {
					end += int(msg[end]) + 1
				}
				msg = msg[:end+5]
				_, _ = server.Write(append([]byte{byte(len(msg) >> 8), byte(len(msg))}, msg...))
			}()
			return client, nil
		}}}
		base.DialContext = dialer.DialContext
		return base, "http://charges.example./charges"
	}
}

// wireTLS connects to a listener that does not complete a TLS handshake.
func wireTLS(timeout time.Duration, serve func(net.Conn)) func(*testing.T) (*http.Transport, string) {
	return func(t *testing.T) (*http.Transport, string) {
		base := wireBase(t)
		base.TLSHandshakeTimeout = timeout
		return base, "https://" + wireListen(t, serve) + "/charges"
	}
}

// wireHello reads what a TLS client says first.
func wireHello(c net.Conn) { _, _ = c.Read(make([]byte, 4096)) }

// wireTLSServer is a complete TLS server, which the transport may not like.
func wireTLSServer(server *tls.Config, client func(*x509.Certificate) *tls.Config) func(*testing.T) (*http.Transport, string) {
	return func(t *testing.T) (*http.Transport, string) {
		srv := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the request arrived") }))
		srv.TLS = server
		srv.Config.ErrorLog = wireQuiet
		srv.StartTLS()
		t.Cleanup(srv.Close)
		base := wireBase(t)
		base.TLSClientConfig = client(srv.Certificate())
		return base, srv.URL + "/charges"
	}
}

func wireTrusting(cert *x509.Certificate) *tls.Config {
	pool := x509.NewCertPool()
	pool.AddCert(cert)
	return &tls.Config{RootCAs: pool}
}

// wireProxy goes through a proxy that answers CONNECT with the text.
func wireProxy(answer string) func(*testing.T) (*http.Transport, string) {
	return func(t *testing.T) (*http.Transport, string) {
		proxy := wireServe(t, wireRaw(answer))
		base := wireBase(t)
		u, err := url.Parse(proxy.URL)
		if err != nil {
			t.Fatal(err)
		}
		base.Proxy = http.ProxyURL(u)
		return base, "https://charges.example/charges"
	}
}

func wireOpError(err error) error {
	return &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", err)}
}

// No connection, no request: what can't have been sent is told apart from what
// may have been, and repeated without a key too.
func TestWireNeverSent(t *testing.T) {
	for _, row := range []struct {
		name    string
		base    func(*testing.T) (*http.Transport, string)
		want    idem.Outcome
		retried bool
		slow    bool             // ends by the attempt timeout
		is      func(error) bool // what the caller finds in the error
	}{
		{name: "connection refused", want: idem.OutcomeNotExecuted, retried: true,
			base: func(t *testing.T) (*http.Transport, string) {
				l, err := net.Listen("tcp", "127.0.0.1:0")
				if err != nil {
					t.Fatal(err)
				}
				l.Close()
				return wireBase(t), "http://" + l.Addr().String() + "/charges"
			}, is: func(err error) bool { return errors.Is(err, syscall.ECONNREFUSED) }},
		{name: "network unreachable", want: idem.OutcomeNotExecuted, retried: true, base: wireDialer(wireOpError(syscall.ENETUNREACH)),
			is: func(err error) bool { return errors.Is(err, syscall.ENETUNREACH) }},
		{name: "host unreachable", want: idem.OutcomeNotExecuted, retried: true, base: wireDialer(wireOpError(syscall.EHOSTUNREACH))},
		{name: "dial error of its own kind", want: idem.OutcomeNotExecuted, retried: true, base: wireDialer(errors.New("no route today"))},
		{name: "dial timeout", want: idem.OutcomeNotExecuted, retried: true,
			base: func(t *testing.T) (*http.Transport, string) {
				base := wireBase(t)
				base.DialContext = (&net.Dialer{Timeout: time.Nanosecond}).DialContext
				return base, "http://127.0.0.1:9/charges"
			}, is: wireTimeout},
		{name: "dial cut off by the attempt timeout", want: idem.OutcomeNotExecuted, retried: true, slow: true,
			base: func(t *testing.T) (*http.Transport, string) {
				base := wireBase(t)
				base.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
					select {
					case <-ctx.Done():
					case <-t.Context().Done():
					}
					return nil, context.Cause(ctx)
				}
				return base, "http://charges.example/charges"
			}, is: wireTimeout},
		{name: "DNS timeout", want: idem.OutcomeNotExecuted, retried: true,
			base: wireDialer(wireLookup(&net.DNSError{Err: "i/o timeout", Name: "charges.example", IsTimeout: true, IsTemporary: true}))},
		{name: "DNS server failure", want: idem.OutcomeNotExecuted, retried: true, base: wireDNS(2)},
		{name: "NXDOMAIN", want: idem.OutcomeRejected, base: wireDNS(3), is: func(err error) bool {
			var dns *net.DNSError
			return errors.As(err, &dns) && dns.IsNotFound
		}},
		{name: "wait for a connection of the pool", want: idem.OutcomeNotExecuted, retried: true, slow: true,
			base: func(t *testing.T) (*http.Transport, string) {
				base := wireBase(t)
				base.MaxConnsPerHost = 1
				arrived := make(chan struct{})
				busy := wireServe(t, func(c net.Conn) bool { close(arrived); return wireStall(c) })
				ctx, cancel := context.WithCancel(context.Background())
				done := make(chan struct{})
				go func() {
					defer close(done)
					req, _ := http.NewRequestWithContext(ctx, http.MethodGet, busy.URL+"/busy", nil)
					if resp, err := base.RoundTrip(req); err == nil {
						resp.Body.Close()
					}
				}()
				<-arrived
				t.Cleanup(func() { cancel(); <-done })
				return base, busy.URL + "/charges"
			}, is: wireTimeout},
		{name: "TLS handshake timeout", want: idem.OutcomeNotExecuted, retried: true, base: wireTLS(wireMoment, func(c net.Conn) { wireStall(c) }), is: wireTimeout},
		{name: "TLS handshake EOF", want: idem.OutcomeNotExecuted, retried: true, base: wireTLS(0, wireHello)},
		{name: "TLS handshake reset", want: idem.OutcomeNotExecuted, retried: true, base: wireTLS(0, func(c net.Conn) { wireHello(c); wireReset(c) })},
		{name: "certificate of an unknown authority", want: idem.OutcomeRejected,
			base: wireTLSServer(nil, func(*x509.Certificate) *tls.Config { return &tls.Config{} }),
			is: func(err error) bool {
				var unknown x509.UnknownAuthorityError
				return errors.As(err, &unknown)
			}},
		{name: "certificate of another host", want: idem.OutcomeRejected,
			base: wireTLSServer(nil, func(c *x509.Certificate) *tls.Config {
				cfg := wireTrusting(c)
				cfg.ServerName = "elsewhere.example.org"
				return cfg
			})},
		{name: "handshake alert", want: idem.OutcomeRejected,
			base: wireTLSServer(&tls.Config{MinVersion: tls.VersionTLS13}, func(c *x509.Certificate) *tls.Config {
				cfg := wireTrusting(c)
				cfg.MaxVersion = tls.VersionTLS12
				return cfg
			})},
		{name: "HTTP response to HTTPS client", want: idem.OutcomeRejected,
			base: wireTLS(0, func(c net.Conn) {
				wireHello(c)
				_, _ = io.WriteString(c, "HTTP/1.0 400 Bad Request\r\n\r\n")
			}), is: func(err error) bool {
				var record tls.RecordHeaderError
				return errors.As(err, &record)
			}},
		{name: "proxy refuses CONNECT with 502", want: idem.OutcomeNotExecuted, retried: true, base: wireProxy("HTTP/1.1 502 Bad Gateway\r\n\r\n")},
		{name: "proxy refuses CONNECT with 503", want: idem.OutcomeNotExecuted, retried: true, base: wireProxy("HTTP/1.1 503 Service Unavailable\r\n\r\n")},
		{name: "proxy wants to be paid: 407", want: idem.OutcomeNotExecuted, base: wireProxy("HTTP/1.1 407 Proxy Authentication Required\r\n\r\n")},
	} {
		for _, how := range []struct {
			name     string
			method   string
			contract idem.Contract
		}{
			{"POST with key", http.MethodPost, idem.Contract{}},
			{"POST without key", http.MethodPost, idem.Keyless},
			{"PUT without key", http.MethodPut, idem.Contract{}},
		} {
			t.Run(row.name+"/"+how.name, func(t *testing.T) {
				if row.slow {
					t.Parallel()
				}
				base, url := row.base(t)
				policy := wirePolicy
				if row.slow {
					policy.AttemptTimeout = wireMoment
				}
				w := wireClient(t, idem.Config{Policy: policy, Contract: how.contract}, base)
				res := w.do(t, wireRequestTo(t, how.method, url, wireBody))
				attempts := 1
				if row.retried {
					attempts = wireTries
				}
				if res.err == nil {
					t.Fatalf("response %d, want an error", res.resp.StatusCode)
				}
				if res.err.Outcome != row.want || res.err.Attempts != attempts || res.event.WireSends != 0 {
					t.Errorf("%v after %d attempts and %d sends, want %v, %d and 0: %v", res.err.Outcome, res.err.Attempts, res.event.WireSends, row.want, attempts, res.err)
				}
				if row.is != nil && !row.is(res.err) {
					t.Errorf("the caller can't tell from %v", res.err)
				}
				if res.err.Last == nil || res.err.Cause != nil {
					t.Errorf("cause %v, last %v; want only the network's error", res.err.Cause, res.err.Last)
				}
			})
		}
	}
}

func wireTimeout(err error) bool {
	var e *idem.Error
	return errors.As(err, &e) && e.Timeout()
}

func wireLookup(err *net.DNSError) error { return &net.OpError{Op: "dial", Net: "tcp", Err: err} }

// A RoundTripper that tells the trace nothing proves nothing.
func TestWireUntracedBase(t *testing.T) {
	for _, err := range []error{wireOpError(syscall.ECONNREFUSED), &net.DNSError{IsNotFound: true}, errors.New("signing failed")} {
		w := wireClient(t, idem.Config{}, wireFunc(func(*http.Request) (*http.Response, error) { return nil, err }))
		res := w.do(t, wirePost(t, "http://charges.example/"))
		if res.outcome() != idem.OutcomeUnknown || res.attempts() != wireTries {
			t.Errorf("%v: %v after %d attempts, want unknown and %d", err, res.outcome(), res.attempts(), wireTries)
		}
		w = wireClient(t, idem.Config{Contract: idem.Keyless}, wireFunc(func(*http.Request) (*http.Response, error) { return nil, err }))
		if res = w.do(t, wirePost(t, "http://charges.example/")); res.outcome() != idem.OutcomeUnknown || res.attempts() != 1 {
			t.Errorf("%v, keyless: %v after %d attempts, want unknown and 1", err, res.outcome(), res.attempts())
		}
	}
}
