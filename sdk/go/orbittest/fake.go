package orbittest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/timestamppb"

	orbit "orbit.example/sdk/go"
	adminv1 "orbit.example/sdk/go/gen/orbit/admin/v1"
	workerv1 "orbit.example/sdk/go/gen/orbit/worker/v1"
	workflowv1 "orbit.example/sdk/go/gen/orbit/workflow/v1"
)

// attemptsMax is how often a fake execution tries a task, as a step without a retry policy does. It makes no pauses.
const attemptsMax = 3

// A Fake is a server in memory. Its workflows are Go functions ([Fake.Workflow]); real clients and workers talk to it, over
// a connection that leaves the process nowhere.
//
// It keeps to what unit tests need: start, describe, wait, signal, cancel, terminate, list, events, and all that workers
// call. Schemas, expressions, timeouts and retention are the real server's; see [StartServer].
type Fake struct{ service *service }

// service is what the fake serves.
type service struct {
	adminv1.UnimplementedAdminServiceServer
	workerv1.UnimplementedWorkerServiceServer

	listener *bufconn.Listener
	stopped  chan struct{}

	mu         sync.Mutex
	workflows  map[string]func(*Run) (any, error)
	executions map[string]*execution
	// order has the ids, oldest first.
	order    []string
	sessions map[string]*session
	// waiting are the tasks that no worker has, oldest first; out those that one has, by token.
	waiting []*delivery
	out     map[string]*delivery
	ended   map[string]bool
	// changed is closed and made anew when there may be a task, or an execution has moved.
	changed chan struct{}
	number  int
}

// NewFake makes a server in memory, which ends with the test.
func NewFake(t testing.TB) *Fake {
	s := &service{
		listener: bufconn.Listen(1 << 20), stopped: make(chan struct{}), changed: make(chan struct{}),
		workflows: map[string]func(*Run) (any, error){}, executions: map[string]*execution{},
		sessions: map[string]*session{}, out: map[string]*delivery{}, ended: map[string]bool{},
	}
	server := grpc.NewServer(grpc.MaxRecvMsgSize(4 << 20))
	adminv1.RegisterAdminServiceServer(server, s)
	workerv1.RegisterWorkerServiceServer(server, s)
	serving := make(chan struct{})
	go func() {
		defer close(serving)
		_ = server.Serve(s.listener)
	}()
	t.Cleanup(func() {
		close(s.stopped)
		server.Stop()
		<-serving
	})
	return &Fake{s}
}

// Client makes a client of the server, which is closed when the test ends.
func (f *Fake) Client(t testing.TB, options ...orbit.ClientOption) *orbit.Client {
	t.Helper()
	dial := func(ctx context.Context, _ string) (net.Conn, error) { return f.service.listener.DialContext(ctx) }
	client, err := orbit.NewClient(append([]orbit.ClientOption{
		orbit.WithAddress("http://127.0.0.1:1"), orbit.WithDialOptions(grpc.WithContextDialer(dial))}, options...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// Workflow has executions of a workflow run a function: what it returns is the output, or the failure. An
// [orbit.PermanentError] or [orbit.RetryableError] chooses the failure's code.
func (f *Fake) Workflow(name string, run func(*Run) (any, error)) {
	f.service.mu.Lock()
	defer f.service.mu.Unlock()
	f.service.workflows[name] = run
}

// An execution is one start.
type execution struct {
	message *workflowv1.Execution
	events  []*workflowv1.Event
	request string
	signals map[string][]*workflowv1.Payload
	cancel  context.CancelCauseFunc
}

func (e *execution) isClosed() bool {
	return orbit.ExecutionState(e.message.State.String()[len("STATE_"):]).IsClosed()
}

// Why a run ends before its function says so.
var (
	errCancelled  = errors.New("orbittest: the execution was cancelled")
	errTerminated = errors.New("orbittest: the execution was terminated")
)

// A Run is an execution, as its workflow's function sees it.
type Run struct {
	service   *service
	execution *execution
	ctx       context.Context
}

// ID is the execution's id.
func (r *Run) ID() string { return r.execution.message.Id }

// Context ends when the execution is cancelled or terminated, and with the test.
func (r *Run) Context() context.Context { return r.ctx }

// Input reads the input into a value.
func (r *Run) Input(into any) error {
	return json.Unmarshal([]byte(r.execution.message.Input.GetJson()), into)
}

// Signal waits for a signal and reads its payload into a value; nil takes none.
func (r *Run) Signal(name string, into any) error {
	for {
		r.service.mu.Lock()
		waiting := r.execution.signals[name]
		if len(waiting) > 0 {
			r.execution.signals[name] = waiting[1:]
			r.service.mu.Unlock()
			if into == nil {
				return nil
			}
			return json.Unmarshal([]byte(waiting[0].GetJson()), into)
		}
		changed := r.service.changed
		r.service.mu.Unlock()
		select {
		case <-changed:
		case <-r.ctx.Done():
			return context.Cause(r.ctx)
		}
	}
}

// Task has a worker do a task, as a step of that name, and reads its output into a value; nil takes none. A failed attempt
// is followed by up to two more unless it was permanent; then the failure is the error.
func (r *Run) Task(step, contract string, input, into any) error {
	text, err := json.Marshal(input)
	if err != nil {
		return fmt.Errorf("orbittest: the input has no JSON form: %w", err)
	}
	unit := &unit{run: r, step: step, contract: contract, input: payload(text), done: make(chan struct{})}
	r.service.mu.Lock()
	unit.attempt = 1
	r.service.deliver(unit, false)
	r.service.mu.Unlock()
	select {
	case <-unit.done:
	case <-r.ctx.Done():
		r.service.mu.Lock()
		unit.stopped = true
		r.service.mu.Unlock()
		return context.Cause(r.ctx)
	}
	if unit.failure != nil {
		return &orbit.PermanentError{Code: unit.failure.Code, Message: unit.failure.Message}
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal([]byte(unit.output.GetJson()), into)
}

// play runs an execution to its end.
func (f *service) play(ctx context.Context, e *execution, workflow func(*Run) (any, error)) {
	output, err := workflow(&Run{service: f, execution: e, ctx: ctx})
	var text []byte
	if err == nil {
		if text, err = json.Marshal(output); err != nil {
			err = &orbit.PermanentError{Code: "OUTPUT_INVALID", Err: err}
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if e.isClosed() {
		return
	}
	switch {
	case errors.Is(context.Cause(ctx), errCancelled):
		e.message.State = workflowv1.Execution_STATE_CANCELLED
		f.record(e, &workflowv1.Event{Kind: &workflowv1.Event_ExecutionCancelled{ExecutionCancelled: &workflowv1.ExecutionCancelled{}}})
	case err != nil:
		e.message.State, e.message.Failure = workflowv1.Execution_STATE_FAILED, failureOf(err)
		f.record(e, &workflowv1.Event{Kind: &workflowv1.Event_ExecutionFailed{ExecutionFailed: &workflowv1.ExecutionFailed{}}})
	default:
		e.message.State, e.message.Output = workflowv1.Execution_STATE_SUCCEEDED, payload(text)
		f.record(e, &workflowv1.Event{Kind: &workflowv1.Event_ExecutionSucceeded{ExecutionSucceeded: &workflowv1.ExecutionSucceeded{Output: payload(text)}}})
	}
}

// failureOf makes the failure of a workflow's error.
func failureOf(err error) *workflowv1.Failure {
	failure := &workflowv1.Failure{Code: orbit.CodeFailed, Message: err.Error()}
	var permanent *orbit.PermanentError
	var retryable *orbit.RetryableError
	switch {
	case errors.As(err, &permanent):
		failure.Code, failure.Message = permanent.Code, permanent.Message
	case errors.As(err, &retryable):
		failure.Code, failure.Message = retryable.Code, retryable.Message
	}
	if failure.Code == "" {
		failure.Code = orbit.CodeFailed
	}
	return failure
}

// record adds an event to an execution's history and tells everybody. The lock must be held.
func (f *service) record(e *execution, event *workflowv1.Event) {
	event.Number, event.Time = int64(len(e.events)+1), timestamppb.Now()
	e.events = append(e.events, event)
	e.message.LastEventNumber = event.Number
	if e.isClosed() && e.message.CloseTime == nil {
		e.message.CloseTime = event.Time
	}
	f.tell()
}

// tell wakes everybody who waits. The lock must be held.
func (f *service) tell() {
	close(f.changed)
	f.changed = make(chan struct{})
}

// newID makes an id. The lock must be held.
func (f *service) newID(kind string) string {
	f.number++
	return fmt.Sprintf("%s-%d", kind, f.number)
}

// await waits until done says so, for so long; it returns the context's error if that ends first. The lock must be held, and
// is, whenever done is called and afterwards.
func (f *service) await(ctx context.Context, longest time.Duration, done func() bool) error {
	timer := time.NewTimer(longest)
	defer timer.Stop()
	for !done() {
		changed := f.changed
		f.mu.Unlock()
		var err error
		expired := false
		select {
		case <-changed:
		case <-timer.C:
			expired = true
		case <-ctx.Done():
			err = status.FromContextError(ctx.Err()).Err()
		case <-f.stopped:
			err = status.Error(codes.Unavailable, "the server stops")
		}
		f.mu.Lock()
		if err != nil || expired {
			return err
		}
	}
	return nil
}
