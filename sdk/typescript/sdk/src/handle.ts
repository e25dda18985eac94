/** One execution, by its id: its result, its signals, its end. */

import { randomUUID } from "node:crypto";
import { create } from "@bufbuild/protobuf";
import { FailureSchema, Execution_State, type Execution } from "@orbit/api/orbit/workflow/v1/execution_pb.js";
import type { Explanation } from "@orbit/api/orbit/admin/v1/explanation_pb.js";
import { call, pauseAfter, wait, type CallLimits } from "./call.js";
import { Backoff, sleep } from "./clock.js";
import type { Connection } from "./connection.js";
import {
  DeadlineExceededError,
  ExecutionCancelledError,
  ExecutionFailedError,
  ExecutionTerminatedError,
  ExecutionTimedOutError,
  OrbitError,
  orbitError,
} from "./errors.js";
import {
  description,
  event,
  failureOf,
  isClosed,
  summary,
  type ExecutionDescription,
  type ExecutionEvent,
  type ExecutionSummary,
} from "./execution.js";
import { decodePayload, encodePayload } from "./payload.js";
import { validate, type StandardSchema } from "./schema.js";
import { dateOf, durationOf, timestampFromDate } from "./time.js";

/** What every write takes. */
export interface WriteOptions extends CallLimits {
  /** Makes the call safe to repeat for 24 hours: 1 to 64 characters. Default: a new one for each call. */
  readonly requestId?: string | undefined;
}

/** What makes a signal. */
export interface SignalOptions extends WriteOptions {
  /** When it loses its meaning if no step has taken it. Default: never. */
  readonly expireTime?: Date | undefined;
}

/** What ends or holds an execution. */
export interface ReasonOptions extends WriteOptions {
  /** Why, for people. At most 1,024 characters. */
  readonly reason?: string | undefined;
}

/** How an execution is repeated. */
export interface RerunOptions extends WriteOptions {
  /** Id of the new execution. Default: the server makes one. */
  readonly id?: string | undefined;
  /** Input of the new execution. Default: that of the one to repeat. */
  readonly input?: unknown;
  /** Added to the labels of the one to repeat; these win. */
  readonly labels?: Readonly<Record<string, string>> | undefined;
}

/** Where to begin watching. */
export interface EventOptions extends CallLimits {
  /** Number of the last event that the caller has. Default 0: from the first. */
  readonly after?: number | undefined;
}

/** How often events after a close are looked through for an output that was too large for the answer. */
const TAIL_EVENTS = 16;

/** One execution. `Output` is the type of its result, as far as the caller knows it. */
export class ExecutionHandle<Output = unknown> {
  constructor(
    private readonly connection: Connection,
    /** Id of the execution. */
    readonly id: string,
    /** Uid of the execution, if it is known; calls then reach this one only, and not another one of its id. */
    readonly uid?: string,
    private readonly output?: StandardSchema,
  ) {}

  /**
   * Waits for the end and gives the output. Outages do not end the wait, only `timeoutMs` does (default: never).
   *
   * @throws ExecutionFailedError, ExecutionCancelledError, ExecutionTimedOutError or ExecutionTerminatedError if it did not
   * end well; DeadlineExceededError if the limit passed; NotFoundError.
   */
  async result(limits: CallLimits = {}): Promise<Output> {
    const execution = await this.#closed(limits);
    switch (execution.state) {
      case Execution_State.FAILED:
        throw new ExecutionFailedError(this.id, failureOf(execution.failure ?? create(FailureSchema)));
      case Execution_State.CANCELLED:
        throw new ExecutionCancelledError(`execution ${this.id} was cancelled${because(execution)}`, this.id);
      case Execution_State.TIMED_OUT:
        throw new ExecutionTimedOutError(`execution ${this.id} timed out`, this.id);
      case Execution_State.TERMINATED:
        throw new ExecutionTerminatedError(`execution ${this.id} was terminated${because(execution)}`, this.id);
      default: {
        const output = execution.payloadsOmitted
          ? await this.#outputOfEvents(execution, limits)
          : decodePayload(execution.output);
        return (this.output === undefined ? output : await validate(this.output, output)) as Output;
      }
    }
  }

  /** Waits for the end, whatever it is. As `result` otherwise. */
  async wait(limits: CallLimits = {}): Promise<ExecutionSummary> {
    return summary(await this.#closed(limits));
  }

  /** Reads the execution with its steps. */
  async describe(limits: CallLimits = {}): Promise<ExecutionDescription> {
    const request = this.#name();
    const { execution } = await call((options) => this.connection.admin.getExecution(request, options), limits);
    return description(present(execution));
  }

  /** Tells why the execution does not move. */
  async explain(limits: CallLimits = {}): Promise<Explanation> {
    const request = this.#name();
    const { explanation } = await call((options) => this.connection.admin.explainExecution(request, options), limits);
    return present(explanation);
  }

  /** Gives the execution a signal, durably; returns the number of its event. */
  async signal(name: string, payload?: unknown, options: SignalOptions = {}): Promise<number> {
    const request = {
      ...this.#name(),
      name,
      payload: encodePayload(payload),
      requestId: options.requestId ?? randomUUID(),
      ...(options.expireTime && { expireTime: timestampFromDate(options.expireTime) }),
    };
    const answer = await call((each) => this.connection.admin.signalExecution(request, each), options);
    return Number(answer.eventNumber);
  }

  /** Evaluates a query of the definition on the execution's committed state. */
  async query<Result = unknown>(query: string, limits: CallLimits = {}): Promise<Result> {
    const request = { ...this.#name(), query };
    const { result } = await call((options) => this.connection.admin.queryExecution(request, options), limits);
    return decodePayload(result) as Result;
  }

  /** Cancels: nothing new starts, tasks that are out are asked to stop, compensations run; it ends CANCELLED. */
  async cancel(options: ReasonOptions = {}): Promise<void> {
    const request = this.#write(options);
    await call((each) => this.connection.admin.cancelExecution(request, each), options);
  }

  /** Ends it at once, without waiting for anything. */
  async terminate(options: ReasonOptions = {}): Promise<void> {
    const request = this.#write(options);
    await call((each) => this.connection.admin.terminateExecution(request, each), options);
  }

  /** Holds it: nothing begins until it is resumed. */
  async pause(options: ReasonOptions = {}): Promise<void> {
    const request = this.#write(options);
    await call((each) => this.connection.admin.pauseExecution(request, each), options);
  }

  /** Lets a paused one go on. */
  async resume(options: WriteOptions = {}): Promise<void> {
    const request = this.#write(options);
    await call((each) => this.connection.admin.resumeExecution(request, each), options);
  }

  /** Runs a FAILED or TIMED_OUT one again from where it failed. */
  async retry(options: WriteOptions = {}): Promise<void> {
    const request = this.#write(options);
    await call((each) => this.connection.admin.retryExecution(request, each), options);
  }

  /**
   * Starts a new execution that repeats this one from a step on, with the results of steps that do not depend on it. This one is
   * not changed.
   *
   * @throws InvalidArgumentError if there is no such step, or the input does not fit; AlreadyExistsError if the id is taken.
   */
  async rerun(fromStep: string, options: RerunOptions = {}): Promise<StartedExecution<Output>> {
    const request = {
      ...this.#name(),
      fromStep,
      newId: options.id ?? "",
      labels: { ...options.labels },
      requestId: options.requestId ?? randomUUID(),
      ...(options.input !== undefined && { input: encodePayload(options.input) }),
    };
    const { id, uid, version, created, startTime } = await call(
      (each) => this.connection.admin.rerunExecution(request, each),
      options,
    );
    return new StartedExecution<Output>(this.connection, id, uid, this.output, version, created, dateOf(startTime));
  }

  /** Deletes a closed one: its id is free then. */
  async delete(options: WriteOptions = {}): Promise<void> {
    const request = this.#write(options);
    await call((each) => this.connection.admin.deleteExecution(request, each), options);
  }

  /**
   * Watches the events as they are committed, until the execution's last one. A stream that breaks is opened again after the
   * last event that came, so none is missed and none comes twice.
   *
   * @throws DeadlineExceededError once `timeoutMs` is up (default: never); NotFoundError; CancelledError.
   */
  async *events(options: EventOptions = {}): AsyncGenerator<ExecutionEvent, void, undefined> {
    const limit = options.timeoutMs === undefined ? undefined : AbortSignal.timeout(options.timeoutMs);
    const done = new AbortController();
    const signals = [options.signal, limit, done.signal].filter((signal) => signal !== undefined);
    const signal = AbortSignal.any(signals);
    const backoff = new Backoff(100, 2_000);
    let after = options.after ?? 0;
    try {
      for (;;) {
        try {
          const request = { ...this.#name(), afterNumber: BigInt(after) };
          for await (const answer of this.connection.admin.watchEvents(request, { signal })) {
            if (answer.event !== undefined) {
              backoff.reset();
              after = Number(answer.event.number);
              yield event(answer.event);
            }
          }
          return;
        } catch (thrown) {
          if (limit?.aborted === true) {
            throw new DeadlineExceededError("the time limit passed", { code: "DEADLINE_EXCEEDED" });
          }
          const error = orbitError(thrown, signal);
          const pause = pauseAfter(error, backoff);
          if (pause === undefined) {
            throw error;
          }
          await sleep(pause, signal);
        }
      }
    } finally {
      // A caller that has seen enough leaves the loop early.
      done.abort();
    }
  }

  async #closed(limits: CallLimits): Promise<Execution> {
    const answer = await wait(
      (holdMs, options) =>
        this.connection.admin.waitExecution({ ...this.#name(), waitDuration: durationOf(holdMs) }, options),
      ({ execution }) => isClosed(execution),
      limits,
    );
    return present(answer.execution);
  }

  /** Finds an output that would not have fitted into the answer, with the input, among the last events. */
  async #outputOfEvents(execution: Execution, limits: CallLimits): Promise<unknown> {
    const after = Math.max(0, Number(execution.lastEventNumber) - TAIL_EVENTS);
    for await (const { kind } of this.events({ ...limits, after })) {
      if (kind.case === "executionSucceeded") {
        return decodePayload(kind.value.output);
      }
    }
    throw new OrbitError(`the output of execution ${this.id} is not among its last events`);
  }

  #name(): { id: string; uid: string } {
    return { id: this.id, uid: this.uid ?? "" };
  }

  #write(options: ReasonOptions): { id: string; uid: string; reason: string; requestId: string } {
    return { ...this.#name(), reason: options.reason ?? "", requestId: options.requestId ?? randomUUID() };
  }
}

/** An execution that was started, or found. */
export class StartedExecution<Output = unknown> extends ExecutionHandle<Output> {
  constructor(
    connection: Connection,
    id: string,
    override readonly uid: string,
    output: StandardSchema | undefined,
    /** Version that it runs. */
    readonly version: string,
    /** Whether this call made it; false if it was there with the same workflow and input. */
    readonly created: boolean,
    /** When it was started. */
    readonly startTime: Date | undefined,
  ) {
    super(connection, id, uid, output);
  }
}

function because({ reason }: Execution): string {
  return reason === "" ? "" : `: ${reason}`;
}

function present<T>(value: T | undefined): T {
  if (value === undefined) {
    throw new OrbitError("the server's answer is empty");
  }
  return value;
}
