package otelobs_test

import (
	"context"
	"fmt"

	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/observe/otelobs"
)

// A call that needed two attempts, as spans.
func ExampleNew() {
	spans := tracetest.NewInMemoryExporter() // yours sends them away
	observer, err := otelobs.New(otelobs.Config{TracerProvider: trace.NewTracerProvider(trace.WithSyncer(spans))})
	if err != nil {
		panic(err)
	}
	client, err := idem.New(idem.Config{Scope: "acme/charge", Observer: observer})
	if err != nil {
		panic(err)
	}
	busy := true
	_, _ = idem.Do(context.Background(), client, idem.Intent{ID: "order-1"}, func(context.Context, idem.Key) (string, error) {
		if busy {
			busy = false
			return "", idem.NotExecuted(fmt.Errorf("busy"))
		}
		return "ch_1", nil
	})
	for _, span := range spans.GetSpans() {
		for _, a := range span.Attributes {
			if a.Key == "idem.outcome" {
				fmt.Println(span.Name, a.Value.Emit())
			}
		}
	}
	// Output:
	// idem attempt not-executed
	// idem attempt executed
	// idem client executed
}
