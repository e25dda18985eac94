package orbit

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	adminv1 "orbit.example/sdk/go/gen/orbit/admin/v1"
	workflowv1 "orbit.example/sdk/go/gen/orbit/workflow/v1"
)

// waitSpan is how long one call waits for the close of an execution: below what proxies bear.
const waitSpan = 25 * time.Second

// An ExecutionHandle is a reference to an execution, for calls about it. [Client.Start] returns one; [Client.Execution]
// makes one of an id.
type ExecutionHandle struct {
	client  *Client
	id      string
	uid     string
	version string
	created bool
}

// Execution refers to the current execution with an id. It makes no call, so there may be no such execution.
func (c *Client) Execution(id string) *ExecutionHandle { return &ExecutionHandle{client: c, id: id} }

// ExecutionByUID refers to one execution for ever: calls fail with [ErrNotFound] rather than reach a newer one with the
// same id.
func (c *Client) ExecutionByUID(id, uid string) *ExecutionHandle {
	return &ExecutionHandle{client: c, id: id, uid: uid}
}

// ID is the execution's id.
func (h *ExecutionHandle) ID() string { return h.id }

// UID is the id that the server made and never uses again; empty if the handle was made of an id alone.
func (h *ExecutionHandle) UID() string { return h.uid }

// Version is the definition's version that a start chose; empty for other handles.
func (h *ExecutionHandle) Version() string { return h.version }

// Created tells whether the start that returned this handle made the execution, and did not find it.
func (h *ExecutionHandle) Created() bool { return h.created }

// Describe reads the execution with its steps.
func (h *ExecutionHandle) Describe(ctx context.Context) (*Execution, error) {
	response, err := invoke(ctx, h.client, &adminv1.GetExecutionRequest{Id: h.id, Uid: h.uid}, h.client.admin.GetExecution)
	if err != nil {
		return nil, err
	}
	return newExecution(response.Execution), nil
}

// Wait waits until the execution is closed, through outages of the server, until the context ends, and returns it without
// its steps.
func (h *ExecutionHandle) Wait(ctx context.Context) (*Execution, error) {
	pauses := backoffPauses{first: callPauseFirst, longest: callPauseLongest}
	var last *Error
	for {
		span := waitSpan
		if deadline, bounded := ctx.Deadline(); bounded {
			span = max(0, min(span, time.Until(deadline)))
		}
		began := time.Now()
		call, cancel := context.WithTimeout(ctx, span+defaultCallTimeout)
		response, err := h.client.admin.WaitExecution(withTrace(call), &adminv1.WaitExecutionRequest{
			Id: h.id, Uid: h.uid, WaitDuration: durationpb.New(max(span, time.Millisecond))})
		cancel()
		if err == nil {
			if execution := newExecution(response.Execution); execution.State.IsClosed() {
				return execution, nil
			}
			last = &Error{Code: codes.DeadlineExceeded, Message: "the execution is still open"}
			// A server that drains answers at once, and would again.
			if time.Since(began) >= span {
				pauses.reset()
				continue
			}
		} else {
			failed := ErrorFrom(err)
			// A call of its own that ran out met a server that stands still.
			if ctx.Err() == nil && failed.Code != codes.DeadlineExceeded && !mayPass(ctx, failed) {
				return nil, failed
			}
			last = failed
		}
		if err := pause(ctx, max(pauses.next(), last.RetryAfter)); errors.Is(err, context.Canceled) {
			return nil, &Error{Code: codes.Canceled, Message: "the wait was cancelled", cause: err}
		} else if err != nil {
			return nil, gaveUp(last)
		}
	}
}

// Result waits until the execution is closed and reads its output into a value; nil takes none. An execution that did not
// succeed is an [ExecutionError].
func (h *ExecutionHandle) Result(ctx context.Context, into any) error {
	execution, err := h.Wait(ctx)
	if err != nil {
		return err
	}
	if execution.State != StateSucceeded {
		return &ExecutionError{Execution: execution}
	}
	if into == nil {
		return nil
	}
	return execution.Output(into)
}

// Result waits until an execution is closed and returns its output as a T. See [ExecutionHandle.Result].
func Result[T any](ctx context.Context, handle *ExecutionHandle) (T, error) {
	var output T
	err := handle.Result(ctx, &output)
	return output, err
}

// Signal gives the execution a signal; once it returns, the signal is kept until a step takes it. A payload is anything
// that encoding/json can write. It returns the number of the SignalReceived event.
func (h *ExecutionHandle) Signal(ctx context.Context, name string, payload any, options ...CallOption) (int64, error) {
	return h.signal(ctx, name, payload, nil, options)
}

// SignalUntil is [ExecutionHandle.Signal] for a signal that loses its meaning at a time, if no step has taken it.
func (h *ExecutionHandle) SignalUntil(
	ctx context.Context, name string, payload any, expire time.Time, options ...CallOption,
) (int64, error) {
	return h.signal(ctx, name, payload, timestamppb.New(expire), options)
}

func (h *ExecutionHandle) signal(
	ctx context.Context, name string, payload any, expire *timestamppb.Timestamp, options []CallOption,
) (int64, error) {
	encoded, err := encodePayload(payload)
	if err != nil {
		return 0, invalid("payload", "has no JSON form: "+err.Error())
	}
	response, err := invoke(ctx, h.client, &adminv1.SignalExecutionRequest{
		Id: h.id, Uid: h.uid, Name: name, Payload: encoded, ExpireTime: expire, RequestId: requestIDOf(options),
	}, h.client.admin.SignalExecution)
	return response.GetEventNumber(), err
}

// Query evaluates a query of the execution's definition on its committed state, and reads what it gives into a value.
func (h *ExecutionHandle) Query(ctx context.Context, query string, into any) error {
	response, err := invoke(ctx, h.client,
		&adminv1.QueryExecutionRequest{Id: h.id, Uid: h.uid, Query: query}, h.client.admin.QueryExecution)
	if err != nil {
		return err
	}
	return decodePayload(response.Result, into)
}

// Cancel cancels the execution: nothing new starts, tasks that are out are asked to stop and get some time, then what was
// done is undone and it ends CANCELLED. It does not wait for that.
func (h *ExecutionHandle) Cancel(ctx context.Context, reason string, options ...CallOption) error {
	_, err := invoke(ctx, h.client, &adminv1.CancelExecutionRequest{
		Id: h.id, Uid: h.uid, Reason: reason, RequestId: requestIDOf(options)}, h.client.admin.CancelExecution)
	return err
}

// Terminate ends the execution at once, without waiting for its tasks and without undoing anything.
func (h *ExecutionHandle) Terminate(ctx context.Context, reason string, options ...CallOption) error {
	_, err := invoke(ctx, h.client, &adminv1.TerminateExecutionRequest{
		Id: h.id, Uid: h.uid, Reason: reason, RequestId: requestIDOf(options)}, h.client.admin.TerminateExecution)
	return err
}

// Pause holds the execution: nothing begins until it is resumed; tasks that workers have go on.
func (h *ExecutionHandle) Pause(ctx context.Context, reason string, options ...CallOption) error {
	_, err := invoke(ctx, h.client, &adminv1.PauseExecutionRequest{
		Id: h.id, Uid: h.uid, Reason: reason, RequestId: requestIDOf(options)}, h.client.admin.PauseExecution)
	return err
}

// Resume lets a paused execution go on.
func (h *ExecutionHandle) Resume(ctx context.Context, options ...CallOption) error {
	_, err := invoke(ctx, h.client, &adminv1.ResumeExecutionRequest{
		Id: h.id, Uid: h.uid, RequestId: requestIDOf(options)}, h.client.admin.ResumeExecution)
	return err
}

// Retry runs a FAILED or TIMED_OUT execution again from where it failed.
func (h *ExecutionHandle) Retry(ctx context.Context, options ...CallOption) error {
	_, err := invoke(ctx, h.client, &adminv1.RetryExecutionRequest{
		Id: h.id, Uid: h.uid, RequestId: requestIDOf(options)}, h.client.admin.RetryExecution)
	return err
}

// RerunOptions say more about a rerun.
type RerunOptions struct {
	// ID of the new execution. Default: the server makes one.
	ID string
	// Input of the new execution, anything that encoding/json can write. Default (nil): that of the one to repeat.
	Input any
	// Labels, added to those of the one to repeat; these win.
	Labels map[string]string
}

// Rerun starts a new execution that repeats this one from a step on, with the earlier results.
func (h *ExecutionHandle) Rerun(
	ctx context.Context, fromStep string, rerun RerunOptions, options ...CallOption,
) (*ExecutionHandle, error) {
	var input *workflowv1.Payload
	if rerun.Input != nil {
		var err error
		if input, err = encodePayload(rerun.Input); err != nil {
			return nil, invalid("input", "has no JSON form: "+err.Error())
		}
	}
	response, err := invoke(ctx, h.client, &adminv1.RerunExecutionRequest{
		Id: h.id, Uid: h.uid, FromStep: fromStep, Input: input, NewId: rerun.ID, Labels: rerun.Labels,
		RequestId: requestIDOf(options)}, h.client.admin.RerunExecution)
	if err != nil {
		return nil, err
	}
	return &ExecutionHandle{
		client: h.client, id: response.Id, uid: response.Uid, version: response.Version, created: response.Created,
	}, nil
}

// Delete deletes a closed execution: no call finds it any more, and its id is free.
func (h *ExecutionHandle) Delete(ctx context.Context, options ...CallOption) error {
	_, err := invoke(ctx, h.client, &adminv1.DeleteExecutionRequest{
		Id: h.id, Uid: h.uid, RequestId: requestIDOf(options)}, h.client.admin.DeleteExecution)
	return err
}

// Explain tells why the execution does not move: everything that it waits for, with what can be done about it.
func (h *ExecutionHandle) Explain(ctx context.Context) (*adminv1.Explanation, error) {
	response, err := invoke(ctx, h.client,
		&adminv1.ExplainExecutionRequest{Id: h.id, Uid: h.uid}, h.client.admin.ExplainExecution)
	return response.GetExplanation(), err
}
