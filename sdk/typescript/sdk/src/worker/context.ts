/** One delivery of a task as its handler sees it. */

import type { Task as TaskMessage } from "@orbit/api/orbit/workflow/v1/task_pb.js";
import { TaskCancelledError } from "../errors.js";
import { printJson } from "../json.js";
import { withFields, type Logger } from "../logger.js";
import { decodeOptional } from "../payload.js";
import type { TaskContext } from "../task.js";
import { dateOf } from "../time.js";

/** What a handler has said since the last heartbeat. */
export interface Beat {
  /** Progress as JSON text; `undefined` if there is nothing new. */
  readonly progress: string | undefined;
  /** Whether the handler itself asked for this beat. */
  readonly beat: boolean;
}

/** The context of a delivery. What few handlers look at is made when it is looked at: most tasks are short. */
export class DeliveryContext implements TaskContext {
  #controller: AbortController | undefined;
  #reason: TaskCancelledError | undefined;
  #log: Logger | undefined;
  #progress: string | undefined;
  #beat = false;

  constructor(
    readonly message: TaskMessage,
    readonly drainSignal: AbortSignal,
    private readonly logger: Logger,
  ) {}

  get executionId() {
    return this.message.executionId;
  }
  get executionUid() {
    return this.message.executionUid;
  }
  get run() {
    return this.message.run;
  }
  get workflow() {
    return this.message.workflow;
  }
  get version() {
    return this.message.version;
  }
  get step() {
    return this.message.step;
  }
  get unit() {
    return this.message.unit;
  }
  get contract() {
    return this.message.contract;
  }
  get queue() {
    return this.message.queue;
  }
  get attempt() {
    return this.message.attempt;
  }
  get delivery() {
    return this.message.delivery;
  }
  get redelivery() {
    return this.message.redelivery;
  }
  get idempotencyKey() {
    return this.message.idempotencyKey;
  }
  get scheduleTime() {
    return dateOf(this.message.scheduleTime);
  }
  get deadline() {
    return dateOf(this.message.expireTime);
  }
  get traceParent() {
    return this.message.traceParent;
  }
  get lastProgress() {
    return decodeOptional(this.message.progress);
  }
  get cancelled() {
    return this.#reason !== undefined;
  }
  get draining() {
    return this.drainSignal.aborted;
  }

  get signal(): AbortSignal {
    if (this.#controller === undefined) {
      this.#controller = new AbortController();
      if (this.#reason !== undefined) {
        this.#controller.abort(this.#reason);
      }
    }
    return this.#controller.signal;
  }

  get log(): Logger {
    this.#log ??= withFields(this.logger, {
      contract: this.contract,
      execution_id: this.executionId,
      step: this.step,
      attempt: this.attempt,
      delivery: this.delivery,
    });
    return this.#log;
  }

  heartbeat(progress?: unknown): void {
    if (this.#reason !== undefined) {
      throw this.#reason;
    }
    if (progress !== undefined) {
      this.#progress = printJson(progress);
    }
    this.#beat = true;
  }

  /** Asks the handler to stop. The first reason stays. */
  cancel(why: string): void {
    if (this.#reason === undefined) {
      this.#reason = new TaskCancelledError(why);
      this.#controller?.abort(this.#reason);
    }
  }

  /** Takes what is to go with the next heartbeat. */
  takeBeat(): Beat {
    const taken = { progress: this.#progress, beat: this.#beat };
    this.#progress = undefined;
    this.#beat = false;
    return taken;
  }
}

/** A task for a log record. */
export function taskFields(message: TaskMessage): Record<string, unknown> {
  return {
    contract: message.contract,
    execution_id: message.executionId,
    step: message.step,
    attempt: message.attempt,
    delivery: message.delivery,
  };
}
