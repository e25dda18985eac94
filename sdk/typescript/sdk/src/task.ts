/** Tasks: a contract with the function that does it, and what the function knows beside its input. */

import type { Logger } from "./logger.js";
import type { SchemaInput, SchemaOutput, StandardSchema } from "./schema.js";

/** What a handler knows about its task. */
export interface TaskContext {
  /** Id of the execution. */
  readonly executionId: string;
  /** Uid of the execution. */
  readonly executionUid: string;
  /** Run of the execution, from 1. */
  readonly run: number;
  /** Name of the workflow. */
  readonly workflow: string;
  /** Version of the definition. */
  readonly version: string;
  /** Id of the step. */
  readonly step: string;
  /** Unit: the step's id, with the item's number for a step that goes through a list. */
  readonly unit: string;
  /** Contract `name@version`. */
  readonly contract: string;
  /** Queue that the task waited in. */
  readonly queue: string;
  /** Attempt, from 1; counted by the retry policy. */
  readonly attempt: number;
  /** Delivery of all attempts together, from 1. */
  readonly delivery: number;
  /** Whether an earlier delivery of this attempt may have done the work already. */
  readonly redelivery: boolean;
  /** The same for every attempt and delivery of the unit, for ever: give it to whatever must happen once. */
  readonly idempotencyKey: string;
  /** When the attempt began to wait for a worker. */
  readonly scheduleTime: Date | undefined;
  /** When this delivery times out; `undefined` without a timeout. */
  readonly deadline: Date | undefined;
  /** W3C `traceparent` of the call that started the execution; empty if it had none. */
  readonly traceParent: string;
  /** Newest progress of the attempt or delivery before this one; `undefined` if there was none. */
  readonly lastProgress: unknown;
  /** Writes records that name execution, step and attempt. */
  readonly log: Logger;
  /**
   * Aborted once the result is not wanted any more, with a `TaskCancelledError` as its reason: the execution was cancelled,
   * the attempt timed out, or the worker's drain time is over. A handler that then throws gives its task back.
   */
  readonly signal: AbortSignal;
  /** Aborted once the worker begins to stop: finish soon, or reach a good place to stop. */
  readonly drainSignal: AbortSignal;
  /** Whether `signal` is aborted. */
  readonly cancelled: boolean;
  /** Whether `drainSignal` is aborted. */
  readonly draining: boolean;
  /**
   * Says that the handler itself is alive, for steps with a `heartbeat_timeout`, and how far it is. Sent with the worker's
   * next heartbeat, so that calling it often costs nothing; the newest progress counts, at most 64 KiB of JSON.
   *
   * @throws TaskCancelledError if the task was cancelled; TypeError or RangeError for progress that the server does not take.
   */
  heartbeat(progress?: unknown): void;
}

/** Does a task: takes its input, gives its output. */
export type Handler<Input = unknown, Output = unknown> = (
  input: Input,
  context: TaskContext,
) => Output | PromiseLike<Output>;

/**
 * Stands around every handler, the first one outermost: for metrics, traces, what all tasks need. It calls `next` once, with
 * the input that it got or another one, and gives on what `next` gives. What it throws fails the attempt as if the handler
 * had thrown it.
 */
export type Middleware = (
  input: unknown,
  context: TaskContext,
  next: (input: unknown) => Promise<unknown>,
) => Promise<unknown>;

/** Schemas of a task: any of zod, valibot, arktype, or what else keeps to Standard Schema. */
export interface TaskSchemas<Input extends StandardSchema, Output extends StandardSchema> {
  /** Judges and types the input. One that does not fit fails the task as `INPUT_INVALID`, and no handler runs. */
  readonly input?: Input;
  /** Judges and types the output. One that does not fit fails the task as `OUTPUT_INVALID`. */
  readonly output?: Output;
}

/** A contract with the function that does it. */
export interface Task<Input = unknown, Output = unknown> {
  /** Contract `name@version`. */
  readonly contract: string;
  /** The function that does it. */
  readonly handler: Handler<Input, Output>;
  /** Judges the input before the handler runs; `undefined` for none. */
  readonly input: StandardSchema | undefined;
  /** Judges the output before it is reported; `undefined` for none. */
  readonly output: StandardSchema | undefined;
}

/** A task whose types do not matter. */
// A handler takes its own input only, so no narrower type holds handlers of all kinds.
// eslint-disable-next-line @typescript-eslint/no-explicit-any
export type AnyTask = Task<any, any>;

/** Makes a task that schemas type and judge. */
export function task<Input extends StandardSchema = StandardSchema, Output extends StandardSchema = StandardSchema>(
  contract: string,
  schemas: TaskSchemas<Input, Output>,
  handler: Handler<SchemaOutput<Input>, SchemaInput<Output>>,
): Task<SchemaOutput<Input>, SchemaInput<Output>>;
/** Makes a task that plain types describe; nothing judges what comes, apart from the definition's own schemas. */
export function task<Input = unknown, Output = unknown>(
  contract: string,
  handler: Handler<Input, Output>,
): Task<Input, Output>;
export function task(
  contract: string,
  schemasOrHandler: TaskSchemas<StandardSchema, StandardSchema> | Handler,
  handler?: Handler,
): Task {
  if (typeof schemasOrHandler === "function") {
    return { contract, handler: schemasOrHandler, input: undefined, output: undefined };
  }
  if (handler === undefined) {
    throw new TypeError(`task ${contract} has no handler`);
  }
  return { contract, handler, input: schemasOrHandler.input, output: schemasOrHandler.output };
}
