/** One handler as if dispatched: through JSON, schemas, middleware and the rules for errors, without a server. */

import { randomUUID } from "node:crypto";
import { create } from "@bufbuild/protobuf";
import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import { TaskSchema } from "@orbit/api/orbit/workflow/v1/task_pb.js";
import { failureOf } from "../execution.js";
import { loggerOf, type Logger } from "../logger.js";
import { decodePayload, encodePayload } from "../payload.js";
import type { Middleware, Task, TaskContext } from "../task.js";
import { millisecondsOf } from "../time.js";
import { DeliveryContext } from "../worker/context.js";
import { runTask } from "../worker/run.js";

/** What the task is told about itself; everything has a default. */
export interface RunHandlerOptions
  extends Partial<
    Pick<
      TaskContext,
      | "executionId"
      | "run"
      | "workflow"
      | "version"
      | "step"
      | "queue"
      | "attempt"
      | "delivery"
      | "redelivery"
      | "idempotencyKey"
      | "deadline"
      | "traceParent"
      | "lastProgress"
    >
  > {
  /** Cancels the task when it is aborted. */
  readonly signal?: AbortSignal;
  /** What the handler sees as `drainSignal`. */
  readonly drainSignal?: AbortSignal;
  /** What stands around the handler, the first one outermost. Default: nothing. */
  readonly middleware?: readonly Middleware[];
  /** Default: nothing is written. */
  readonly logger?: Logger;
}

/** What a worker would have reported. */
export type HandlerOutcome<Output> = {
  /** All progress that the handler told. */
  readonly progress: readonly unknown[];
} & (
  | { readonly kind: "succeeded"; readonly output: Output }
  | {
      readonly kind: "failed";
      readonly code: string;
      readonly message: string;
      /** Whether another attempt may follow. */
      readonly retryable: boolean;
      readonly retryAfterMs: number | undefined;
      readonly details: unknown;
    }
  /** The task was given back, since it was cancelled. */
  | { readonly kind: "released" }
);

/** Runs a task's handler once and tells what a worker would have reported. It never throws what the handler throws. */
export async function runHandler<Input, Output>(
  task: Task<Input, Output>,
  input: unknown,
  options: RunHandlerOptions = {},
): Promise<HandlerOutcome<Output>> {
  const { deadline, lastProgress, signal, drainSignal, middleware, logger, ...told } = options;
  const message = create(TaskSchema, {
    taskToken: randomUUID(),
    contract: task.contract,
    input: encodePayload(input),
    executionId: "test",
    executionUid: randomUUID(),
    run: 1,
    workflow: "test",
    version: "1.0.0",
    step: "test",
    attempt: 1,
    delivery: 1,
    idempotencyKey: randomUUID().replaceAll("-", ""),
    queue: "default",
    ...told,
    unit: told.step ?? "test",
    ...(deadline !== undefined && { expireTime: timestampFromDate(deadline) }),
    ...(lastProgress !== undefined && { progress: encodePayload(lastProgress) }),
  });
  const context = new RecordingContext(
    message,
    drainSignal ?? new AbortController().signal,
    logger ?? loggerOf(() => undefined),
  );
  const cancel = () => {
    context.cancel("the test cancelled the task");
  };
  if (signal?.aborted === true) {
    cancel();
  }
  signal?.addEventListener("abort", cancel, { once: true });
  const { kind } = await runTask(task, context, middleware ?? []);
  signal?.removeEventListener("abort", cancel);
  const { progress } = context;
  switch (kind.case) {
    case "complete":
      return { kind: "succeeded", output: decodePayload(kind.value.output) as Output, progress };
    case "fail": {
      const { failure, retryable, retryAfter } = kind.value;
      const { code, message, details } = failureOf(failure) ?? { code: "", message: "", details: undefined };
      const retryAfterMs = retryAfter === undefined ? undefined : millisecondsOf(retryAfter);
      return { kind: "failed", code, message, retryable: retryable ?? true, retryAfterMs, details, progress };
    }
    case "release":
    case undefined:
      return { kind: "released", progress };
  }
}

/** Keeps all progress, where a worker sends the newest. */
class RecordingContext extends DeliveryContext {
  readonly progress: unknown[] = [];

  override heartbeat(progress?: unknown): void {
    super.heartbeat(progress);
    if (progress !== undefined) {
      this.progress.push(progress);
    }
  }
}
