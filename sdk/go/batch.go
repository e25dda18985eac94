package orbit

import (
	"context"
	"errors"
	"iter"
	"time"

	"google.golang.org/grpc/codes"

	adminv1 "orbit.example/sdk/go/gen/orbit/admin/v1"
)

// BatchAction is what a batch does with each execution. Bear values that you do not know.
type BatchAction string

const (
	// BatchCancel cancels, as [ExecutionHandle.Cancel].
	BatchCancel BatchAction = "cancel"
	// BatchTerminate terminates, as [ExecutionHandle.Terminate].
	BatchTerminate BatchAction = "terminate"
	// BatchRetry runs FAILED and TIMED_OUT ones again, as [ExecutionHandle.Retry]; others are skipped.
	BatchRetry BatchAction = "retry"
	// BatchDelete deletes closed ones, as [ExecutionHandle.Delete]; open ones are skipped.
	BatchDelete BatchAction = "delete"
)

// BatchState is where a batch is in its life. Bear values that you do not know.
type BatchState string

const (
	// BatchRunning: it is worked off, or waits for its turn.
	BatchRunning BatchState = "RUNNING"
	// BatchSucceeded: it has reached all executions, or as many as it may.
	BatchSucceeded BatchState = "SUCCEEDED"
	// BatchCancelled: it was cancelled; what it had done stays done.
	BatchCancelled BatchState = "CANCELLED"
)

// BatchOptions say more about a batch.
type BatchOptions struct {
	// Reason for people, at most 1,024 characters; only with [BatchCancel] and [BatchTerminate].
	Reason string
	// MaxExecutions is the most that it reaches. Default: no limit.
	MaxExecutions int64
	// DryRun only counts: the batch has Expected and no id, and nothing is stored.
	DryRun bool
}

// A Batch is one action on all executions that a filter names, worked off in the background by the server, whatever happens
// to it. Each execution is acted on once.
type Batch struct {
	// ID, made by the server; empty for a dry run.
	ID string
	// Action is what it does with each execution; empty for one that this SDK does not know.
	Action BatchAction
	// Filter says which executions.
	Filter string
	// State is where it is in its life.
	State BatchState
	// Expected is how many executions matched when it was made, as far as they were counted.
	Expected int64
	// IsExpectedComplete tells whether that is all: counting stops at 100,000 and after half a second.
	IsExpectedComplete bool
	// Done counts executions with which the action was done, Skipped those that went another way before their turn came, and
	// Failed those with which it failed.
	Done, Skipped, Failed int64
	// Failures are the first that failed, at most 10.
	Failures []BatchFailure
	// CreateTime is when it was made, and EndTime when it ended; zero while it runs.
	CreateTime, EndTime time.Time

	message *adminv1.Batch
}

// A BatchFailure is an execution with which a batch failed.
type BatchFailure struct {
	// ID and UID of the execution.
	ID, UID string
	// Message says why, for people.
	Message string
}

// IsEnded tells whether the batch has ended.
func (b *Batch) IsEnded() bool { return !b.EndTime.IsZero() }

// Proto gives the message as it came from the server.
func (b *Batch) Proto() *adminv1.Batch { return b.message }

// CreateBatch has the server do one action with all executions that match a filter, as in [ListOptions], when their turn
// comes, and were started before this call. It does not wait for that: see [Client.WaitBatch]. A filter is required; all
// executions are start_time > "1970-01-01T00:00:00Z".
func (c *Client) CreateBatch(
	ctx context.Context, action BatchAction, filter string, batch BatchOptions, options ...CallOption,
) (*Batch, error) {
	request := &adminv1.CreateBatchRequest{
		Filter: filter, MaxExecutions: batch.MaxExecutions, DryRun: batch.DryRun, RequestId: requestIDOf(options),
	}
	if batch.Reason != "" && action != BatchCancel && action != BatchTerminate {
		return nil, invalid("reason", "is only of a cancel or a terminate")
	}
	switch action {
	case BatchCancel:
		request.Action = &adminv1.CreateBatchRequest_Cancel{Cancel: &adminv1.CancelAction{Reason: batch.Reason}}
	case BatchTerminate:
		request.Action = &adminv1.CreateBatchRequest_Terminate{Terminate: &adminv1.TerminateAction{Reason: batch.Reason}}
	case BatchRetry:
		request.Action = &adminv1.CreateBatchRequest_Retry{Retry: &adminv1.RetryAction{}}
	case BatchDelete:
		request.Action = &adminv1.CreateBatchRequest_Delete{Delete: &adminv1.DeleteAction{}}
	default:
		return nil, invalid("action", "is none that there is")
	}
	response, err := invoke(ctx, c, request, c.admin.CreateBatch)
	return newBatch(response.GetBatch()), err
}

// Batch reads a batch.
func (c *Client) Batch(ctx context.Context, id string) (*Batch, error) {
	response, err := invoke(ctx, c, &adminv1.GetBatchRequest{Id: id}, c.admin.GetBatch)
	return newBatch(response.GetBatch()), err
}

// Batches goes through the batches, the newest first; those that ended are kept as long as closed executions are.
func (c *Client) Batches(ctx context.Context) iter.Seq2[*Batch, error] {
	return pages(func(token string) ([]*Batch, string, error) {
		response, err := invoke(ctx, c, &adminv1.ListBatchesRequest{PageToken: token}, c.admin.ListBatches)
		batches := make([]*Batch, 0, len(response.GetBatches()))
		for _, batch := range response.GetBatches() {
			batches = append(batches, newBatch(batch))
		}
		return batches, response.GetNextPageToken(), err
	})
}

// CancelBatch ends a batch; what it has done stays done. One that has ended is not changed.
func (c *Client) CancelBatch(ctx context.Context, id string) (*Batch, error) {
	response, err := invoke(ctx, c, &adminv1.CancelBatchRequest{Id: id}, c.admin.CancelBatch)
	return newBatch(response.GetBatch()), err
}

// WaitBatch asks again and again, at least every two seconds, until the batch has ended, through outages of the server,
// until the context ends, and returns it.
func (c *Client) WaitBatch(ctx context.Context, id string) (*Batch, error) {
	pauses := backoffPauses{first: callPauseFirst, longest: callPauseLongest}
	for {
		call, cancel := context.WithTimeout(ctx, c.config.callTimeout)
		batch, err := c.Batch(call, id)
		cancel()
		if err == nil && batch.IsEnded() {
			return batch, nil
		}
		last := &Error{Code: codes.DeadlineExceeded, Message: "the batch has not ended"}
		if err != nil {
			last = ErrorFrom(err)
			// A call of its own that ran out met an outage.
			if ctx.Err() == nil && last.Code != codes.DeadlineExceeded {
				return nil, last
			}
		}
		if err := pause(ctx, pauses.next()); errors.Is(err, context.Canceled) {
			return nil, &Error{Code: codes.Canceled, Message: "the wait was cancelled", cause: err}
		} else if err != nil {
			return nil, gaveUp(last)
		}
	}
}

func newBatch(message *adminv1.Batch) *Batch {
	if message == nil {
		return nil
	}
	batch := &Batch{
		ID: message.Id, Filter: message.Filter, State: BatchState(shortName(message.State.String())),
		Expected: message.ExpectedCount, IsExpectedComplete: message.ExpectedComplete,
		Done: message.DoneCount, Skipped: message.SkippedCount, Failed: message.FailedCount,
		CreateTime: timeOf(message.CreateTime), EndTime: timeOf(message.EndTime), message: message,
	}
	switch message.Action.(type) {
	case *adminv1.Batch_Cancel:
		batch.Action = BatchCancel
	case *adminv1.Batch_Terminate:
		batch.Action = BatchTerminate
	case *adminv1.Batch_Retry:
		batch.Action = BatchRetry
	case *adminv1.Batch_Delete:
		batch.Action = BatchDelete
	}
	for _, failure := range message.Failures {
		batch.Failures = append(batch.Failures, BatchFailure{ID: failure.Id, UID: failure.Uid, Message: failure.Message})
	}
	return batch
}
