package main

import (
	"context"
	"strings"
	"time"

	orbit "orbit.example/sdk/go"
)

// handleBy registers one of the handlers below for a contract.
func (d *driver) handleBy(w *orbit.Worker, contract, name string) {
	switch name {
	case "echo":
		add(d, w, contract, func(_ context.Context, in any) (any, error) { return in, nil })
	case "nothing":
		add(d, w, contract, func(context.Context, any) (any, error) { return nil, nil })
	case "sleep":
		add(d, w, contract, d.sleep)
	case "stubborn":
		add(d, w, contract, func(_ context.Context, in sleeping) (any, error) {
			time.Sleep(span(in.Seconds))
			return object{"slept": in.Seconds}, nil
		})
	case "gate":
		add(d, w, contract, d.waitAtGate)
	case "drain":
		add(d, w, contract, d.waitForDrain)
	case "fail":
		add(d, w, contract, fail)
	case "panic":
		add(d, w, contract, failByPanic)
	case "big":
		add(d, w, contract, func(_ context.Context, in struct{ Bytes int }) (any, error) {
			return object{"data": strings.Repeat("x", in.Bytes)}, nil
		})
	case "progress":
		add(d, w, contract, d.progress)
	case "context":
		add(d, w, contract, described)
	case "count":
		add(d, w, contract, func(ctx context.Context, _ any) (any, error) {
			key := orbit.Task(ctx).IdempotencyKey()
			times := d.count.add(key)
			if times == 1 {
				d.tell(object{"event": "effect", "idempotency_key": key})
			}
			return object{"times": times}, nil
		})
	case "log":
		add(d, w, contract, func(ctx context.Context, in struct{ Message string }) (any, error) {
			orbit.Task(ctx).Logger().Info(in.Message)
			return nil, nil
		})
	case "typed":
		add(d, w, contract, typed)
	case "unsayable":
		add(d, w, contract, func(context.Context, any) (any, error) { return make(chan int), nil })
	default:
		panic("no handler is called " + name)
	}
}

// add registers a handler that tells when it begins and ends.
func add[In, Out any](d *driver, w *orbit.Worker, contract string, handler func(context.Context, In) (Out, error)) {
	orbit.Handle(w, contract, func(ctx context.Context, in In) (Out, error) {
		d.tellTask(ctx, "begun")
		defer d.tellTask(ctx, "ended")
		return handler(ctx, in)
	})
}

func (d *driver) tellTask(ctx context.Context, what string) {
	task := orbit.Task(ctx)
	d.tell(object{
		"event": "task", "what": what, "contract": task.Contract(), "execution_id": task.ExecutionID(),
		"step": task.Step(), "attempt": task.Attempt(), "delivery": task.Delivery(),
		"redelivery": task.IsRedelivery(), "idempotency_key": task.IdempotencyKey(),
	})
}

// listen tells when a handler learns that its worker drains and that it should stop; call what it returns at the end.
func (d *driver) listen(ctx context.Context) (end func()) {
	ended, listened := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(listened)
		draining := orbit.Task(ctx).Draining()
		for {
			select {
			case <-draining:
				d.tellTask(ctx, "draining")
				draining = nil
				continue
			case <-ctx.Done():
			case <-ended:
				// It may have ended because of what it learned just now.
				if draining != nil && orbit.Task(ctx).IsDraining() {
					d.tellTask(ctx, "draining")
				}
			}
			if ctx.Err() != nil {
				d.tellTask(ctx, "cancelled")
			}
			return
		}
	}()
	return func() {
		close(ended)
		<-listened
	}
}

// waitFor waits for a channel or the context's end, and listens meanwhile.
func (d *driver) waitFor(ctx context.Context, done <-chan struct{}) error {
	defer d.listen(ctx)()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

type sleeping struct {
	Seconds float64 `json:"seconds"`
}

// timer gives a channel that is closed after so many seconds.
func timer(seconds float64) <-chan struct{} {
	done := make(chan struct{})
	time.AfterFunc(span(seconds), func() { close(done) })
	return done
}

func (d *driver) sleep(ctx context.Context, in sleeping) (any, error) {
	if err := d.waitFor(ctx, timer(in.Seconds)); err != nil {
		return nil, err
	}
	return object{"slept": in.Seconds}, nil
}

func (d *driver) waitAtGate(ctx context.Context, in struct{ Gate string }) (any, error) {
	if err := d.waitFor(ctx, d.gates.gate(in.Gate)); err != nil {
		return nil, err
	}
	return object{"gate": in.Gate}, nil
}

func (d *driver) waitForDrain(ctx context.Context, _ any) (any, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if err := d.waitFor(ctx, orbit.Task(ctx).Draining()); err != nil {
		return nil, err
	}
	return object{"drained": true}, nil
}

// failing is the input of the handlers that fail.
type failing struct {
	UntilAttempt      *int     `json:"until_attempt"`
	Retryable         bool     `json:"retryable"`
	Code              string   `json:"code"`
	Message           string   `json:"message"`
	Details           any      `json:"details"`
	RetryAfterSeconds *float64 `json:"retry_after_seconds"`
}

func (f failing) fails(attempt int) bool { return f.UntilAttempt == nil || attempt < *f.UntilAttempt }

func fail(ctx context.Context, in failing) (any, error) {
	attempt := orbit.Task(ctx).Attempt()
	if !in.fails(attempt) {
		return object{"attempt": attempt}, nil
	}
	if !in.Retryable {
		return nil, &orbit.PermanentError{Code: in.Code, Message: in.Message, Details: in.Details}
	}
	err := &orbit.RetryableError{Code: in.Code, Message: in.Message, Details: in.Details}
	if in.RetryAfterSeconds != nil {
		err.RetryAfter = span(*in.RetryAfterSeconds)
	}
	return nil, err
}

func failByPanic(ctx context.Context, in failing) (any, error) {
	attempt := orbit.Task(ctx).Attempt()
	if in.fails(attempt) {
		panic(in.Message)
	}
	return object{"attempt": attempt}, nil
}

func (d *driver) progress(ctx context.Context, in struct {
	Beats   int     `json:"beats"`
	Seconds float64 `json:"seconds"`
	Silent  bool    `json:"silent"`
	FailAt  *int    `json:"fail_at"`
}) (any, error) {
	task := orbit.Task(ctx)
	var last struct {
		Beat int `json:"beat"`
	}
	resumed, err := task.LastProgress(&last)
	if err != nil {
		return nil, err
	}
	var from any
	if resumed {
		from = last.Beat
	}
	for beat := last.Beat + 1; beat <= in.Beats; beat++ {
		if in.Silent {
			err = task.Beat()
		} else {
			err = task.Heartbeat(object{"beat": beat})
		}
		if err != nil {
			return nil, err
		}
		if err := d.waitFor(ctx, timer(in.Seconds)); err != nil {
			return nil, err
		}
		if task.Attempt() == 1 && in.FailAt != nil && beat == *in.FailAt {
			return nil, &orbit.RetryableError{Code: "INTERRUPTED"}
		}
	}
	return object{"resumed_from": from, "beats": in.Beats}, nil
}

func described(ctx context.Context, _ any) (any, error) {
	task := orbit.Task(ctx)
	var deadline any
	if at, bounded := task.Deadline(); bounded {
		deadline = time.Until(at).Seconds()
	}
	var progress any
	if _, err := task.LastProgress(&progress); err != nil {
		return nil, err
	}
	return object{
		"execution_id": task.ExecutionID(), "run": task.Run(), "workflow": task.Workflow(), "step": task.Step(),
		"contract": task.Contract(), "attempt": task.Attempt(), "delivery": task.Delivery(),
		"redelivery": task.IsRedelivery(), "idempotency_key": task.IdempotencyKey(), "deadline_seconds": deadline,
		"trace_parent": task.TraceParent(), "last_progress": progress, "cancelled": task.Cancelled(),
		"draining": task.IsDraining(),
	}, nil
}

// named and greeting are the types of the handler typed.
type named struct {
	Name  string `json:"name"`
	Count int64  `json:"count"`
}

type greeting struct {
	Text string `json:"text"`
}

func typed(_ context.Context, in named) (greeting, error) {
	return greeting{Text: in.Name + " x" + text(in.Count)}, nil
}
