// Package orbit is the Go SDK of Orbit, a durable workflow service: a [Client] for programs that start executions and
// look after them, and a [Worker] for those that do the tasks of their steps.
//
//	client, err := orbit.NewClient() // ORBIT_ADDRESS, ORBIT_API_KEY, …, or http://localhost:7070
//	if err != nil {
//		return err
//	}
//	defer client.Close()
//
//	worker := orbit.NewWorker(client)
//	orbit.Handle(worker, "payments.charge@1", func(ctx context.Context, in Charge) (Receipt, error) {
//		return bank.Charge(ctx, orbit.Task(ctx).IdempotencyKey(), in)
//	})
//	return worker.Run(ctx) // until ctx ends; then it drains
//
// # What a handler must know
//
// A handler may run twice for one unit of work: a worker can die after the work and before its report. Each time
// [TaskContext.IdempotencyKey] is the same; what must happen once is recorded under it. Its context ends when the server
// no longer wants the task, when the task's timeout passes, and when a worker that stops has waited long enough;
// [context.Cause] tells which ([ErrTaskStopped], [ErrTaskTimeout], [ErrWorkerStopped]).
//
// # Values
//
// Inputs and outputs are JSON, encoded and decoded by encoding/json; numbers in an `any` arrive as [json.Number], so no
// digit is lost, and [json.RawMessage] passes text through as it is.
//
// # Where else to look
//
//   - Package orbittest has what tests need: a real server, one in memory, and a way to run a single handler.
//   - Module orbit.example/sdk/go/orbitotel adds OpenTelemetry traces and metrics.
//   - The packages under gen are the generated stubs, for whatever this package does not wrap; [Client.Admin] gives the
//     raw service over the client's connection.
package orbit

// Version is the version of this SDK, by semver.
const Version = "0.1.0"
