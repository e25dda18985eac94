package orbitotel_test

import (
	"context"
	"errors"
	"testing"

	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	orbit "orbit.example/sdk/go"
	"orbit.example/sdk/go/orbitotel"
	"orbit.example/sdk/go/orbittest"
)

func TestACallAndTheHandlersThatFollowAreOneTrace(t *testing.T) {
	if _, err := orbittest.FindBinary(); err != nil {
		t.Skip(err)
	}
	spans := tracetest.NewSpanRecorder()
	tracers := trace.NewTracerProvider(trace.WithSpanProcessor(spans))
	reader := metric.NewManualReader()
	meters := metric.NewMeterProvider(metric.WithReader(reader))
	options := []orbitotel.Option{orbitotel.WithTracerProvider(tracers), orbitotel.WithMeterProvider(meters)}

	client := orbittest.StartServer(t).Client(t, orbitotel.Client(options...))
	ctx := context.Background()
	if _, err := client.Deploy(ctx, orbit.Source{Text: "{name: w, version: 1.0.0, tasks: {t@1: {}}, steps: [{id: s, task: t@1, timeout: 10s, retry: {max_attempts: 2, initial_interval: 10ms}}]}"}); err != nil {
		t.Fatal(err)
	}
	worker := orbit.NewWorker(client, orbitotel.Worker(options...))
	orbit.Handle(worker, "t@1", func(ctx context.Context, _ any) (any, error) {
		if orbit.Task(ctx).Attempt() == 1 {
			return nil, orbit.Retryable("AWAY", errors.New("the bank is away"))
		}
		return nil, nil
	})
	stop, err := orbitotel.Observe(worker, options...)
	if err != nil {
		t.Fatal(err)
	}
	orbittest.RunWorker(t, worker)
	handle, err := client.Start(ctx, "w", nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := handle.Result(ctx, nil); err != nil {
		t.Fatal(err)
	}

	var start, tasks []trace.ReadOnlySpan
	for _, span := range spans.Ended() {
		switch span.Name() {
		case "StartExecution":
			start = append(start, span)
		case "task t@1":
			tasks = append(tasks, span)
		}
	}
	if len(start) != 1 || len(tasks) != 2 {
		t.Fatalf("%d starts and %d tasks", len(start), len(tasks))
	}
	for _, task := range tasks {
		if task.Parent().SpanID() != start[0].SpanContext().SpanID() || task.SpanContext().TraceID() != start[0].SpanContext().TraceID() {
			t.Errorf("the span %v is not the start's", task.Parent())
		}
	}
	if tasks[0].Status().Description != "AWAY" || tasks[1].Status().Description != "" {
		t.Errorf("%v and %v", tasks[0].Status(), tasks[1].Status())
	}

	var collected metricdata.ResourceMetrics
	if err := reader.Collect(ctx, &collected); err != nil {
		t.Fatal(err)
	}
	seen := map[string]metricdata.Aggregation{}
	for _, scope := range collected.ScopeMetrics {
		for _, one := range scope.Metrics {
			seen[one.Name] = one.Data
		}
	}
	for _, name := range []string{"orbit.task.duration", "orbit.task.wait", "orbit.call.duration", "orbit.worker.slots", "orbit.worker.slots.used", "orbit.worker.connected"} {
		if seen[name] == nil {
			t.Errorf("%s is not measured; there are %v", name, seen)
		}
	}
	if durations, ok := seen["orbit.task.duration"].(metricdata.Histogram[float64]); !ok || len(durations.DataPoints) != 2 {
		t.Errorf("%+v", seen["orbit.task.duration"])
	}
	if connected, ok := seen["orbit.worker.connected"].(metricdata.Gauge[int64]); !ok || connected.DataPoints[0].Value != 1 {
		t.Errorf("%+v", seen["orbit.worker.connected"])
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}
