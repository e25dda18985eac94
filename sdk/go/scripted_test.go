package orbit_test

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/durationpb"

	orbit "orbit.example/sdk/go"
	workerv1 "orbit.example/sdk/go/gen/orbit/worker/v1"
	workflowv1 "orbit.example/sdk/go/gen/orbit/workflow/v1"
)

// A scripted server does what a test tells it to, for what no real server does on demand.
type scripted struct {
	workerv1.UnimplementedWorkerServiceServer

	listener *bufconn.Listener
	server   *grpc.Server
	// onStream serves a stream, the first frame already read; nil refuses streams.
	onStream func(attempt int, stream grpc.BidiStreamingServer[workerv1.StreamTasksRequest, workerv1.StreamTasksResponse]) error

	mu          sync.Mutex
	streams     int
	registered  []*workerv1.RegisterWorkerRequest
	polls       []*workflowv1.Task
	reports     []*workerv1.Report
	unregisters int
}

func newScripted(t *testing.T) *scripted {
	s := &scripted{}
	s.serve()
	t.Cleanup(s.stop)
	return s
}

func (s *scripted) serve() {
	s.listener, s.server = bufconn.Listen(1<<20), grpc.NewServer()
	workerv1.RegisterWorkerServiceServer(s.server, s)
	listener, server := s.listener, s.server
	go func() { _ = server.Serve(listener) }()
}

// stop cuts all connections, and refuses new ones until the next serve.
func (s *scripted) stop() {
	s.server.Stop()
}

// client makes a client whose records go to a buffer.
func (s *scripted) client(t *testing.T) (*orbit.Client, *record) {
	t.Helper()
	lines := &record{}
	client, err := orbit.NewClient(orbit.WithAddress("http://127.0.0.1:1"), orbit.WithLogger(slog.New(slog.NewTextHandler(lines, nil))),
		orbit.WithDialOptions(grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			s.mu.Lock()
			listener := s.listener
			s.mu.Unlock()
			return listener.DialContext(ctx)
		})))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client, lines
}

// record keeps what is logged.
type record struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (r *record) Write(text []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.Write(text)
}

func (r *record) count(part string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return bytes.Count(r.text.Bytes(), []byte(part))
}

func (s *scripted) RegisterWorker(_ context.Context, request *workerv1.RegisterWorkerRequest) (*workerv1.RegisterWorkerResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.registered = append(s.registered, request)
	return &workerv1.RegisterWorkerResponse{SessionId: "session", HeartbeatInterval: durationpb.New(50 * time.Millisecond),
		SessionTimeout: durationpb.New(400 * time.Millisecond), Resumed: request.PreviousSessionId != ""}, nil
}

func (s *scripted) StreamTasks(stream grpc.BidiStreamingServer[workerv1.StreamTasksRequest, workerv1.StreamTasksResponse]) error {
	s.mu.Lock()
	s.streams++
	attempt, onStream := s.streams, s.onStream
	s.mu.Unlock()
	if onStream == nil {
		return status.Error(codes.Unimplemented, "no streams here")
	}
	return onStream(attempt, stream)
}

func (s *scripted) PollTasks(ctx context.Context, _ *workerv1.PollTasksRequest) (*workerv1.PollTasksResponse, error) {
	s.mu.Lock()
	tasks := s.polls
	s.polls = nil
	s.mu.Unlock()
	if len(tasks) == 0 {
		select {
		case <-ctx.Done():
		case <-time.After(20 * time.Millisecond):
		}
	}
	return &workerv1.PollTasksResponse{Tasks: tasks}, nil
}

func (s *scripted) Heartbeat(context.Context, *workerv1.HeartbeatRequest) (*workerv1.HeartbeatResponse, error) {
	return &workerv1.HeartbeatResponse{}, nil
}

func (s *scripted) CompleteTask(_ context.Context, request *workerv1.CompleteTaskRequest) (*workerv1.CompleteTaskResponse, error) {
	s.took(&workerv1.Report{TaskToken: request.TaskToken, Kind: &workerv1.Report_Complete{Complete: &workerv1.Complete{Output: request.Output}}})
	return &workerv1.CompleteTaskResponse{Outcome: &workerv1.ReportOutcome{Accepted: true}}, nil
}

func (s *scripted) UnregisterWorker(context.Context, *workerv1.UnregisterWorkerRequest) (*workerv1.UnregisterWorkerResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unregisters++
	return &workerv1.UnregisterWorkerResponse{}, nil
}

func (s *scripted) took(report *workerv1.Report) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reports = append(s.reports, report)
}

// taken gives the reports so far.
func (s *scripted) taken() []*workerv1.Report {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]*workerv1.Report(nil), s.reports...)
}

// task makes a task of the contract echo@1.
func task(token, input string) *workflowv1.Task {
	return &workflowv1.Task{TaskToken: token, Contract: "echo@1", ExecutionId: "e", Attempt: 1, Delivery: 1, IdempotencyKey: "key-" + token,
		Input: &workflowv1.Payload{Content: &workflowv1.Payload_Json{Json: input}}}
}

// run runs a worker; what it returns stops it and waits.
func run(t *testing.T, worker *orbit.Worker) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- worker.Run(ctx) }()
	var once sync.Once
	var err error
	stop = func() error {
		once.Do(func() {
			cancel()
			select {
			case err = <-done:
			case <-time.After(20 * time.Second):
				t.Error("the worker does not stop")
			}
		})
		return err
	}
	t.Cleanup(func() { _ = stop() })
	return stop
}

// eventually waits until something holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(15 * time.Second); !holds(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
}

func tasksOf(tasks ...*workflowv1.Task) []*workflowv1.Task { return tasks }

func newListener() *bufconn.Listener { return bufconn.Listen(1 << 20) }
