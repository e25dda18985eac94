// Package orbitotel adds OpenTelemetry to the Go SDK of Orbit: spans and metrics of handlers, and spans of calls that carry
// their trace into the executions that they start.
//
//	client, err := orbit.NewClient(orbitotel.Client())
//	worker := orbit.NewWorker(client, orbitotel.Worker())
//	stop, err := orbitotel.Observe(worker)
//
// Each span is as short as what it stands for: a call, or one run of a handler. The runs of an execution's handlers are in
// the trace of the call that started it.
//
// # Metrics
//
//   - orbit.task.duration, seconds: how long handlers ran, by orbit.task.contract and orbit.outcome (the code of a failed
//     attempt, "stopped", or "ok").
//   - orbit.task.wait, seconds: how long tasks waited for a worker, by orbit.task.contract and orbit.queue. It compares the
//     server's clock with this machine's.
//   - orbit.call.duration, seconds: how long calls took, by rpc.method and rpc.response.status_code.
//   - orbit.worker.slots and orbit.worker.slots.used: how many tasks the worker may hold, and holds.
//   - orbit.worker.connected: 1 while the worker can get work, else 0.
package orbitotel

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	orbit "orbit.example/sdk/go"
)

// scope is the name of the tracer and of the meter.
const scope = "orbit.example/sdk/go/orbitotel"

// workers is the service whose calls get no spans: they are many, and say nothing that their tasks do not.
const workers = "/orbit.worker.v1.WorkerService/"

// durationBounds are the histogram's buckets in seconds: handlers take from microseconds to hours.
var durationBounds = []float64{0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 1800, 3600}

// The attributes of spans and metrics.
const (
	keyExecution = attribute.Key("orbit.execution.id")
	keyRun       = attribute.Key("orbit.execution.run")
	keyWorkflow  = attribute.Key("orbit.workflow")
	keyUnit      = attribute.Key("orbit.unit")
	keyContract  = attribute.Key("orbit.task.contract")
	keyAttempt   = attribute.Key("orbit.task.attempt")
	keyDelivery  = attribute.Key("orbit.task.delivery")
	keyQueue     = attribute.Key("orbit.queue")
	keyOutcome   = attribute.Key("orbit.outcome")
	keyMethod    = attribute.Key("rpc.method")
	keyStatus    = attribute.Key("rpc.response.status_code")
)

// config is what options say.
type config struct {
	tracers trace.TracerProvider
	meters  metric.MeterProvider
}

// An Option chooses where spans and metrics go.
type Option func(*config)

// WithTracerProvider chooses where spans go. Default: the global provider.
func WithTracerProvider(provider trace.TracerProvider) Option {
	return func(c *config) { c.tracers = provider }
}

// WithMeterProvider chooses where metrics go. Default: the global provider.
func WithMeterProvider(provider metric.MeterProvider) Option {
	return func(c *config) { c.meters = provider }
}

func configured(options []Option) (trace.Tracer, metric.Meter) {
	c := config{tracers: otel.GetTracerProvider(), meters: otel.GetMeterProvider()}
	for _, option := range options {
		option(&c)
	}
	return c.tracers.Tracer(scope, trace.WithInstrumentationVersion(orbit.Version)),
		c.meters.Meter(scope, metric.WithInstrumentationVersion(orbit.Version))
}

// histogram makes a histogram of seconds. A meter that refuses one gives one that does nothing, and reports it itself.
func histogram(meter metric.Meter, name, description string) metric.Float64Histogram {
	made, err := meter.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(description),
		metric.WithExplicitBucketBoundaries(durationBounds...))
	if err != nil {
		otel.Handle(err)
	}
	return made
}

// Worker gives each run of a handler a span and measures it.
func Worker(options ...Option) orbit.WorkerOption {
	return orbit.WithInterceptors(Interceptor(options...))
}

// Interceptor is what [Worker] adds; use it to choose its place among other interceptors.
func Interceptor(options ...Option) orbit.Interceptor {
	tracer, meter := configured(options)
	durations := histogram(meter, "orbit.task.duration", "How long handlers ran.")
	waits := histogram(meter, "orbit.task.wait", "How long tasks waited for a worker.")
	return func(next orbit.TaskHandler) orbit.TaskHandler {
		return func(ctx context.Context, input json.RawMessage) (json.RawMessage, error) {
			task := orbit.Task(ctx)
			began := time.Now()
			contract := keyContract.String(task.Contract())
			waits.Record(ctx, max(0, began.Sub(task.ScheduleTime()).Seconds()),
				metric.WithAttributes(contract, keyQueue.String(task.Queue())))

			carrier := propagation.MapCarrier{"traceparent": task.TraceParent()}
			ctx, span := tracer.Start(propagation.TraceContext{}.Extract(ctx, carrier), "task "+task.Contract(),
				trace.WithSpanKind(trace.SpanKindConsumer), trace.WithAttributes(
					contract, keyExecution.String(task.ExecutionID()), keyRun.Int(task.Run()), keyWorkflow.String(task.Workflow()),
					keyUnit.String(task.Unit()), keyQueue.String(task.Queue()), keyAttempt.Int(task.Attempt()), keyDelivery.Int(task.Delivery())))
			defer span.End()
			output, err := next(ctx, input)
			outcome := outcomeOf(ctx, err)
			span.SetAttributes(keyOutcome.String(outcome))
			if err != nil {
				span.RecordError(err)
				span.SetStatus(codes.Error, outcome)
			}
			durations.Record(ctx, time.Since(began).Seconds(), metric.WithAttributes(contract, keyOutcome.String(outcome)))
			return output, err
		}
	}
}

// outcomeOf names the end of a handler. Codes of handlers are few, so they may be attributes of metrics.
func outcomeOf(ctx context.Context, err error) string {
	var permanent *orbit.PermanentError
	var retryable *orbit.RetryableError
	code := ""
	switch {
	case err == nil:
		return "ok"
	case errors.As(err, &permanent):
		code = permanent.Code
	case errors.As(err, &retryable):
		code = retryable.Code
	case errors.Is(context.Cause(ctx), orbit.ErrTaskStopped), errors.Is(context.Cause(ctx), orbit.ErrWorkerStopped):
		return "stopped"
	case errors.Is(context.Cause(ctx), orbit.ErrTaskTimeout):
		return orbit.CodeTimeout
	}
	if code == "" {
		return orbit.CodeFailed
	}
	return code
}

// Client gives each call of a client a span, measures it, and hands its trace on: the handlers of an execution are in
// the trace of the call that started it.
func Client(options ...Option) orbit.ClientOption {
	tracer, meter := configured(options)
	durations := histogram(meter, "orbit.call.duration", "How long calls took.")
	unary := func(ctx context.Context, method string, request, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
		if strings.HasPrefix(method, workers) {
			return invoke(ctx, method, request, reply, conn, options...)
		}
		name := method[strings.LastIndexByte(method, '/')+1:]
		began := time.Now()
		ctx, span := tracer.Start(ctx, name, trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(keyMethod.String(strings.TrimPrefix(method, "/"))))
		defer span.End()
		err := invoke(inject(ctx), method, request, reply, conn, options...)
		code := status.Code(err).String()
		span.SetAttributes(keyStatus.String(code))
		if err != nil {
			span.SetStatus(codes.Error, status.Convert(err).Message())
		}
		durations.Record(ctx, time.Since(began).Seconds(), metric.WithAttributes(keyMethod.String(name), keyStatus.String(code)))
		return err
	}
	return orbit.WithDialOptions(grpc.WithChainUnaryInterceptor(unary))
}

// inject puts the present trace into the call.
func inject(ctx context.Context) context.Context {
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	if len(carrier) == 0 {
		return ctx
	}
	sent, _ := metadata.FromOutgoingContext(ctx)
	sent = sent.Copy()
	for key, value := range carrier {
		sent.Set(key, value)
	}
	return metadata.NewOutgoingContext(ctx, sent)
}

// Observe measures how a worker is doing, until what it returns is called.
func Observe(worker *orbit.Worker, options ...Option) (stop func() error, err error) {
	_, meter := configured(options)
	slots, err := meter.Int64ObservableGauge("orbit.worker.slots", metric.WithDescription("How many tasks the worker may hold."))
	if err != nil {
		return nil, fmt.Errorf("orbitotel: %w", err)
	}
	used, err := meter.Int64ObservableGauge("orbit.worker.slots.used", metric.WithDescription("How many tasks the worker holds."))
	if err != nil {
		return nil, fmt.Errorf("orbitotel: %w", err)
	}
	connected, err := meter.Int64ObservableGauge("orbit.worker.connected", metric.WithDescription("1 while the worker can get work."))
	if err != nil {
		return nil, fmt.Errorf("orbitotel: %w", err)
	}
	registration, err := meter.RegisterCallback(func(_ context.Context, observer metric.Observer) error {
		status := worker.Status()
		observer.ObserveInt64(slots, int64(status.Slots))
		observer.ObserveInt64(used, int64(status.Held))
		healthy := int64(0)
		if status.IsHealthy {
			healthy = 1
		}
		observer.ObserveInt64(connected, healthy)
		return nil
	}, slots, used, connected)
	if err != nil {
		return nil, fmt.Errorf("orbitotel: %w", err)
	}
	return registration.Unregister, nil
}
