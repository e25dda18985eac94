package orbit_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	orbit "orbit.example/sdk/go"
	workerv1 "orbit.example/sdk/go/gen/orbit/worker/v1"
)

type frames = grpc.BidiStreamingServer[workerv1.StreamTasksRequest, workerv1.StreamTasksResponse]

func echo(_ context.Context, in json.RawMessage) (json.RawMessage, error) { return in, nil }

// obey answers heartbeats and takes reports until the stream ends.
func (s *scripted) obey(stream frames) error {
	for {
		frame, err := stream.Recv()
		if err != nil {
			return err
		}
		answer := &workerv1.StreamTasksResponse{}
		if frame.Heartbeat != nil {
			answer.Heartbeat = &workerv1.HeartbeatResponse{}
		}
		for _, report := range frame.Reports {
			s.took(report)
			answer.Results = append(answer.Results, &workerv1.ReportResult{TaskToken: report.TaskToken, Outcome: &workerv1.ReportOutcome{Accepted: true}})
		}
		if err := stream.Send(answer); err != nil {
			return err
		}
	}
}

func TestAWorkerThatIsSetUpWronglyDoesNotRun(t *testing.T) {
	client, _ := newScripted(t).client(t)
	for want, setUp := range map[string]func() *orbit.Worker{
		"no handler": func() *orbit.Worker { return orbit.NewWorker(client) },
		"no contract": func() *orbit.Worker {
			w := orbit.NewWorker(client)
			orbit.Handle(w, "echo", echo)
			return w
		},
		"two handlers": func() *orbit.Worker {
			w := orbit.NewWorker(client)
			orbit.Handle(w, "echo@1", echo)
			orbit.Handle(w, "echo@1", echo)
			return w
		},
		"is nil": func() *orbit.Worker {
			w := orbit.NewWorker(client)
			orbit.Handle[any, any](w, "echo@1", nil)
			return w
		},
		"slots": func() *orbit.Worker {
			w := orbit.NewWorker(client, orbit.WithSlots(0))
			orbit.Handle(w, "echo@1", echo)
			return w
		},
	} {
		if err := setUp().Run(context.Background()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

func TestAWorkerPollsWhereStreamsDoNotGetThrough(t *testing.T) {
	s := newScripted(t)
	client, lines := s.client(t)
	w := orbit.NewWorker(client)
	orbit.Handle(w, "echo@1", echo)
	s.polls = append(s.polls, task("a", `{"n":9007199254740993}`))
	stop := run(t, w)
	eventually(t, "a report", func() bool { return len(s.taken()) == 1 })
	if got := s.taken()[0].GetComplete().Output.GetJson(); got != `{"n":9007199254740993}` {
		t.Errorf("the output is %s", got)
	}
	if status := w.Status(); status.Mode != orbit.ModePoll || status.State != orbit.WorkerConnected || !status.IsHealthy {
		t.Errorf("%+v", status)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	if lines.count("polling instead") != 1 || lines.count("level=WARN") != 1 || s.unregisters != 1 {
		t.Errorf("%s; %d unregisters", lines.text.String(), s.unregisters)
	}
}

func TestAnOutageIsToldOnceAndItsResultsAreDelivered(t *testing.T) {
	s := newScripted(t)
	release := make(chan struct{})
	s.onStream = func(attempt int, stream frames) error {
		if attempt == 1 {
			if err := stream.Send(&workerv1.StreamTasksResponse{Tasks: tasksOf(task("a", "1"))}); err != nil {
				return err
			}
		}
		return s.obey(stream)
	}
	client, lines := s.client(t)
	var states []orbit.WorkerState
	w := orbit.NewWorker(client, orbit.WithStateListener(func(status orbit.Status) { states = append(states, status.State) }))
	orbit.Handle(w, "echo@1", func(_ context.Context, in int) (int, error) {
		<-release
		return in + 1, nil
	})
	stop := run(t, w)
	eventually(t, "the task", func() bool { return w.Status().Running == 1 })
	s.stop()
	eventually(t, "the loss", func() bool { return w.Status().State == orbit.WorkerDisconnected })
	close(release)
	eventually(t, "the end of the handler", func() bool { return w.Status().Running == 0 })
	time.Sleep(300 * time.Millisecond)
	if status := w.Status(); status.Held != 1 {
		t.Errorf("held during the outage: %d", status.Held)
	}
	s.mu.Lock()
	s.serve()
	s.mu.Unlock()
	eventually(t, "the report", func() bool { return len(s.taken()) == 1 })
	if got := s.taken()[0].GetComplete().Output.GetJson(); got != "2" {
		t.Errorf("the output is %s", got)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	want := []orbit.WorkerState{orbit.WorkerConnecting, orbit.WorkerConnected, orbit.WorkerDisconnected, orbit.WorkerConnected, orbit.WorkerDraining, orbit.WorkerStopped}
	if len(states) != len(want) || lines.count("no connection") != 1 {
		t.Errorf("states %v; lost was said %d times", states, lines.count("no connection"))
	}
	if last := s.registered[len(s.registered)-1]; last.PreviousSessionId != "session" || last.Language != "go" {
		t.Errorf("registered again with %v", last)
	}
}

func TestASilentServerIsLeft(t *testing.T) {
	s := newScripted(t)
	s.onStream = func(attempt int, stream frames) error {
		if attempt > 1 {
			return s.obey(stream)
		}
		if err := stream.Send(&workerv1.StreamTasksResponse{Heartbeat: &workerv1.HeartbeatResponse{}}); err != nil {
			return err
		}
		<-stream.Context().Done()
		return nil
	}
	client, _ := s.client(t)
	w := orbit.NewWorker(client)
	orbit.Handle(w, "echo@1", echo)
	run(t, w)
	eventually(t, "a second stream", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.streams == 2
	})
	eventually(t, "health", func() bool { return w.Status().IsHealthy })
}

func TestAHandlerLearnsOfStopAndOfCancelAtTheDrainTime(t *testing.T) {
	s := newScripted(t)
	s.onStream = func(attempt int, stream frames) error {
		if attempt == 1 {
			if err := stream.Send(&workerv1.StreamTasksResponse{Tasks: tasksOf(task("listens", "1"), task("stubborn", "2"))}); err != nil {
				return err
			}
		}
		return s.obey(stream)
	}
	client, _ := s.client(t)
	w := orbit.NewWorker(client, orbit.WithDrainTimeout(200*time.Millisecond))
	var drained, cancelled atomic.Int64
	hang := make(chan struct{})
	defer close(hang)
	orbit.Handle(w, "echo@1", func(ctx context.Context, in int) (any, error) {
		if in == 2 {
			<-hang
		}
		<-orbit.Task(ctx).Draining()
		drained.Store(time.Now().UnixNano())
		<-ctx.Done()
		cancelled.Store(time.Now().UnixNano())
		if cause := context.Cause(ctx); !errors.Is(cause, orbit.ErrWorkerStopped) {
			t.Errorf("the cause is %v", cause)
		}
		return nil, ctx.Err()
	})
	stop := run(t, w)
	eventually(t, "two tasks", func() bool { return w.Status().Running == 2 })
	began := time.Now()
	if err := stop(); err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took > 5500*time.Millisecond {
		t.Errorf("stopping took %s", took)
	}
	if between := time.Duration(cancelled.Load() - drained.Load()); between < 150*time.Millisecond || between > 2*time.Second {
		t.Errorf("%s between drain and cancel", between)
	}
	released := map[string]bool{}
	for _, report := range s.taken() {
		released[report.TaskToken] = report.GetRelease() != nil
	}
	if !released["listens"] || !released["stubborn"] {
		t.Errorf("released: %v", released)
	}
}

func TestTasksThatAreNotWantedAreStoppedAndGivenBack(t *testing.T) {
	s := newScripted(t)
	s.onStream = func(_ int, stream frames) error {
		if err := stream.Send(&workerv1.StreamTasksResponse{Tasks: tasksOf(task("a", "1"))}); err != nil {
			return err
		}
		if err := stream.Send(&workerv1.StreamTasksResponse{Heartbeat: &workerv1.HeartbeatResponse{Stop: []string{"a"}}}); err != nil {
			return err
		}
		return s.obey(stream)
	}
	client, _ := s.client(t)
	w := orbit.NewWorker(client)
	orbit.Handle(w, "echo@1", func(ctx context.Context, _ int) (any, error) {
		<-ctx.Done()
		return nil, context.Cause(ctx)
	})
	run(t, w)
	eventually(t, "a release", func() bool { return len(s.taken()) == 1 && s.taken()[0].GetRelease() != nil })
}

func TestAReportThatIsRefusedForGoodBecomesAFailure(t *testing.T) {
	s := newScripted(t)
	s.onStream = func(_ int, stream frames) error {
		if err := stream.Send(&workerv1.StreamTasksResponse{Tasks: tasksOf(task("a", "1"))}); err != nil {
			return err
		}
		for refusals := 0; ; {
			frame, err := stream.Recv()
			if err != nil {
				return err
			}
			for _, report := range frame.Reports {
				s.took(report)
				result := &workerv1.ReportResult{TaskToken: report.TaskToken, Outcome: &workerv1.ReportOutcome{Accepted: true}}
				switch refusals {
				case 0:
					result = &workerv1.ReportResult{TaskToken: report.TaskToken, Error: &workerv1.ReportError{Reason: "STORE_UNAVAILABLE", Retryable: true}}
				case 1:
					result = &workerv1.ReportResult{TaskToken: report.TaskToken, Error: &workerv1.ReportError{Reason: "PAYLOAD_TOO_LARGE", Message: "no"}}
				}
				refusals++
				if err := stream.Send(&workerv1.StreamTasksResponse{Results: []*workerv1.ReportResult{result}}); err != nil {
					return err
				}
			}
		}
	}
	client, _ := s.client(t)
	w := orbit.NewWorker(client)
	orbit.Handle(w, "echo@1", echo)
	run(t, w)
	eventually(t, "three reports", func() bool { return len(s.taken()) == 3 })
	reports := s.taken()
	if reports[0].GetComplete() == nil || reports[1].GetComplete() == nil {
		t.Errorf("a refusal that passes does not repeat the report: %v", reports)
	}
	if fail := reports[2].GetFail(); fail.GetFailure().GetCode() != "PAYLOAD_TOO_LARGE" || fail.GetRetryable() {
		t.Errorf("the failure is %v", fail)
	}
	eventually(t, "nothing held", func() bool { return w.Status().Held == 0 })
}

func TestInterceptorsWrapHandlersInOrderAndSeePanics(t *testing.T) {
	s := newScripted(t)
	s.polls = tasksOf(task("a", "1"))
	client, _ := s.client(t)
	var order []string
	note := func(name string) orbit.Interceptor {
		return func(next orbit.TaskHandler) orbit.TaskHandler {
			return func(ctx context.Context, input json.RawMessage) (json.RawMessage, error) {
				order = append(order, name+" before "+orbit.Task(ctx).IdempotencyKey())
				_, err := next(ctx, input)
				var failed *orbit.RetryableError
				if errors.As(err, &failed) {
					order = append(order, name+" after "+failed.Code)
				}
				return json.RawMessage(`"saved"`), nil
			}
		}
	}
	w := orbit.NewWorker(client, orbit.WithMode(orbit.ModePoll), orbit.WithInterceptors(note("outer"), note("inner")))
	orbit.Handle(w, "echo@1", func(context.Context, int) (int, error) { panic("oh no") })
	run(t, w)
	eventually(t, "a report", func() bool { return len(s.taken()) == 1 })
	if got := strings.Join(order, ", "); got != "outer before key-a, inner before key-a, inner after PANIC" {
		t.Error(got)
	}
	if got := s.taken()[0].GetComplete().GetOutput().GetJson(); got != `"saved"` {
		t.Error(got)
	}
}

func TestAHandlerThatEndsItsGoroutineFailsItsAttempt(t *testing.T) {
	s := newScripted(t)
	s.onStream = func(_ int, stream frames) error {
		if err := stream.Send(&workerv1.StreamTasksResponse{Tasks: tasksOf(task("a", "1"))}); err != nil {
			return err
		}
		return s.obey(stream)
	}
	client, _ := s.client(t)
	w := orbit.NewWorker(client)
	orbit.Handle(w, "echo@1", func(context.Context, any) (any, error) {
		runtime.Goexit()
		return nil, nil
	})
	run(t, w)
	eventually(t, "a report", func() bool { return len(s.taken()) == 1 })
	if fail := s.taken()[0].GetFail(); fail.GetFailure().GetCode() != orbit.CodePanic || !fail.GetRetryable() {
		t.Errorf("%v", fail)
	}
}

func TestARegistrationThatIsRefusedAsSuchEndsTheWorker(t *testing.T) {
	s := newScripted(t)
	client, _ := s.client(t)
	w := orbit.NewWorker(client)
	orbit.Handle(w, "echo@1", echo)
	s.server.Stop()
	refusing := grpc.NewServer(grpc.UnaryInterceptor(func(context.Context, any, *grpc.UnaryServerInfo, grpc.UnaryHandler) (any, error) {
		return nil, status.Error(codes.InvalidArgument, "contracts[0] is no contract")
	}))
	workerv1.RegisterWorkerServiceServer(refusing, s)
	s.mu.Lock()
	s.listener, s.server = newListener(), refusing
	listener := s.listener
	s.mu.Unlock()
	go func() { _ = refusing.Serve(listener) }()
	err := w.Run(context.Background())
	if !errors.Is(err, orbit.ErrInvalidArgument) || !strings.Contains(err.Error(), "contracts[0]") {
		t.Error(err)
	}
}

func TestTheHealthHandlerSpeaksForTheWorker(t *testing.T) {
	s := newScripted(t)
	client, _ := s.client(t)
	w := orbit.NewWorker(client, orbit.WithMode(orbit.ModePoll))
	orbit.Handle(w, "echo@1", echo)
	code := func() int {
		response := httptest.NewRecorder()
		w.HealthHandler().ServeHTTP(response, httptest.NewRequest("GET", "/", nil))
		return response.Code
	}
	if code() != 503 {
		t.Error("a worker that does not run is healthy")
	}
	stop := run(t, w)
	eventually(t, "health", func() bool { return code() == 200 })
	if err := stop(); err != nil || code() != 503 {
		t.Errorf("after the stop: %d, %v", code(), err)
	}
}
