package otelobs_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.uber.org/goleak"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/keystore"
	"github.com/idem-go/idem/keystore/memstore"
	"github.com/idem-go/idem/observe/otelobs"
	"github.com/idem-go/idem/server"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// signals is an Observer and what it has made.
type signals struct {
	*otelobs.Observer
	recorder *tracetest.SpanRecorder
	tracers  *trace.TracerProvider
	reader   *metric.ManualReader
}

func newSignals(t testing.TB) signals {
	t.Helper()
	s := signals{recorder: tracetest.NewSpanRecorder(), reader: metric.NewManualReader()}
	s.tracers = trace.NewTracerProvider(trace.WithSpanProcessor(s.recorder))
	var err error
	s.Observer, err = otelobs.New(otelobs.Config{
		TracerProvider: s.tracers, MeterProvider: metric.NewMeterProvider(metric.WithReader(s.reader)), Propagator: propagation.TraceContext{},
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// spans returns the ended spans of that name.
func (s signals) spans(name string) []trace.ReadOnlySpan {
	var found []trace.ReadOnlySpan
	for _, span := range s.recorder.Ended() {
		if span.Name() == name {
			found = append(found, span)
		}
	}
	return found
}

// value of an attribute, as text.
func value(span trace.ReadOnlySpan, key string) string {
	for _, kv := range span.Attributes() {
		if string(kv.Key) == key {
			return kv.Value.Emit()
		}
	}
	return ""
}

// metric returns the sums, gauges and histogram counts of a metric, by the
// values of its attributes.
func (s signals) metric(t testing.TB, name string) map[string]float64 {
	t.Helper()
	var rm metricdata.ResourceMetrics
	if err := s.reader.Collect(context.Background(), &rm); err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, scope := range rm.ScopeMetrics {
		for _, m := range scope.Metrics {
			if m.Name != name {
				continue
			}
			switch data := m.Data.(type) {
			case metricdata.Sum[int64]:
				for _, p := range data.DataPoints {
					got[values(p.Attributes)] = float64(p.Value)
				}
			case metricdata.Gauge[int64]:
				for _, p := range data.DataPoints {
					got[values(p.Attributes)] = float64(p.Value)
				}
			case metricdata.Gauge[float64]:
				for _, p := range data.DataPoints {
					got[values(p.Attributes)] = p.Value
				}
			case metricdata.Histogram[float64]:
				for _, p := range data.DataPoints {
					got[values(p.Attributes)] = float64(p.Count)
				}
			}
		}
	}
	return got
}

func values(set attribute.Set) string {
	var all []string
	for _, kv := range set.ToSlice() { // sorted by key
		all = append(all, kv.Value.Emit())
	}
	return strings.Join(all, " ")
}

func newStore(t testing.TB) keystore.Store {
	t.Helper()
	store, err := memstore.New(memstore.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return store
}

// shop is a server half behind a real listener, and a client half of it.
type shop struct {
	client *idem.Client
	url    string
	base   *http.Transport
}

func newShop(t testing.TB, s signals, clientStore keystore.Store, h http.HandlerFunc) shop {
	t.Helper()
	srv, err := server.New(server.Config{Store: newStore(t), Effects: server.Marked, Scope: server.SingleTenant, Observer: s})
	if err != nil {
		t.Fatal(err)
	}
	ts := httptest.NewServer(srv.Handler(h))
	t.Cleanup(ts.Close)
	client, err := idem.New(idem.Config{Store: clientStore, Scope: "acme/charge", Observer: s})
	if err != nil {
		t.Fatal(err)
	}
	base := &http.Transport{}
	t.Cleanup(base.CloseIdleConnections)
	return shop{client, ts.URL, base}
}

// post sends one order.
func (s shop) post(t testing.TB, ctx context.Context, id string) {
	t.Helper()
	ctx = idem.WithIntent(ctx, idem.Intent{ID: id})
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.Replace(s.url, "http://", "http://user:pass@", 1)+"/charges?token=t", strings.NewReader(`{"amount":1}`))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := s.client.Transport(s.base).RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
}

// One trace leads from the caller over the attempts into the handler.
func TestTrace(t *testing.T) {
	s := newSignals(t)
	runs := 0
	var inHandler string
	shop := newShop(t, s, nil, func(w http.ResponseWriter, r *http.Request) {
		if runs++; runs == 1 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		_, span := s.tracers.Tracer("app").Start(r.Context(), "app")
		defer span.End()
		inHandler = span.SpanContext().TraceID().String()
		w.WriteHeader(http.StatusCreated)
	})
	ctx, app := s.tracers.Tracer("app").Start(t.Context(), "checkout")
	shop.post(t, ctx, "o1")
	app.End()

	client, attempts, handled := s.spans("idem client"), s.spans("POST"), s.spans("idem server")
	if len(client) != 1 || len(attempts) != 2 || len(handled) != 2 {
		t.Fatalf("%d operations, %d attempts, %d at the server; want 1, 2, 2", len(client), len(attempts), len(handled))
	}
	if client[0].Parent().SpanID() != app.SpanContext().SpanID() {
		t.Error("the operation is not within the caller's span")
	}
	for i, a := range attempts {
		if a.Parent().SpanID() != client[0].SpanContext().SpanID() || handled[i].Parent().SpanID() != a.SpanContext().SpanID() {
			t.Errorf("attempt %d: not between the operation and the server", i+1)
		}
	}
	if inHandler != app.SpanContext().TraceID().String() {
		t.Error("the handler is in another trace")
	}
	for i, want := range []map[string]string{
		{"http.response.status_code": "503", "error.type": "503", "idem.outcome": "unknown", "http.request.resend_count": ""},
		{"http.response.status_code": "201", "error.type": "", "idem.outcome": "executed", "http.request.resend_count": "1"},
	} {
		want["http.request.method"], want["url.full"] = "POST", shop.url+"/charges"
		want["server.address"], want["server.port"] = "127.0.0.1", shop.url[strings.LastIndex(shop.url, ":")+1:]
		for key, v := range want {
			if got := value(attempts[i], key); got != v {
				t.Errorf("attempt %d has %s %q, want %q", i+1, key, got, v)
			}
		}
	}
	for key, want := range map[string]string{
		"idem.half": "client", "idem.event": "executed", "idem.outcome": "executed", "idem.source": "executed", "idem.scope": "acme/charge",
		"idem.attempts": "2", "idem.wire_sends": "2", "idem.key.digest": value(handled[0], "idem.key.digest"),
	} {
		if got := value(client[0], key); got != want || got == "" {
			t.Errorf("the operation has %s %q, want %q", key, got, want)
		}
	}
}

// What a record answers has a link to what executed, on both halves.
func TestLinks(t *testing.T) {
	s := newSignals(t)
	shop := newShop(t, s, newStore(t), func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) })
	again := shop
	again.client, _ = idem.New(idem.Config{Scope: "acme/charge", Observer: s}) // without a store: it asks the server
	shop.post(t, t.Context(), "o1")
	shop.post(t, t.Context(), "o1")
	again.post(t, t.Context(), "o1")
	for _, name := range []string{"idem client", "idem server"} {
		spans := s.spans(name)
		executed, replayed := spans[0], spans[1]
		if links := replayed.Links(); len(links) != 1 || links[0].SpanContext.SpanID() != executed.SpanContext().SpanID() ||
			links[0].SpanContext.TraceID() != executed.SpanContext().TraceID() {
			t.Errorf("%s: the replay's links are %v, want one to %v", name, links, executed.SpanContext())
		}
		if len(executed.Links()) > 0 {
			t.Errorf("%s: what executed has links", name)
		}
	}
}

// Whatever goes wrong, nothing secret is in a span or an attribute.
func TestNoSecrets(t *testing.T) {
	s := newSignals(t)
	shop := newShop(t, s, nil, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })
	var key idem.Key
	ctx := idem.WithIntent(t.Context(), idem.Intent{Key: "secret-key"})
	req, _ := http.NewRequestWithContext(ctx, http.MethodPost, strings.Replace(shop.url, "http://", "http://user:secret@", 1)+"/?secret=1", nil)
	if resp, err := shop.client.Transport(shop.base).RoundTrip(req); err == nil {
		key = idem.ReportOf(resp).Key
		_ = resp.Body.Close()
	}
	_, _ = idem.Do(t.Context(), shop.client, idem.Intent{Key: "secret-key\n"}, func(context.Context, idem.Key) (int, error) { return 0, nil })
	if key != "secret-key" {
		t.Fatalf("sent under %q", key)
	}
	for _, span := range s.recorder.Ended() {
		all := []string{span.Name(), span.Status().Description}
		for _, kv := range span.Attributes() {
			all = append(all, kv.Value.Emit())
		}
		if slices.ContainsFunc(all, func(v string) bool { return strings.Contains(v, "secret") }) {
			t.Errorf("a secret is in %q", all)
		}
	}
}

// A span that was begun ends, and only once, also where an operation is within
// another's context.
func TestSpansEnd(t *testing.T) {
	s := newSignals(t)
	shop := newShop(t, s, nil, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) })
	_, _ = idem.Do(t.Context(), shop.client, idem.Intent{ID: "outer"}, func(ctx context.Context, _ idem.Key) (int, error) {
		_, _ = idem.Do(ctx, shop.client, idem.Intent{ID: "inner"}, func(context.Context, idem.Key) (int, error) { return 1, nil })
		_, _ = idem.Do(ctx, shop.client, idem.Intent{Key: " "}, func(context.Context, idem.Key) (int, error) { return 1, nil })
		s.Observe(ctx, idem.Event{Name: idem.EventRefused, Half: "client"}) // without a Start
		return 1, nil
	})
	if started, ended := len(s.recorder.Started()), len(s.recorder.Ended()); started != ended || len(s.spans("idem client")) != 4 {
		t.Errorf("%d spans begun, %d ended, %d operations; want all, and 4", started, ended, len(s.spans("idem client")))
	}
	var outer, inner trace.ReadOnlySpan
	for _, span := range s.spans("idem client") {
		if value(span, "idem.event") == idem.EventExecuted {
			inner, outer = outer, span
		}
	}
	if outer.Parent().IsValid() || inner.Parent().TraceID() != outer.SpanContext().TraceID() {
		t.Error("the inner operation is not within the outer one")
	}
	if active := s.metric(t, "idem.operation.active"); active["client"] != 0 {
		t.Errorf("%v operations count as active", active)
	}
}
