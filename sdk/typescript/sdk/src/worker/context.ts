/** One delivery of a task as its handler sees it. */

import type { Task as TaskMessage } from "@orbit/api/orbit/workflow/v1/task_pb.js";
import { TaskCancelledError } from "../errors.js";
import { isStorable, printJson } from "../json.js";
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
  // What went with a heartbeat that is not answered yet.
  #unanswered: Beat | undefined;

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
      this.#progress = printProgress(progress);
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
    this.#unanswered = { progress: taken.progress ?? this.#unanswered?.progress, beat: taken.beat };
    this.#progress = undefined;
    this.#beat = false;
    return taken;
  }

  /** The server has what went with heartbeats. */
  beatAnswered(): void {
    this.#unanswered = undefined;
  }

  /** Whether it has is unknown, so that it goes with the next heartbeat again, unless there is newer progress. */
  beatLost(): void {
    this.#progress ??= this.#unanswered?.progress;
    this.#beat ||= this.#unanswered?.beat ?? false;
    this.#unanswered = undefined;
  }
}

/** Largest progress that the server takes, in bytes of JSON text. */
const PROGRESS_BYTES_MAX = 64 * 1024;

/** A heartbeat that the server refuses would be refused again and again, so what it does not take is the caller's mistake here. */
function printProgress(progress: unknown): string {
  const text = printJson(progress);
  if (Buffer.byteLength(text) > PROGRESS_BYTES_MAX) {
    throw new RangeError(`progress has more than ${String(PROGRESS_BYTES_MAX)} bytes of JSON`);
  }
  if (!isStorable(text)) {
    throw new TypeError("progress has U+0000 or a lone surrogate in a string, which no store keeps");
  }
  return text;
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
