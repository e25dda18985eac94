package orbit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	workflowv1 "orbit.example/sdk/go/gen/orbit/workflow/v1"
)

// Why the context of a handler ended, from [context.Cause].
var (
	// ErrTaskStopped: the server no longer wants the task: its execution was cancelled or failed, or another delivery has
	// replaced this one.
	ErrTaskStopped = errors.New("orbit: the task is not wanted any more")
	// ErrTaskTimeout: the task's timeout passed. A success that is reported nevertheless may still count.
	ErrTaskTimeout = fmt.Errorf("orbit: the task's timeout passed: %w", context.DeadlineExceeded)
	// ErrWorkerStopped: the worker stops, and its drain time is over.
	ErrWorkerStopped = errors.New("orbit: the worker stops")
)

// progressBytesMax is the server's limit on the JSON text of a progress.
const progressBytesMax = 64 << 10

// TaskContext is what a handler knows about its task beside the input. It is safe for concurrent use.
type TaskContext struct {
	task *workflowv1.Task
	ctx  context.Context
	// Closed when the worker begins to drain.
	draining <-chan struct{}
	base     *slog.Logger
	// beat takes progress (nil for a beat without one) to the next heartbeat.
	beat func(progress *workflowv1.Payload)

	logOnce sync.Once
	log     *slog.Logger
}

type taskKey struct{}

// Task gives the task of the handler that ctx belongs to. It panics where there is none: outside of handlers use
// [TaskFrom].
func Task(ctx context.Context) *TaskContext {
	task, ok := TaskFrom(ctx)
	if !ok {
		panic("orbit: this context is not that of a handler")
	}
	return task
}

// TaskFrom gives the task of the handler that ctx belongs to, and whether there is one.
func TaskFrom(ctx context.Context) (*TaskContext, bool) {
	task, ok := ctx.Value(taskKey{}).(*TaskContext)
	return task, ok
}

// ExecutionID is the id of the execution that the task belongs to.
func (t *TaskContext) ExecutionID() string { return t.task.ExecutionId }

// ExecutionUID is the id that the server made for the execution and never uses again.
func (t *TaskContext) ExecutionUID() string { return t.task.ExecutionUid }

// Run is the run of the execution, from 1; continue-as-new begins the next.
func (t *TaskContext) Run() int { return int(t.task.Run) }

// Workflow is the name of the workflow.
func (t *TaskContext) Workflow() string { return t.task.Workflow }

// WorkflowVersion is the version of the definition that the execution keeps for ever.
func (t *TaskContext) WorkflowVersion() string { return t.task.Version }

// Step is the id of the step in the definition.
func (t *TaskContext) Step() string { return t.task.Step }

// Unit is what runs: the step, one item of it as in ship[3], or compensate:charge, failure:notify.
func (t *TaskContext) Unit() string { return t.task.Unit }

// Contract is the name@version that chose the handler.
func (t *TaskContext) Contract() string { return t.task.Contract }

// Queue is the queue that the task waited in.
func (t *TaskContext) Queue() string { return t.task.Queue }

// Attempt counts the tries of the unit that the retry policy knows of, from 1.
func (t *TaskContext) Attempt() int { return int(t.task.Attempt) }

// Delivery counts the hand-outs of all attempts together, from 1.
func (t *TaskContext) Delivery() int { return int(t.task.Delivery) }

// IsRedelivery tells whether an earlier delivery of this attempt ended without its worker's report: the work may have been
// done already.
func (t *TaskContext) IsRedelivery() bool { return t.task.Redelivery }

// IdempotencyKey is the same for every attempt and delivery of the unit, for ever: 32 hexadecimal digits. Record it with
// the work, in one transaction, or hand it to the system that does the work.
func (t *TaskContext) IdempotencyKey() string { return t.task.IdempotencyKey }

// Deadline is when this delivery times out, by this machine's clock, and whether it does. The handler's context has the
// same.
func (t *TaskContext) Deadline() (time.Time, bool) { return t.ctx.Deadline() }

// ScheduleTime is when the attempt began to wait for a worker, by the server's clock.
func (t *TaskContext) ScheduleTime() time.Time { return t.task.ScheduleTime.AsTime() }

// TraceParent is the W3C traceparent of the call that started the execution. Empty if it had none.
func (t *TaskContext) TraceParent() string { return t.task.TraceParent }

// Logger writes with the task's execution, step, contract, attempt and delivery as fields.
func (t *TaskContext) Logger() *slog.Logger {
	t.logOnce.Do(func() {
		base := t.base
		if base == nil {
			base = slog.Default()
		}
		t.log = base.With(
			slog.String("execution_id", t.task.ExecutionId), slog.Int("run", int(t.task.Run)),
			slog.String("workflow", t.task.Workflow), slog.String("step", t.task.Unit),
			slog.String("contract", t.task.Contract),
			slog.Int("attempt", int(t.task.Attempt)), slog.Int("delivery", int(t.task.Delivery)),
		)
	})
	return t.log
}

// Heartbeat tells how far the work is: the next attempt, or delivery, finds it by [TaskContext.LastProgress]. It also
// counts as a beat for a step with a heartbeat_timeout. It does not wait; the newest progress goes along with the worker's
// next heartbeat, soon enough for the timeout. In JSON it may have 64 KiB.
//
// The error is why the handler should stop, as [context.Cause] has it, or that JSON cannot say the progress.
func (t *TaskContext) Heartbeat(progress any) error {
	payload, err := encodePayload(progress)
	if err != nil {
		return fmt.Errorf("orbit: the progress has no JSON form: %w", err)
	}
	if size := len(payload.GetJson()); size > progressBytesMax {
		return fmt.Errorf("orbit: the progress has %d bytes; at most %d are kept", size, progressBytesMax)
	}
	if !isStorable(payload.GetJson()) {
		// It would be refused together with the heartbeat that lists all other tasks.
		return errors.New("orbit: the progress has U+0000 or a lone surrogate, which no store keeps")
	}
	t.beat(payload)
	return context.Cause(t.ctx)
}

// Beat says that the handler itself is alive, for a step with a heartbeat_timeout, and leaves the progress as it is. The
// error is why the handler should stop.
func (t *TaskContext) Beat() error {
	t.beat(nil)
	return context.Cause(t.ctx)
}

// LastProgress reads the newest progress of the attempt or delivery before this one into a value, and tells whether there
// was any.
func (t *TaskContext) LastProgress(into any) (bool, error) {
	if t.task.Progress == nil {
		return false, nil
	}
	return true, decodePayload(t.task.Progress, into)
}

// Cancelled tells whether the handler should stop now; its context has ended.
func (t *TaskContext) Cancelled() bool { return t.ctx.Err() != nil }

// Draining is closed when the worker begins to stop: a handler that would go on for long can end early, with a
// [RetryableError] or after a last [TaskContext.Heartbeat]. Its context ends later, when the drain time is over.
func (t *TaskContext) Draining() <-chan struct{} { return t.draining }

// IsDraining tells whether the worker has begun to stop.
func (t *TaskContext) IsDraining() bool {
	select {
	case <-t.draining:
		return true
	default:
		return false
	}
}

// Input is the task's input as JSON text, before any interceptor and type.
func (t *TaskContext) Input() json.RawMessage {
	text, err := payloadText(t.task.Input)
	if err != nil {
		return nil
	}
	return json.RawMessage(text)
}

// Proto gives the task as it came from the server, for what has no method here. It must not be changed.
func (t *TaskContext) Proto() *workflowv1.Task { return t.task }

// TaskContextOptions say what surrounds a handler, for [NewTaskContext].
type TaskContextOptions struct {
	// Draining is closed when the worker begins to stop. Default: never.
	Draining <-chan struct{}
	// Beat is called for each heartbeat, with the progress as JSON text, nil for a beat without any. Default: nothing is.
	Beat func(progress json.RawMessage)
	// Logger is what the task's logger adds its fields to. Default: [slog.Default].
	Logger *slog.Logger
}

// NewTaskContext makes the context of a handler as a worker does: for tests. Package orbittest has what is handier.
func NewTaskContext(ctx context.Context, task *workflowv1.Task, options TaskContextOptions) context.Context {
	made := &TaskContext{task: task, draining: options.Draining, base: options.Logger}
	made.beat = func(progress *workflowv1.Payload) {
		if options.Beat == nil {
			return
		}
		if progress == nil {
			options.Beat(nil)
			return
		}
		options.Beat(json.RawMessage(progress.GetJson()))
	}
	made.ctx = context.WithValue(ctx, taskKey{}, made)
	return made.ctx
}
