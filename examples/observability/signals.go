package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	otelprom "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/observe"
	"github.com/idem-go/idem/observe/otelobs"
	"github.com/idem-go/idem/observe/slogobs"
)

// signals are the metrics, traces and logs of the application.
type signals struct {
	registry *prometheus.Registry
	metrics  *metric.MeterProvider
	traces   *trace.TracerProvider
	spans    *tracetest.InMemoryExporter // an application would have OTLP here
	observer *otelobs.Observer
	logs     logs
	// both is what the halves are given as their Observer.
	both idem.Observer
}

func newSignals() (*signals, error) {
	s := &signals{registry: prometheus.NewRegistry(), spans: tracetest.NewInMemoryExporter()}
	exporter, err := otelprom.New(otelprom.WithRegisterer(s.registry), otelprom.WithoutScopeInfo(), otelprom.WithoutTargetInfo())
	if err != nil {
		return nil, err
	}
	s.metrics = metric.NewMeterProvider(metric.WithReader(exporter))
	s.traces = trace.NewTracerProvider(trace.WithSyncer(s.spans))
	s.observer, err = otelobs.New(otelobs.Config{
		TracerProvider: s.traces, MeterProvider: s.metrics, Propagator: propagation.TraceContext{},
	})
	if err != nil {
		return nil, err
	}
	logger := slog.New(slog.NewJSONHandler(&s.logs, &slog.HandlerOptions{Level: slog.LevelDebug}))
	s.both = observe.All(s.observer, slogobs.New(slogobs.Config{Logger: logger}))
	return s, nil
}

func (s *signals) shutdown(ctx context.Context) {
	_ = s.traces.Shutdown(ctx)
	_ = s.metrics.Shutdown(ctx)
}

// handler serves /metrics.
func (s *signals) handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(s.registry, promhttp.HandlerOpts{}))
	return mux
}

// page is /metrics as it is now.
func (s *signals) page() ([]byte, error) {
	w := httptest.NewRecorder()
	s.handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if w.Code != http.StatusOK {
		return nil, fmt.Errorf("/metrics: %d %s", w.Code, w.Body)
	}
	return w.Body.Bytes(), nil
}

// logs keeps log lines. An application would write them to standard error.
type logs struct {
	mu    sync.Mutex
	lines []string
}

func (l *logs) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, string(bytes.TrimSpace(line)))
	return len(line), nil
}

// worst returns the digest of the key with the most attempts in one call, and
// all lines about it.
func (s *signals) worst() (digest string, lines []string) {
	s.logs.mu.Lock()
	defer s.logs.mu.Unlock()
	most := 0
	for _, line := range s.logs.lines {
		var entry struct {
			Idem struct {
				Key      string
				Attempts int
			}
		}
		if json.Unmarshal([]byte(line), &entry) == nil && entry.Idem.Attempts > most {
			most, digest = entry.Idem.Attempts, entry.Idem.Key
		}
	}
	for _, line := range s.logs.lines {
		if strings.Contains(line, `"key":"`+digest+`"`) {
			lines = append(lines, line)
		}
	}
	return digest, lines
}

// trace is the first trace that has the key's digest, as a tree.
func (s *signals) trace(digest string) string {
	spans := s.spans.GetSpans()
	slices.SortStableFunc(spans, func(a, b tracetest.SpanStub) int { return a.StartTime.Compare(b.StartTime) })
	of := func(span tracetest.SpanStub, name string) string {
		for _, kv := range span.Attributes {
			if string(kv.Key) == name {
				return kv.Value.Emit()
			}
		}
		return ""
	}
	var b strings.Builder
	var tree func(parent tracetest.SpanStub, indent string)
	tree = func(parent tracetest.SpanStub, indent string) {
		fmt.Fprintf(&b, "%s%s  %s %s %s\n", indent, parent.Name, of(parent, "idem.event"), of(parent, "idem.outcome"), of(parent, "http.response.status_code"))
		for _, span := range spans {
			if span.Parent.SpanID() == parent.SpanContext.SpanID() {
				tree(span, indent+"    ")
			}
		}
	}
	longest := -1
	for i, span := range spans {
		if !span.Parent.IsValid() && of(span, "idem.key.digest") == digest && (longest < 0 || of(span, "idem.attempts") > of(spans[longest], "idem.attempts")) {
			longest = i
		}
	}
	if longest >= 0 {
		tree(spans[longest], "")
	}
	return b.String()
}
