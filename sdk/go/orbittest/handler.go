package orbittest

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	orbit "orbit.example/sdk/go"
	workflowv1 "orbit.example/sdk/go/gen/orbit/workflow/v1"
)

// A Dispatch says with which task a handler runs. Its zero value is the first delivery of the first attempt.
type Dispatch struct {
	// Contract, ExecutionID, Workflow and Step name the task. Defaults: test@1, test, test and test.
	Contract, ExecutionID, Workflow, Step string
	// Attempt and Delivery count from 1. Default: 1; a Delivery at least the Attempt.
	Attempt, Delivery int
	// IsRedelivery tells that an earlier delivery of the attempt may have done the work.
	IsRedelivery bool
	// IdempotencyKey of the unit. Default: the same 32 digits each time.
	IdempotencyKey string
	// Timeout of the delivery. Default: none.
	Timeout time.Duration
	// LastProgress is what the attempt before this one reported; nil for nothing.
	LastProgress any
	// TraceParent is the W3C traceparent of the call that started the execution.
	TraceParent string
	// Draining is closed when the worker begins to stop. Default: never.
	Draining <-chan struct{}
	// OnHeartbeat is called with each progress as JSON text; nil for a beat without any.
	OnHeartbeat func(progress json.RawMessage)
}

// RunHandler runs a handler as if its task had been dispatched: the input and the output pass through JSON, the context has
// the task ([orbit.Task]), and a panic is the error that a worker would report. End the context for a cancel.
func RunHandler[In, Out any](
	ctx context.Context, handler func(context.Context, In) (Out, error), input any, dispatch Dispatch,
) (Out, error) {
	var out Out
	text, err := json.Marshal(input)
	if err != nil {
		return out, fmt.Errorf("orbittest: the input has no JSON form: %w", err)
	}
	task, err := dispatch.task(text)
	if err != nil {
		return out, err
	}
	if dispatch.Timeout > 0 {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeoutCause(ctx, dispatch.Timeout, orbit.ErrTaskTimeout)
		defer stop()
	}
	ctx = orbit.NewTaskContext(ctx, task, orbit.TaskContextOptions{Draining: dispatch.Draining, Beat: dispatch.OnHeartbeat})
	output, err := orbit.Typed(handler)(ctx, text)
	if err != nil {
		return out, err
	}
	if err := json.Unmarshal(output, &out); err != nil {
		return out, fmt.Errorf("orbittest: the output does not fit its own type: %w", err)
	}
	return out, nil
}

// task makes the task.
func (d Dispatch) task(input []byte) (*workflowv1.Task, error) {
	or := func(text, otherwise string) string {
		if text == "" {
			return otherwise
		}
		return text
	}
	now := timestamppb.Now()
	task := &workflowv1.Task{
		TaskToken: "test", Contract: or(d.Contract, "test@1"), Input: payload(input),
		ExecutionId: or(d.ExecutionID, "test"), ExecutionUid: "00000000-0000-7000-8000-000000000000", Run: 1,
		Workflow: or(d.Workflow, "test"), Version: "1.0.0", Step: or(d.Step, "test"), Unit: or(d.Step, "test"),
		Attempt: int32(max(1, d.Attempt)), Delivery: int32(max(1, d.Attempt, d.Delivery)), Redelivery: d.IsRedelivery,
		IdempotencyKey: or(d.IdempotencyKey, "0123456789abcdef0123456789abcdef"), Queue: "default",
		ScheduleTime: now, DispatchTime: now, TraceParent: d.TraceParent,
	}
	if d.Timeout > 0 {
		task.ExpireTime = timestamppb.New(now.AsTime().Add(d.Timeout))
	}
	if d.LastProgress != nil {
		progress, err := json.Marshal(d.LastProgress)
		if err != nil {
			return nil, fmt.Errorf("orbittest: the progress has no JSON form: %w", err)
		}
		task.Progress = payload(progress)
	}
	return task, nil
}

func payload(text []byte) *workflowv1.Payload {
	return &workflowv1.Payload{Content: &workflowv1.Payload_Json{Json: string(text)}}
}
