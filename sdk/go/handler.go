package orbit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
)

// A TaskHandler does a task: JSON text in, JSON text out. [Handle] makes one of a function with types; an [Interceptor]
// wraps one.
type TaskHandler func(ctx context.Context, input json.RawMessage) (json.RawMessage, error)

// An Interceptor wraps each handler of a worker, for example to measure it, to log, or to decrypt payloads. [Task] gives
// the task in its context. It sees a panic of the handler as a [RetryableError] with [CodePanic].
type Interceptor func(next TaskHandler) TaskHandler

// contractPattern is what the server takes as a contract, roughly: it says so itself if it disagrees.
var contractPattern = regexp.MustCompile(`^[^@\s]+@[^@\s]+$`)

// Handle has a worker do the tasks of a contract name@version with a function. The input is decoded into In and the
// result encoded from Out, by encoding/json; use [json.RawMessage] or any for inputs of any form, and any with nil for
// handlers that have nothing to say.
//
// A wrong or repeated contract is an error of [Worker.Run]. Handle panics once the worker runs.
func Handle[In, Out any](w *Worker, contract string, handler func(ctx context.Context, input In) (Out, error)) {
	w.register(contract, handler == nil, Typed(handler))
}

// Typed makes a [TaskHandler] of a function with types. An input that does not fit is a [PermanentError] with
// [CodeInputInvalid], an output without a JSON form one with [CodeOutputUnencodable], and a panic a [RetryableError] with
// [CodePanic]. [Handle] uses it; tests may.
func Typed[In, Out any](handler func(ctx context.Context, input In) (Out, error)) TaskHandler {
	return func(ctx context.Context, input json.RawMessage) (output json.RawMessage, err error) {
		// Here, so that interceptors see an error, like any other.
		defer recoverInto(&err)
		var in In
		if err := decodeText(input, &in); err != nil {
			return nil, &PermanentError{Code: CodeInputInvalid, Err: fmt.Errorf("the input does not fit %T: %w", in, err)}
		}
		out, err := handler(ctx, in)
		if err != nil {
			return nil, err
		}
		output, err = encodeText(out)
		if err != nil {
			return nil, &PermanentError{Code: CodeOutputUnencodable, Err: fmt.Errorf("the output has no JSON form: %w", err)}
		}
		return output, nil
	}
}

// recoverInto turns a panic into an error. It must be deferred itself.
func recoverInto(err *error) {
	if value := recover(); value != nil {
		*err = panicked(value)
	}
}

// guarded recovers from panics of interceptors, too.
func guarded(handler TaskHandler) TaskHandler {
	return func(ctx context.Context, input json.RawMessage) (output json.RawMessage, err error) {
		defer recoverInto(&err)
		return handler(ctx, input)
	}
}

// chain wraps a handler, the first interceptor outermost.
func chain(handler TaskHandler, interceptors []Interceptor) TaskHandler {
	for i := len(interceptors) - 1; i >= 0; i-- {
		handler = interceptors[i](handler)
	}
	return guarded(handler)
}

// register keeps a handler until the worker runs.
func (w *Worker) register(contract string, missing bool, handler TaskHandler) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.state != "" {
		panic("orbit: Handle after Run: the server already knows what this worker can do")
	}
	switch {
	case missing:
		w.faults = append(w.faults, fmt.Errorf("orbit: the handler of %q is nil", contract))
	case !contractPattern.MatchString(contract):
		w.faults = append(w.faults, fmt.Errorf("orbit: %q is no contract; want name@version", contract))
	case w.handlers[contract] != nil:
		w.faults = append(w.faults, fmt.Errorf("orbit: the contract %q has two handlers", contract))
	default:
		w.handlers[contract] = handler
	}
}

// fault gives what is wrong with the worker as it was set up.
func (w *Worker) fault() error {
	if len(w.handlers) == 0 && len(w.faults) == 0 {
		return errors.New("orbit: the worker has no handler; call Handle before Run")
	}
	return errors.Join(w.faults...)
}
