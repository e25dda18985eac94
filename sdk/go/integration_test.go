package orbit_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	orbit "orbit.example/sdk/go"
	"orbit.example/sdk/go/orbittest"
)

// The tests in this file need the server program: ORBIT_BINARY, or one that a build left in target/.

const greetings = `
name: greet
version: 1.0.0
input: {type: object, required: [name], properties: {name: {type: string}, n: {type: integer, default: 9007199254740993}}}
tasks: {greet@1: {}}
signals: {go: {}}
queries: {who: "${ input.name }"}
timeout: 1h
steps:
  - {id: hold, when: "${ input.name == 'wait' }", await: {signal: go, timeout: 1h}}
  - {id: greet, needs: [hold], task: greet@1, input: "${ input }", timeout: 30s}
result: ${ steps.greet.output }
`

// server starts a real server with the workflow above.
func server(t *testing.T) (*orbittest.Server, *orbit.Client) {
	t.Helper()
	if _, err := orbittest.FindBinary(); err != nil {
		t.Skip(err)
	}
	s := orbittest.StartServer(t, orbittest.WithArguments("--session-timeout", "3s", "--log", "warn"))
	client := s.Client(t)
	deployed, err := client.Deploy(context.Background(), orbit.Source{FileName: "greet.yaml", Text: greetings})
	if err != nil {
		t.Fatal(err)
	}
	if len(deployed) != 1 || !deployed[0].Created || deployed[0].Name != "greet" {
		t.Fatalf("%+v", deployed)
	}
	return s, client
}

type person struct {
	Name string `json:"name"`
	N    int64  `json:"n"`
}

func greet(_ context.Context, in person) (string, error) {
	return fmt.Sprintf("hello %s %d", in.Name, in.N), nil
}

func TestARealServerRunsAWorkflow(t *testing.T) {
	_, client := server(t)
	worker := orbit.NewWorker(client)
	orbit.Handle(worker, "greet@1", greet)
	orbittest.RunWorker(t, worker)
	ctx := context.Background()

	handle, err := client.Start(ctx, "greet", person{Name: "wait", N: 1 << 60}, orbit.WithID("g-1"), orbit.WithLabels(map[string]string{"k": "v"}))
	if err != nil {
		t.Fatal(err)
	}
	var who string
	if err := handle.Query(ctx, "who", &who); err != nil || who != "wait" {
		t.Errorf("%q, %v", who, err)
	}
	if err := handle.Pause(ctx, "lunch"); err != nil {
		t.Error(err)
	}
	if paused, err := handle.Describe(ctx); err != nil || paused.State != orbit.StatePaused || paused.Reason != "lunch" {
		t.Errorf("%+v, %v", paused, err)
	}
	if err := handle.Resume(ctx); err != nil {
		t.Error(err)
	}
	first, err := handle.Signal(ctx, "go", nil, orbit.WithRequestID("once"))
	if err != nil {
		t.Fatal(err)
	}
	if second, err := handle.Signal(ctx, "go", nil, orbit.WithRequestID("once")); err != nil || second != first {
		t.Errorf("the same request is event %d and %d, %v", first, second, err)
	}
	if got, err := orbit.Result[string](ctx, handle); err != nil || got != "hello wait 1152921504606846976" {
		t.Errorf("%q, %v", got, err)
	}
	execution, err := handle.Describe(ctx)
	if err != nil || execution.State != orbit.StateSucceeded || execution.Labels["k"] != "v" || len(execution.Steps) != 2 ||
		execution.Steps[1].State != "SUCCEEDED" || execution.CloseTime.Before(execution.StartTime) {
		t.Errorf("%+v, %v", execution, err)
	}
	var last *orbit.Event
	for event, err := range handle.Events(ctx, 3) {
		if err != nil {
			t.Fatal(err)
		}
		if last == nil && event.Number != 4 {
			t.Errorf("begins with event %d", event.Number)
		}
		last = event
	}
	if last.Type != "execution_succeeded" || last.Number != execution.LastEvent {
		t.Errorf("the last event is %+v", last)
	}
	rerun, err := handle.Rerun(ctx, "greet", orbit.RerunOptions{ID: "g-2"})
	if err != nil {
		t.Fatal(err)
	}
	if err := rerun.Result(ctx, nil); err != nil {
		t.Error(err)
	}
	if err := handle.Delete(ctx); err != nil {
		t.Error(err)
	}
	if _, err := handle.Describe(ctx); !errors.Is(err, orbit.ErrNotFound) {
		t.Errorf("after the deletion: %v", err)
	}
	for worker, err := range client.Workers(ctx) {
		if err != nil || worker.Language != "go" || !strings.HasPrefix(worker.Sdk, "orbit-go/") {
			t.Errorf("%+v, %v", worker, err)
		}
	}
	if info, err := client.ServerInfo(ctx); err != nil || info.Store != "sqlite" {
		t.Errorf("%v, %v", info, err)
	}
}

func TestARealServersRefusalsSayWhatIsWrong(t *testing.T) {
	_, client := server(t)
	ctx := context.Background()
	_, err := client.Deploy(ctx, orbit.Source{Text: "name: x\nversion: 1.0.0\nsteps:\n  - {id: a}\n  - {id: a, task: t@1}\n"})
	var refused *orbit.Error
	if !errors.As(err, &refused) || refused.Reason != "DEFINITION_INVALID" || len(refused.Violations) < 2 {
		t.Errorf("%+v", err)
	}
	_, err = client.Start(ctx, "greet", map[string]any{"name": 7})
	if !errors.As(err, &refused) || !errors.Is(err, orbit.ErrInvalidArgument) || len(refused.Violations) == 0 {
		t.Errorf("%+v", err)
	}
	if _, err = client.Start(ctx, "nothing", nil); !errors.Is(err, orbit.ErrNotFound) {
		t.Errorf("%v", err)
	}
}

func TestWorkersAndCallersOutlastAServerThatIsKilled(t *testing.T) {
	s, client := server(t)
	var runs atomic.Int64
	worker := orbit.NewWorker(client)
	began, goOn := make(chan struct{}, 100), make(chan struct{})
	orbit.Handle(worker, "greet@1", func(ctx context.Context, in person) (string, error) {
		runs.Add(1)
		began <- struct{}{}
		<-goOn
		return greet(ctx, in)
	})
	orbittest.RunWorker(t, worker)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	handle, err := client.Start(ctx, "greet", person{Name: "a", N: 1})
	if err != nil {
		t.Fatal(err)
	}
	<-began
	s.Kill()
	close(goOn)
	result := make(chan error, 1)
	go func() { result <- handle.Result(ctx, nil) }()
	eventually(t, "the end of the handler", func() bool { return worker.Status().Running == 0 })
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	if err := <-result; err != nil {
		t.Error(err)
	}
	if runs.Load() != 1 {
		t.Errorf("the handler ran %d times: its result was not delivered", runs.Load())
	}
	// And the worker goes on.
	next, err := client.Start(ctx, "greet", person{Name: "b"})
	if err != nil {
		t.Fatal(err)
	}
	if err := next.Result(ctx, nil); err != nil {
		t.Error(err)
	}
}
