package orbit

import (
	"context"
	"errors"
	"io"
	"iter"
	"time"

	"google.golang.org/grpc/codes"

	adminv1 "orbit.example/sdk/go/gen/orbit/admin/v1"
	workflowv1 "orbit.example/sdk/go/gen/orbit/workflow/v1"
)

// An Event is a fact in an execution's history.
type Event struct {
	// Number, from 1 without gaps.
	Number int64
	// Type is the name of its field in the oneof of the message, as in step_succeeded. Bear values that you do not know.
	Type string
	// Time is when it was written.
	Time time.Time

	message *workflowv1.Event
}

// Proto gives the event itself; its Kind has what it tells.
func (e *Event) Proto() *workflowv1.Event { return e.message }

func newEvent(message *workflowv1.Event) *Event {
	e := &Event{Number: message.GetNumber(), Time: timeOf(message.GetTime()), message: message}
	reflected := message.ProtoReflect()
	if kinds := reflected.Descriptor().Oneofs().ByName("kind"); kinds != nil {
		if kind := reflected.WhichOneof(kinds); kind != nil {
			e.Type = string(kind.Name())
		}
	}
	return e
}

// Events follows the execution's history, from the event after a number on (0: from the first), as it is written, to its
// end: the iteration ends after the execution's last event. It goes on by itself where a connection broke, so it only
// yields an error, as its last pair, if it cannot: the context has ended, or there is no such execution.
func (h *ExecutionHandle) Events(ctx context.Context, after int64) iter.Seq2[*Event, error] {
	return func(yield func(*Event, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		pauses := backoffPauses{first: callPauseFirst, longest: callPauseLongest}
		for {
			before := after
			err := h.follow(ctx, &after, yield)
			if err == nil {
				return
			}
			failed := ErrorFrom(err)
			if !mayResume(ctx, failed) {
				yield(nil, failed)
				return
			}
			if after > before {
				pauses.reset()
			}
			if pause(ctx, max(pauses.next(), failed.RetryAfter)) != nil {
				yield(nil, ErrorFrom(ctx.Err()))
				return
			}
		}
	}
}

// follow yields events of one stream and keeps the number of the last; nil at the end, the consumer's or the execution's.
func (h *ExecutionHandle) follow(ctx context.Context, after *int64, yield func(*Event, error) bool) error {
	stream, err := h.client.admin.WatchEvents(withTrace(ctx), &adminv1.WatchEventsRequest{Id: h.id, Uid: h.uid, AfterNumber: *after})
	if err != nil {
		return err
	}
	for {
		response, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		event := newEvent(response.Event)
		*after = event.Number
		if !yield(event, nil) {
			return nil
		}
	}
}

// mayResume tells whether a stream that failed can be opened again: what has no reason of the server's is the
// connection's fault.
func mayResume(ctx context.Context, err *Error) bool {
	if ctx.Err() != nil {
		return false
	}
	switch err.Code {
	case codes.Unavailable, codes.Canceled:
		return true
	case codes.Internal, codes.Unknown, codes.DeadlineExceeded:
		return err.Reason == ""
	default:
		return false
	}
}
