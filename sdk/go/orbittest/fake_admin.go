package orbittest

import (
	"context"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	adminv1 "orbit.example/sdk/go/gen/orbit/admin/v1"
	workflowv1 "orbit.example/sdk/go/gen/orbit/workflow/v1"
)

// refuse makes an error as the server does.
func refuse(code codes.Code, reason, message string) error {
	refusal, err := status.New(code, message).WithDetails(&errdetails.ErrorInfo{Reason: reason, Domain: "orbit"})
	if err != nil {
		return status.Error(code, message)
	}
	return refusal.Err()
}

// find finds an execution. The lock must be held.
func (f *service) find(id, uid string) (*execution, error) {
	e := f.executions[id]
	if e == nil || (uid != "" && e.message.Uid != uid) {
		return nil, refuse(codes.NotFound, "EXECUTION_NOT_FOUND", "there is no execution "+id)
	}
	return e, nil
}

// StartExecution starts an execution of a [Fake.Workflow].
func (f *service) StartExecution(_ context.Context, request *adminv1.StartExecutionRequest) (*adminv1.StartExecutionResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	answer := func(e *execution, created bool) *adminv1.StartExecutionResponse {
		return &adminv1.StartExecutionResponse{
			Id: e.message.Id, Uid: e.message.Uid, Version: e.message.Version, Created: created, StartTime: e.message.StartTime}
	}
	for _, e := range f.executions {
		if request.RequestId != "" && e.request == request.RequestId {
			return answer(e, true), nil
		}
	}
	workflow := f.workflows[request.Workflow]
	if workflow == nil {
		return nil, refuse(codes.NotFound, "DEFINITION_NOT_FOUND", "there is no workflow "+request.Workflow)
	}
	id := request.Id
	if id == "" {
		id = f.newID("execution")
	}
	if e := f.executions[id]; e != nil {
		isSame := e.message.Workflow == request.Workflow && e.message.Input.GetJson() == request.Input.GetJson()
		reject := request.IdReusePolicy <= adminv1.IdReusePolicy_ID_REUSE_POLICY_REJECT
		switch {
		case isSame && (reject || !e.isClosed()):
			return answer(e, false), nil
		case reject || (!e.isClosed() && request.IdReusePolicy == adminv1.IdReusePolicy_ID_REUSE_POLICY_ALLOW_WHEN_CLOSED):
			return nil, refuse(codes.AlreadyExists, "EXECUTION_ALREADY_EXISTS", "another execution has the id "+id)
		case !e.isClosed():
			f.terminate(e, "replaced")
		}
	}
	version := request.Version
	if version == "" {
		version = "1.0.0"
	}
	input := request.Input
	if input == nil {
		input = payload([]byte("null"))
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	e := &execution{request: request.RequestId, signals: map[string][]*workflowv1.Payload{}, cancel: cancel,
		message: &workflowv1.Execution{
			Id: id, Uid: f.newID("uid"), Run: 1, Workflow: request.Workflow, Version: version,
			State: workflowv1.Execution_STATE_RUNNING, Labels: request.Labels, Input: input, StartTime: timestamppb.Now(),
		}}
	f.executions[id] = e
	f.order = append(f.order, id)
	f.record(e, &workflowv1.Event{Kind: &workflowv1.Event_ExecutionCreated{ExecutionCreated: &workflowv1.ExecutionCreated{Input: input}}})
	if request.Signal != nil {
		f.signal(e, request.Signal.Name, request.Signal.Payload)
	}
	go func() {
		select {
		case <-f.stopped:
			cancel(errTerminated)
		case <-ctx.Done():
		}
	}()
	go func() {
		defer cancel(nil)
		f.play(ctx, e, workflow)
	}()
	return answer(e, true), nil
}

// GetExecution reads an execution.
func (f *service) GetExecution(_ context.Context, request *adminv1.GetExecutionRequest) (*adminv1.GetExecutionResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	e, err := f.find(request.Id, request.Uid)
	if err != nil {
		return nil, err
	}
	return &adminv1.GetExecutionResponse{Execution: proto.CloneOf(e.message)}, nil
}

// WaitExecution waits for the end of an execution.
func (f *service) WaitExecution(ctx context.Context, request *adminv1.WaitExecutionRequest) (*adminv1.WaitExecutionResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	e, err := f.find(request.Id, request.Uid)
	if err != nil {
		return nil, err
	}
	if err := f.await(ctx, request.WaitDuration.AsDuration(), e.isClosed); err != nil {
		return nil, err
	}
	return &adminv1.WaitExecutionResponse{Execution: proto.CloneOf(e.message)}, nil
}

// ListExecutions lists all executions, the newest first, on one page. It takes no filter.
func (f *service) ListExecutions(_ context.Context, request *adminv1.ListExecutionsRequest) (*adminv1.ListExecutionsResponse, error) {
	if request.Filter != "" {
		return nil, status.Error(codes.Unimplemented, "the server in memory knows no filters")
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	response := &adminv1.ListExecutionsResponse{}
	for i := len(f.order) - 1; i >= 0; i-- {
		response.Executions = append(response.Executions, proto.CloneOf(f.executions[f.order[i]].message))
	}
	return response, nil
}

// WatchEvents streams an execution's events to its end.
func (f *service) WatchEvents(request *adminv1.WatchEventsRequest, stream grpc.ServerStreamingServer[adminv1.WatchEventsResponse]) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	e, err := f.find(request.Id, request.Uid)
	if err != nil {
		return err
	}
	for next := request.AfterNumber; ; next++ {
		for int64(len(e.events)) <= next {
			if e.isClosed() {
				return nil
			}
			if err := f.await(stream.Context(), time.Hour, func() bool { return int64(len(e.events)) > next || e.isClosed() }); err != nil {
				return err
			}
		}
		event := e.events[next]
		f.mu.Unlock()
		err := stream.Send(&adminv1.WatchEventsResponse{Event: event})
		f.mu.Lock()
		if err != nil {
			return err
		}
	}
}

// signal keeps a signal until the workflow takes it. The lock must be held.
func (f *service) signal(e *execution, name string, content *workflowv1.Payload) {
	if content == nil {
		content = payload([]byte("null"))
	}
	e.signals[name] = append(e.signals[name], content)
	f.record(e, &workflowv1.Event{Kind: &workflowv1.Event_SignalReceived{SignalReceived: &workflowv1.SignalReceived{Name: name, Payload: content}}})
}

// open finds an execution that is open. The lock must be held.
func (f *service) open(id, uid string) (*execution, error) {
	e, err := f.find(id, uid)
	if err == nil && e.isClosed() {
		return nil, refuse(codes.FailedPrecondition, "EXECUTION_CLOSED", "the execution "+id+" is closed")
	}
	return e, err
}

// SignalExecution gives an execution a signal.
func (f *service) SignalExecution(_ context.Context, request *adminv1.SignalExecutionRequest) (*adminv1.SignalExecutionResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	e, err := f.open(request.Id, request.Uid)
	if err != nil {
		return nil, err
	}
	f.signal(e, request.Name, request.Payload)
	return &adminv1.SignalExecutionResponse{EventNumber: e.message.LastEventNumber}, nil
}

// CancelExecution cancels an execution: its run's context ends, and it ends CANCELLED once its function has returned.
func (f *service) CancelExecution(_ context.Context, request *adminv1.CancelExecutionRequest) (*adminv1.CancelExecutionResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	e, err := f.open(request.Id, request.Uid)
	if err != nil {
		return nil, err
	}
	if e.message.State != workflowv1.Execution_STATE_WINDING_DOWN {
		e.message.State, e.message.Cause, e.message.Reason = workflowv1.Execution_STATE_WINDING_DOWN, workflowv1.Cause_CAUSE_CANCEL, request.Reason
		f.record(e, &workflowv1.Event{Kind: &workflowv1.Event_WindDownStarted{WindDownStarted: &workflowv1.WindDownStarted{}}})
		e.cancel(errCancelled)
	}
	return &adminv1.CancelExecutionResponse{EventNumber: e.message.LastEventNumber}, nil
}

// terminate ends an execution at once. The lock must be held.
func (f *service) terminate(e *execution, reason string) {
	e.message.State, e.message.Reason = workflowv1.Execution_STATE_TERMINATED, reason
	f.record(e, &workflowv1.Event{Kind: &workflowv1.Event_ExecutionTerminated{ExecutionTerminated: &workflowv1.ExecutionTerminated{}}})
	e.cancel(errTerminated)
}

// TerminateExecution ends an execution at once.
func (f *service) TerminateExecution(_ context.Context, request *adminv1.TerminateExecutionRequest) (*adminv1.TerminateExecutionResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	e, err := f.open(request.Id, request.Uid)
	if err != nil {
		return nil, err
	}
	f.terminate(e, request.Reason)
	return &adminv1.TerminateExecutionResponse{EventNumber: e.message.LastEventNumber}, nil
}
