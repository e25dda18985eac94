/**
 * The tasks that a worker holds: each from its receipt until its report was answered.
 *
 * Both connections (stream and poll) share this bookkeeping, and it outlives them: what was finished during an outage waits
 * here and is delivered when the outage ends.
 */

import { create } from "@bufbuild/protobuf";
import {
  HeldTaskSchema,
  HeartbeatRequestSchema,
  ReportOutcome_Reason,
  type HeartbeatRequest,
  type HeldTask,
  type Report,
  type ReportError,
  type ReportOutcome,
} from "@orbit/api/orbit/worker/v1/worker_service_pb.js";
import type { Task as TaskMessage } from "@orbit/api/orbit/workflow/v1/task_pb.js";
import { PermanentError } from "../errors.js";
import type { Logger } from "../logger.js";
import { payloadOfText } from "../payload.js";
import { millisecondsOf } from "../time.js";
import { taskFields, type DeliveryContext } from "./context.js";
import { failed, released } from "./run.js";

/** Reports for one frame or round, in bytes: far below every message limit, since one output may have 2 MiB. */
const BATCH_BYTES = 1024 * 1024;
/** What a report needs beside its payload. */
const REPORT_BYTES = 256;
/** Pause before a report is sent again if the server asks for none. */
const RESEND_MS = 100;

/** One task that is held. */
interface Held {
  readonly message: TaskMessage;
  /** The handler at work; `undefined` for a task that was given back unstarted. */
  context: DeliveryContext | undefined;
  /** Made once the handler has ended. */
  report: Report | undefined;
  /** Whether the report waits in the queue of those to send. */
  queued: boolean;
}

/** What starts the handler of a task; its promise never rejects. `undefined` gives the task back unstarted. */
export type Start = (message: TaskMessage) => { context: DeliveryContext; report: Promise<Report> } | undefined;

/** What a worker holds, at most `slots` tasks. */
export class Holdings {
  readonly #held = new Map<string, Held>();
  readonly #closing = new AbortController();
  #queue: Held[] = [];
  #running = 0;
  #changed = false;
  #wake: (() => void) | undefined;
  #watchers: (() => void)[] = [];
  // What became of tasks once no more were wanted.
  #reported = 0;
  #released = 0;
  #dropped = 0;

  constructor(
    private readonly slots: number,
    private readonly start: Start,
    private readonly log: Logger,
  ) {}

  /** Tasks that are held. */
  get size(): number {
    return this.#held.size;
  }

  /** Aborted once no more tasks are wanted: whatever comes nevertheless is given back unstarted. */
  get closing(): AbortSignal {
    return this.#closing.signal;
  }

  /** Handlers at work. */
  get running(): number {
    return this.#running;
  }

  /** The contracts of the handlers at work, each once. */
  contracts(): readonly string[] {
    const working = [...this.#held.values()].filter(({ context, report }) => context !== undefined && report === undefined);
    return [...new Set(working.map(({ message }) => message.contract))];
  }

  // --- What the connections ask -------------------------------------------------------------------------------------------

  /**
   * How many more tasks may come. A slot is free again once its report was answered, so this also bounds how many reports can
   * wait during an outage.
   */
  free(): number {
    return this.closing.aborted ? 0 : Math.max(0, this.slots - this.#held.size);
  }

  /** Takes tasks in and starts their handlers. Once no more are wanted, gives them back unstarted. */
  accept(messages: readonly TaskMessage[]): void {
    for (const message of messages) {
      if (this.#held.has(message.taskToken)) {
        continue;
      }
      const held: Held = { message, context: undefined, report: undefined, queued: false };
      this.#held.set(message.taskToken, held);
      const started = this.closing.aborted ? undefined : this.start(message);
      if (started === undefined) {
        this.#finish(held, released(message.taskToken));
        continue;
      }
      held.context = started.context;
      this.#running += 1;
      void started.report.then((report) => {
        this.#running -= 1;
        // After the drain time a task may have been given back although its handler went on.
        if (held.report === undefined) {
          this.#finish(held, report);
        }
      });
    }
  }

  /** Takes the reports that are to be sent now, at most a batch. */
  unsent(): Report[] {
    const reports: Report[] = [];
    let bytes = 0;
    let taken = 0;
    for (const held of this.#queue) {
      // A queued task may have been answered meanwhile, by the result of an earlier try.
      const report = this.#held.get(held.message.taskToken) === held ? held.report : undefined;
      const size = report === undefined ? 0 : sizeOf(report);
      if (reports.length > 0 && bytes + size > BATCH_BYTES) {
        break;
      }
      taken += 1;
      held.queued = false;
      if (report !== undefined) {
        bytes += size;
        reports.push(report);
      }
    }
    this.#queue = this.#queue.slice(taken);
    if (this.#queue.length > 0) {
      this.#change();
    }
    return reports;
  }

  /** Whether a task that is given back is among the reports to send. */
  givesBack(): boolean {
    return this.#queue.some(({ report }) => report?.kind.case === "release");
  }

  /** A heartbeat that lists every token that is held, with the progress since the last one. */
  heartbeat(sessionId: string): HeartbeatRequest {
    const held: HeldTask[] = [];
    for (const [taskToken, { context, report }] of this.#held) {
      const listed = create(HeldTaskSchema, { taskToken });
      if (context !== undefined && report === undefined) {
        const { progress, beat } = context.takeBeat();
        listed.beat = beat;
        if (progress !== undefined) {
          listed.progress = payloadOfText(progress);
        }
      }
      held.push(listed);
    }
    return create(HeartbeatRequestSchema, { sessionId, held });
  }

  /** The server has answered a heartbeat. */
  heartbeatAnswered(): void {
    for (const { context } of this.#held.values()) {
      context?.beatAnswered();
    }
  }

  /** Stops the handlers of tasks that the server does not want any more. */
  stop(tokens: readonly string[]): void {
    for (const token of tokens) {
      const context = this.#held.get(token)?.context;
      if (context !== undefined && !context.cancelled) {
        this.log.info("a task is not wanted any more; stopping it", taskFields(context.message));
        context.cancel("the server does not want the task's result any more");
      }
    }
  }

  /** The server took a report, or told why it changes nothing: the task is held no longer. */
  answered(token: string, outcome: ReportOutcome | undefined): void {
    const held = this.#remove(token);
    if (held?.report !== undefined && this.closing.aborted) {
      if (held.report.kind.case === "release") {
        this.#released += 1;
      } else {
        this.#reported += 1;
      }
    }
    if (held !== undefined && outcome?.accepted === false) {
      const reason = ReportOutcome_Reason[outcome.reason];
      this.log.info("a report changed nothing", { ...taskFields(held.message), reason });
    }
  }

  /** The server could not take a report: it is sent again, or replaced by one that can be taken. */
  refused(token: string, error: Pick<ReportError, "reason" | "message" | "retryable" | "retryAfter">): void {
    const held = this.#held.get(token);
    if (held?.report === undefined) {
      return;
    }
    const fields = { ...taskFields(held.message), reason: error.reason, error: error.message };
    if (error.retryable) {
      setTimeout(() => {
        this.#enqueue(held);
      }, Math.max(RESEND_MS, millisecondsOf(error.retryAfter)));
    } else if (held.report.kind.case === "complete") {
      // For example an output that is too large. Nobody else would tell the execution.
      this.log.error("a result was refused; failing its task instead", fields);
      const failure = new PermanentError(`the result was refused: ${error.message}`, { code: error.reason });
      held.report = failed(token, failure);
      this.#enqueue(held);
    } else {
      this.log.error("a report was refused and is dropped", fields);
      this.#dropped += this.closing.aborted ? 1 : 0;
      this.#remove(token);
    }
  }

  /** Whether reports and progress that are under way arrived is unknown: all are sent again, which does no harm. */
  connectionLost(): void {
    for (const held of this.#held.values()) {
      held.context?.beatLost();
      if (held.report !== undefined) {
        this.#enqueue(held);
      }
    }
  }

  /**
   * Waits until there may be something to send, at most so many milliseconds. What becomes ready in one turn of the event loop
   * is told once, so that it leaves in one frame.
   */
  async change(milliseconds: number, signal: AbortSignal): Promise<void> {
    if (!this.#changed && !signal.aborted) {
      await new Promise<void>((resolve) => {
        const wake = () => {
          clearTimeout(timer);
          signal.removeEventListener("abort", wake);
          this.#wake = undefined;
          resolve();
        };
        const timer = setTimeout(wake, Math.max(0, milliseconds));
        signal.addEventListener("abort", wake, { once: true });
        this.#wake = wake;
      });
    }
    await new Promise(setImmediate);
    this.#changed = false;
  }

  /** Waits until a task may come: until the signal is aborted once no more are wanted. */
  async room(signal: AbortSignal): Promise<number> {
    await this.#until(() => this.free() > 0, signal);
    return this.free();
  }

  // --- What the worker asks -----------------------------------------------------------------------------------------------

  /** From now on every task that still comes is given back unstarted. */
  takeNoMore(): void {
    this.#closing.abort();
    this.#change();
  }

  /** Asks every handler to stop. */
  cancelAll(why: string): void {
    for (const { context, report } of this.#held.values()) {
      if (report === undefined) {
        context?.cancel(why);
      }
    }
  }

  /** Gives back every task whose handler has not ended. */
  releaseAll(): void {
    for (const [token, held] of this.#held) {
      if (held.report === undefined) {
        this.log.warn("a handler has not ended in time; its task is given back", taskFields(held.message));
        this.#finish(held, released(token));
      }
    }
  }

  /** Waits until every handler has ended. */
  async finished(signal: AbortSignal): Promise<void> {
    await this.#until(() => [...this.#held.values()].every(({ report }) => report !== undefined), signal);
  }

  /** Waits until nothing is held. */
  async reported(signal: AbortSignal): Promise<void> {
    await this.#until(() => this.#held.size === 0, signal);
  }

  /** The tasks whose report has not been answered. */
  unreported(): TaskMessage[] {
    return [...this.#held.values()].map(({ message }) => message);
  }

  /** What became of tasks since no more were wanted. */
  farewell(): { reported: number; released: number; unreported: number } {
    return { reported: this.#reported, released: this.#released, unreported: this.#held.size + this.#dropped };
  }

  #finish(held: Held, report: Report): void {
    held.report = report;
    this.#enqueue(held);
  }

  #enqueue(held: Held): void {
    if (!held.queued && this.#held.get(held.message.taskToken) === held) {
      held.queued = true;
      this.#queue.push(held);
      this.#change();
    }
  }

  #remove(token: string): Held | undefined {
    const held = this.#held.get(token);
    this.#held.delete(token);
    this.#change();
    return held;
  }

  #change(): void {
    this.#changed = true;
    this.#wake?.();
    if (this.#watchers.length > 0) {
      const watchers = this.#watchers;
      this.#watchers = [];
      for (const watcher of watchers) {
        watcher();
      }
    }
  }

  async #until(condition: () => boolean, signal: AbortSignal): Promise<void> {
    while (!condition() && !signal.aborted) {
      await new Promise<void>((resolve) => {
        const done = () => {
          signal.removeEventListener("abort", done);
          resolve();
        };
        this.#watchers.push(done);
        signal.addEventListener("abort", done, { once: true });
      });
    }
  }
}

/** About how many bytes a report has on the wire. */
function sizeOf(report: Report): number {
  const payload = report.kind.case === "complete" ? report.kind.value.output : undefined;
  // UTF-16 units may have three bytes each; too much is only a smaller batch.
  return REPORT_BYTES + (payload?.content.case === "json" ? payload.content.value.length * 3 : 0);
}
