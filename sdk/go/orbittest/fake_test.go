package orbittest_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	orbit "orbit.example/sdk/go"
	"orbit.example/sdk/go/orbittest"
)

type order struct {
	Item  string `json:"item"`
	Cents int64  `json:"cents"`
}

type receipt struct {
	Number string `json:"number"`
}

func charge(ctx context.Context, in order) (receipt, error) {
	task := orbit.Task(ctx)
	if in.Cents > 1000 {
		return receipt{}, orbit.Permanent("CARD_DECLINED", errors.New("too much"))
	}
	if task.Attempt() == 1 {
		if err := task.Heartbeat("asked the bank"); err != nil {
			return receipt{}, err
		}
		return receipt{}, errors.New("the bank is away")
	}
	var progress string
	if _, err := task.LastProgress(&progress); err != nil {
		return receipt{}, err
	}
	return receipt{Number: fmt.Sprintf("%s-%d after %q", in.Item, in.Cents, progress)}, nil
}

// shop starts a server in memory with one workflow and its worker.
func shop(t *testing.T, options ...orbit.WorkerOption) *orbit.Client {
	fake := orbittest.NewFake(t)
	fake.Workflow("order", func(run *orbittest.Run) (any, error) {
		var in order
		if err := run.Input(&in); err != nil {
			return nil, err
		}
		if in.Item == "slow" {
			if err := run.Signal("approved", nil); err != nil {
				return nil, err
			}
		}
		var out receipt
		err := run.Task("charge", "payments.charge@1", in, &out)
		return out, err
	})
	client := fake.Client(t)
	worker := orbit.NewWorker(client, options...)
	orbit.Handle(worker, "payments.charge@1", charge)
	orbittest.RunWorker(t, worker)
	return client
}

func TestAWorkflowInMemoryRunsByStreamAndByPolls(t *testing.T) {
	for _, mode := range []orbit.Mode{orbit.ModeStream, orbit.ModePoll} {
		t.Run(string(mode), func(t *testing.T) {
			client := shop(t, orbit.WithMode(mode))
			ctx := context.Background()
			handle, err := client.Start(ctx, "order", order{Item: "desk", Cents: 900}, orbit.WithID("o-1"))
			if err != nil {
				t.Fatal(err)
			}
			got, err := orbit.Result[receipt](ctx, handle)
			if err != nil || got.Number != `desk-900 after "asked the bank"` {
				t.Errorf("%+v, %v", got, err)
			}
			again, err := client.Start(ctx, "order", order{Item: "desk", Cents: 900}, orbit.WithID("o-1"))
			if err != nil || again.Created() || again.UID() != handle.UID() {
				t.Errorf("the same start again: %+v, %v", again, err)
			}
			_, err = client.Start(ctx, "order", order{Item: "lamp"}, orbit.WithID("o-1"))
			if !errors.Is(err, orbit.ErrAlreadyExists) {
				t.Errorf("another start: %v", err)
			}
		})
	}
}

func TestAFailureInMemoryIsAnExecutionError(t *testing.T) {
	client := shop(t)
	handle, err := client.Start(context.Background(), "order", order{Cents: 5000})
	if err != nil {
		t.Fatal(err)
	}
	err = handle.Result(context.Background(), nil)
	var failed *orbit.ExecutionError
	if !errors.As(err, &failed) || !errors.Is(err, orbit.ErrExecutionFailed) || failed.Failure().Code != "CARD_DECLINED" {
		t.Errorf("%v", err)
	}
}

func TestSignalsCancelsEventsAndListsWorkInMemory(t *testing.T) {
	client, ctx := shop(t), context.Background()
	first, err := client.Start(ctx, "order", order{Item: "slow", Cents: 1})
	if err != nil {
		t.Fatal(err)
	}
	second, err := client.Start(ctx, "order", order{Item: "slow", Cents: 2})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := first.Signal(ctx, "approved", nil); err != nil {
		t.Fatal(err)
	}
	if err := second.Cancel(ctx, "changed my mind"); err != nil {
		t.Fatal(err)
	}
	if err := second.Result(ctx, nil); !errors.Is(err, orbit.ErrExecutionCancelled) {
		t.Errorf("%v", err)
	}
	types := ""
	for event, err := range first.Events(ctx, 0) {
		if err != nil {
			t.Fatal(err)
		}
		types += event.Type + " "
	}
	if types != "execution_created signal_received execution_succeeded " {
		t.Error(types)
	}
	ids := ""
	for execution, err := range client.List(ctx, orbit.ListOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		ids += execution.ID + " " + string(execution.State) + " "
	}
	if want := second.ID() + " CANCELLED " + first.ID() + " SUCCEEDED "; ids != want {
		t.Errorf("%q; want %q", ids, want)
	}
	if _, err := first.Signal(ctx, "approved", nil); !errors.Is(err, orbit.ErrFailedPrecondition) {
		t.Errorf("a signal after the close: %v", err)
	}
	if _, err := client.Execution("nobody").Describe(ctx); !errors.Is(err, orbit.ErrNotFound) {
		t.Errorf("%v", err)
	}
}

func TestAHandlerRunsAsIfDispatched(t *testing.T) {
	var beats []string
	_, err := orbittest.RunHandler(context.Background(), charge, order{Item: "desk"}, orbittest.Dispatch{
		OnHeartbeat: func(progress json.RawMessage) { beats = append(beats, string(progress)) }})
	if err == nil || fmt.Sprint(beats) != `["asked the bank"]` {
		t.Errorf("%v, beats %v", err, beats)
	}
	got, err := orbittest.RunHandler(context.Background(), charge, order{Item: "desk", Cents: 9},
		orbittest.Dispatch{Attempt: 2, LastProgress: "tried"})
	if err != nil || got.Number != `desk-9 after "tried"` {
		t.Errorf("%+v, %v", got, err)
	}
	_, err = orbittest.RunHandler(context.Background(), charge, map[string]any{"cents": "much"}, orbittest.Dispatch{})
	var permanent *orbit.PermanentError
	if !errors.As(err, &permanent) || permanent.Code != orbit.CodeInputInvalid {
		t.Errorf("%v", err)
	}
	wait := func(ctx context.Context, _ any) (any, error) {
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}
	if _, err = orbittest.RunHandler(context.Background(), wait, nil, orbittest.Dispatch{Timeout: time.Millisecond}); !errors.Is(err, orbit.ErrTaskTimeout) {
		t.Errorf("%v", err)
	}
}
