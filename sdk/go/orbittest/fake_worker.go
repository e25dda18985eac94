package orbittest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	workerv1 "orbit.example/sdk/go/gen/orbit/worker/v1"
	workflowv1 "orbit.example/sdk/go/gen/orbit/workflow/v1"
)

// sessionTimeout and heartbeatInterval are what workers are told.
const (
	sessionTimeout    = 10 * time.Second
	heartbeatInterval = 250 * time.Millisecond
)

// A session is a registration.
type session struct {
	contracts []string
	queues    []string
}

// A unit is a task until it has ended, however many attempts and deliveries that takes.
type unit struct {
	run      *Run
	step     string
	contract string
	input    *workflowv1.Payload
	progress *workflowv1.Payload
	attempt  int32
	count    int32
	// stopped: nobody wants it any more.
	stopped bool
	done    chan struct{}
	output  *workflowv1.Payload
	failure *workflowv1.Failure
}

// A delivery is one hand-out of a unit.
type delivery struct {
	unit *unit
	task *workflowv1.Task
	// session that has it; empty while it waits.
	session string
}

// deliver puts a unit into the queue. The lock must be held.
func (f *service) deliver(u *unit, again bool) {
	u.count++
	execution := u.run.execution.message
	key := sha256.Sum256([]byte(execution.Uid + "/" + u.step))
	f.waiting = append(f.waiting, &delivery{unit: u, task: &workflowv1.Task{
		TaskToken: f.newID("token"), Contract: u.contract, Input: u.input, ExecutionId: execution.Id, ExecutionUid: execution.Uid,
		Run: 1, Workflow: execution.Workflow, Version: execution.Version, Step: u.step, Unit: u.step, Attempt: u.attempt,
		Delivery: u.count, Redelivery: again, IdempotencyKey: hex.EncodeToString(key[:16]), Queue: "default",
		ScheduleTime: timestamppb.Now(), Progress: u.progress,
	}})
	f.tell()
}

// take hands out up to so many tasks to a session. The lock must be held.
func (f *service) take(id string, most int) []*workflowv1.Task {
	var tasks []*workflowv1.Task
	s := f.sessions[id]
	f.waiting = slices.DeleteFunc(f.waiting, func(d *delivery) bool {
		if d.unit.stopped {
			return true
		}
		if len(tasks) >= most || !slices.Contains(s.contracts, d.task.Contract) || !slices.Contains(s.queues, "default") {
			return false
		}
		d.session, d.task.DispatchTime = id, timestamppb.Now()
		f.out[d.task.TaskToken] = d
		tasks = append(tasks, d.task)
		return true
	})
	return tasks
}

func sessionNotFound() error {
	return refuse(codes.NotFound, "SESSION_NOT_FOUND", "the session ended or never was")
}

// RegisterWorker makes a session.
func (f *service) RegisterWorker(_ context.Context, request *workerv1.RegisterWorkerRequest) (*workerv1.RegisterWorkerResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	id := request.PreviousSessionId
	resumed := f.sessions[id] != nil
	if !resumed {
		id = f.newID("session")
	}
	queues := request.Queues
	if len(queues) == 0 {
		queues = []string{"default"}
	}
	f.sessions[id] = &session{contracts: request.Contracts, queues: queues}
	return &workerv1.RegisterWorkerResponse{SessionId: id, Resumed: resumed,
		HeartbeatInterval: durationpb.New(heartbeatInterval), SessionTimeout: durationpb.New(sessionTimeout)}, nil
}

// PollTasks hands out tasks.
func (f *service) PollTasks(ctx context.Context, request *workerv1.PollTasksRequest) (*workerv1.PollTasksResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var tasks []*workflowv1.Task
	lost := false
	err := f.await(ctx, request.WaitDuration.AsDuration(), func() bool {
		if lost = f.sessions[request.SessionId] == nil; lost {
			return true
		}
		tasks = f.take(request.SessionId, max(1, int(request.MaxTasks)))
		return len(tasks) > 0
	})
	if lost {
		return nil, sessionNotFound()
	}
	return &workerv1.PollTasksResponse{Tasks: tasks}, err
}

// StreamTasks hands out tasks and takes reports.
func (f *service) StreamTasks(stream grpc.BidiStreamingServer[workerv1.StreamTasksRequest, workerv1.StreamTasksResponse]) error {
	frames := make(chan *workerv1.StreamTasksRequest)
	broken := make(chan error, 1)
	go func() {
		for {
			frame, err := stream.Recv()
			if err != nil {
				broken <- err
				return
			}
			select {
			case frames <- frame:
			case <-stream.Context().Done():
				return
			}
		}
	}()
	id, credits := "", 0
	for {
		f.mu.Lock()
		response := &workerv1.StreamTasksResponse{}
		if id != "" {
			if f.sessions[id] == nil {
				f.mu.Unlock()
				return sessionNotFound()
			}
			response.Tasks = f.take(id, credits)
			credits -= len(response.Tasks)
		}
		changed := f.changed
		f.mu.Unlock()
		if len(response.Tasks) > 0 {
			if err := stream.Send(response); err != nil {
				return err
			}
		}
		select {
		case frame := <-frames:
			if id == "" {
				id = frame.SessionId
			}
			credits += int(frame.Credits)
			if answer := f.answer(id, frame); answer != nil {
				if err := stream.Send(answer); err != nil {
					return err
				}
			}
		case err := <-broken:
			return err
		case <-changed:
		case <-f.stopped:
			return nil
		}
	}
}

// answer takes the reports and the heartbeat of a frame.
func (f *service) answer(id string, frame *workerv1.StreamTasksRequest) *workerv1.StreamTasksResponse {
	f.mu.Lock()
	defer f.mu.Unlock()
	response := &workerv1.StreamTasksResponse{}
	if frame.Heartbeat != nil {
		response.Heartbeat = f.heartbeat(frame.Heartbeat)
	}
	for _, report := range frame.Reports {
		response.Results = append(response.Results, &workerv1.ReportResult{TaskToken: report.TaskToken, Outcome: f.report(report)})
	}
	if frame.Heartbeat == nil && len(frame.Reports) == 0 {
		return nil
	}
	return response
}

// heartbeat takes progress and names what is not wanted. The lock must be held.
func (f *service) heartbeat(request *workerv1.HeartbeatRequest) *workerv1.HeartbeatResponse {
	response := &workerv1.HeartbeatResponse{}
	for _, held := range request.Held {
		d := f.out[held.TaskToken]
		if d == nil || d.unit.stopped {
			response.Stop = append(response.Stop, held.TaskToken)
			continue
		}
		if held.Progress != nil {
			d.unit.progress = held.Progress
		}
	}
	return response
}

// Heartbeat takes progress and names what is not wanted.
func (f *service) Heartbeat(_ context.Context, request *workerv1.HeartbeatRequest) (*workerv1.HeartbeatResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.sessions[request.SessionId] == nil {
		return nil, sessionNotFound()
	}
	return f.heartbeat(request), nil
}

// report takes a report. The lock must be held.
func (f *service) report(report *workerv1.Report) *workerv1.ReportOutcome {
	d := f.out[report.TaskToken]
	if d == nil {
		if f.ended[report.TaskToken] {
			return &workerv1.ReportOutcome{Accepted: true, Duplicate: true}
		}
		return &workerv1.ReportOutcome{Reason: workerv1.ReportOutcome_REASON_STALE_TOKEN}
	}
	delete(f.out, report.TaskToken)
	if d.unit.stopped {
		return &workerv1.ReportOutcome{Reason: workerv1.ReportOutcome_REASON_UNIT_RESOLVED}
	}
	f.ended[report.TaskToken] = true
	switch kind := report.Kind.(type) {
	case *workerv1.Report_Complete:
		d.unit.output = kind.Complete.Output
		close(d.unit.done)
	case *workerv1.Report_Fail:
		if (kind.Fail.Retryable == nil || *kind.Fail.Retryable) && d.unit.attempt < attemptsMax {
			d.unit.attempt++
			f.deliver(d.unit, false)
		} else {
			d.unit.failure = kind.Fail.Failure
			close(d.unit.done)
		}
	case *workerv1.Report_Release:
		f.deliver(d.unit, true)
	}
	return &workerv1.ReportOutcome{Accepted: true}
}

// CompleteTask takes a success.
func (f *service) CompleteTask(_ context.Context, request *workerv1.CompleteTaskRequest) (*workerv1.CompleteTaskResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return &workerv1.CompleteTaskResponse{Outcome: f.report(&workerv1.Report{TaskToken: request.TaskToken,
		Kind: &workerv1.Report_Complete{Complete: &workerv1.Complete{Output: request.Output}}})}, nil
}

// FailTask takes a failure.
func (f *service) FailTask(_ context.Context, request *workerv1.FailTaskRequest) (*workerv1.FailTaskResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return &workerv1.FailTaskResponse{Outcome: f.report(&workerv1.Report{TaskToken: request.TaskToken,
		Kind: &workerv1.Report_Fail{Fail: &workerv1.Fail{Failure: request.Failure, Retryable: request.Retryable}}})}, nil
}

// ReleaseTask takes a task back.
func (f *service) ReleaseTask(_ context.Context, request *workerv1.ReleaseTaskRequest) (*workerv1.ReleaseTaskResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return &workerv1.ReleaseTaskResponse{Outcome: f.report(&workerv1.Report{TaskToken: request.TaskToken,
		Kind: &workerv1.Report_Release{Release: &workerv1.Release{}}})}, nil
}

// UnregisterWorker ends a session; its tasks are handed out again.
func (f *service) UnregisterWorker(_ context.Context, request *workerv1.UnregisterWorkerRequest) (*workerv1.UnregisterWorkerResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.sessions, request.SessionId)
	for token, d := range f.out {
		if d.session == request.SessionId {
			delete(f.out, token)
			f.deliver(d.unit, true)
		}
	}
	f.tell()
	return &workerv1.UnregisterWorkerResponse{}, nil
}
