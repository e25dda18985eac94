package main

import (
	"context"

	orbit "orbit.example/sdk/go"
)

// batching are the arguments of the commands about batches.
type batching struct {
	ID             string   `json:"id"`
	Action         string   `json:"action"`
	Filter         string   `json:"filter"`
	Reason         string   `json:"reason"`
	MaxExecutions  int64    `json:"max_executions"`
	DryRun         bool     `json:"dry_run"`
	RequestID      string   `json:"request_id"`
	TimeoutSeconds *float64 `json:"timeout_seconds"`
}

// batchOps are the commands about batches.
func (d *driver) batchOps() map[string]operation {
	with := func(do func(context.Context, *orbit.Client, batching) (*orbit.Batch, error)) operation {
		return func(ctx context.Context, c command) (object, error) {
			client, err := d.theClient()
			if err != nil {
				return nil, err
			}
			args := read[batching](c)
			ctx, cancel := within(ctx, args.TimeoutSeconds)
			defer cancel()
			batch, err := do(ctx, client, args)
			if err != nil {
				return nil, err
			}
			return object{
				"id": batch.ID, "action": batch.Action, "filter": batch.Filter, "state": batch.State, "expected": batch.Expected,
				"done": batch.Done, "skipped": batch.Skipped, "failed": batch.Failed, "ended": batch.IsEnded(),
			}, nil
		}
	}
	return map[string]operation{
		"batch.create": with(func(ctx context.Context, client *orbit.Client, b batching) (*orbit.Batch, error) {
			var options []orbit.CallOption
			if b.RequestID != "" {
				options = append(options, orbit.WithRequestID(b.RequestID))
			}
			more := orbit.BatchOptions{Reason: b.Reason, MaxExecutions: b.MaxExecutions, DryRun: b.DryRun}
			return client.CreateBatch(ctx, orbit.BatchAction(b.Action), b.Filter, more, options...)
		}),
		"batch.get": with(func(ctx context.Context, client *orbit.Client, b batching) (*orbit.Batch, error) {
			return client.Batch(ctx, b.ID)
		}),
		"batch.cancel": with(func(ctx context.Context, client *orbit.Client, b batching) (*orbit.Batch, error) {
			return client.CancelBatch(ctx, b.ID)
		}),
		"batch.wait": with(func(ctx context.Context, client *orbit.Client, b batching) (*orbit.Batch, error) {
			return client.WaitBatch(ctx, b.ID)
		}),
		"batch.list": d.listBatches,
	}
}

func (d *driver) listBatches(ctx context.Context, _ command) (object, error) {
	client, err := d.theClient()
	if err != nil {
		return nil, err
	}
	ids := []string{}
	for batch, err := range client.Batches(ctx) {
		if err != nil {
			return nil, err
		}
		ids = append(ids, batch.ID)
	}
	return object{"ids": ids}, nil
}
