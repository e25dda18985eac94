/** Batches: one action on all executions that a filter names, worked off in the background by the server. */

import { randomUUID } from "node:crypto";
import type { MessageInitShape } from "@bufbuild/protobuf";
import type { CreateBatchRequestSchema } from "@orbit/api/orbit/admin/v1/admin_service_pb.js";
import { Batch_State, type Batch as BatchMessage } from "@orbit/api/orbit/admin/v1/batch_pb.js";
import { call, CALL_TIMEOUT_MS, pauseFor, type CallLimits } from "./call.js";
import { Backoff, monotonic } from "./clock.js";
import type { Connection } from "./connection.js";
import { DeadlineExceededError, InvalidArgumentError, OrbitError, UnavailableError } from "./errors.js";
import { nameOf } from "./execution.js";
import type { WriteOptions } from "./handle.js";
import { dateOf } from "./time.js";

/**
 * What is done with each execution. `retry` skips those that are not FAILED or TIMED_OUT, `delete` those that are open.
 */
export type BatchAction = "cancel" | "terminate" | "retry" | "delete";

/** What makes a batch. */
export interface BatchOptions extends WriteOptions {
  /** Which executions, as in `ListOptions`. All of them are `start_time > "1970-01-01T00:00:00Z"`. */
  readonly filter: string;
  /** Why, for people. At most 1,024 characters; only with `cancel` and `terminate`. */
  readonly reason?: string | undefined;
  /** Most executions that it reaches. Default: no limit. */
  readonly maxExecutions?: number | undefined;
  /** Whether only to count: the batch then has `expected` and no id, and nothing is stored. Default false. */
  readonly dryRun?: boolean | undefined;
}

/** An execution with which a batch failed. */
export interface BatchFailure {
  /** Id of the execution. */
  readonly id: string;
  /** Uid of the execution. */
  readonly uid: string;
  /** Why, for people. */
  readonly message: string;
}

/** A batch as it was when the server answered. */
export interface BatchDescription {
  /** Made by the server; empty for a dry run. */
  readonly id: string;
  /** `undefined` for one that this SDK does not know. */
  readonly action: BatchAction | undefined;
  /** Which executions. */
  readonly filter: string;
  /** `RUNNING`, `SUCCEEDED` or `CANCELLED`. Bear values that you do not know. */
  readonly state: string;
  /** How many executions matched when it was made, as far as they were counted. */
  readonly expected: number;
  /** Whether `expected` is all: counting stops at 100,000 and after half a second. */
  readonly expectedComplete: boolean;
  /** Executions with which the action was done. */
  readonly done: number;
  /** Executions that went another way before their turn came. */
  readonly skipped: number;
  /** Executions with which it failed. */
  readonly failed: number;
  /** The first that failed, at most 10. */
  readonly failures: readonly BatchFailure[];
  /** When it was made; `undefined` for a dry run. */
  readonly createTime: Date | undefined;
  /** `undefined` while it runs. */
  readonly endTime: Date | undefined;
  /** Whether it has ended. */
  readonly ended: boolean;
  /** The message itself. */
  readonly raw: BatchMessage;
}

/** Makes batches and looks after them: `client.batches`. */
export class Batches {
  constructor(private readonly connection: Connection) {}

  /**
   * Makes a batch and returns at once; the server works it off. Executions that are started after this call are left alone.
   *
   * @throws InvalidArgumentError for a filter that is none, or a reason where there can be none.
   */
  async create(action: BatchAction, options: BatchOptions): Promise<BatchDescription> {
    const { filter, reason, maxExecutions = 0, dryRun = false } = options;
    const request = {
      action: actionOf(action, reason),
      filter,
      maxExecutions: BigInt(maxExecutions),
      dryRun,
      requestId: options.requestId ?? randomUUID(),
    };
    const { batch } = await call((each) => this.connection.admin.createBatch(request, each), options);
    return described(batch);
  }

  /**
   * Reads a batch.
   *
   * @throws NotFoundError
   */
  async get(id: string, limits: CallLimits = {}): Promise<BatchDescription> {
    const { batch } = await call((each) => this.connection.admin.getBatch({ id }, each), limits);
    return described(batch);
  }

  /** Goes through the batches, the newest first; those that ended are kept as long as closed executions are. */
  async *list(
    options: CallLimits & { readonly pageSize?: number | undefined } = {},
  ): AsyncGenerator<BatchDescription, void, undefined> {
    let pageToken = "";
    do {
      const request = { pageSize: options.pageSize ?? 0, pageToken };
      const page = await call((each) => this.connection.admin.listBatches(request, each), options);
      yield* page.batches.map(described);
      pageToken = page.nextPageToken;
    } while (pageToken !== "");
  }

  /**
   * Ends a batch; what it has done stays done. One that has ended is not changed.
   *
   * @throws NotFoundError
   */
  async cancel(id: string, limits: CallLimits = {}): Promise<BatchDescription> {
    const { batch } = await call((each) => this.connection.admin.cancelBatch({ id }, each), limits);
    return described(batch);
  }

  /**
   * Asks again and again, at least every two seconds, until the batch has ended. Outages do not end the wait, only `timeoutMs`
   * does (default: never).
   *
   * @throws DeadlineExceededError if the limit passed; NotFoundError; CancelledError.
   */
  async wait(id: string, limits: CallLimits = {}): Promise<BatchDescription> {
    const end = monotonic() + (limits.timeoutMs ?? Number.POSITIVE_INFINITY);
    const backoff = new Backoff(100, 2_000);
    for (;;) {
      try {
        const timeoutMs = Math.max(1, Math.min(CALL_TIMEOUT_MS, end - monotonic()));
        const batch = await this.get(id, { ...limits, timeoutMs });
        if (batch.ended) {
          return batch;
        }
      } catch (error) {
        if (!(error instanceof UnavailableError || error instanceof DeadlineExceededError)) {
          throw error;
        }
      }
      const left = end - monotonic();
      if (left <= 0) {
        throw new DeadlineExceededError("the time limit passed", { code: "DEADLINE_EXCEEDED" });
      }
      await pauseFor(Math.min(backoff.next(), left), limits.signal);
    }
  }
}

function actionOf(
  action: BatchAction,
  reason: string | undefined,
): NonNullable<MessageInitShape<typeof CreateBatchRequestSchema>["action"]> {
  if (reason !== undefined && reason !== "" && action !== "cancel" && action !== "terminate") {
    const violations = [{ field: "reason", description: `is nothing that a ${action} has` }];
    throw new InvalidArgumentError(`a ${action} has no reason`, { code: "INVALID_ARGUMENT", violations });
  }
  switch (action) {
    case "cancel":
      return { case: action, value: { reason: reason ?? "" } };
    case "terminate":
      return { case: action, value: { reason: reason ?? "" } };
    case "retry":
      return { case: action, value: {} };
    case "delete":
      return { case: action, value: {} };
  }
}

function described(message: BatchMessage | undefined): BatchDescription {
  if (message === undefined) {
    throw new OrbitError("the server's answer is empty");
  }
  const endTime = dateOf(message.endTime);
  return {
    id: message.id,
    action: message.action.case,
    filter: message.filter,
    state: nameOf(Batch_State, message.state),
    expected: Number(message.expectedCount),
    expectedComplete: message.expectedComplete,
    done: Number(message.doneCount),
    skipped: Number(message.skippedCount),
    failed: Number(message.failedCount),
    failures: message.failures.map(({ id, uid, message: why }) => ({ id, uid, message: why })),
    createTime: dateOf(message.createTime),
    endTime,
    ended: endTime !== undefined,
    raw: message,
  };
}
