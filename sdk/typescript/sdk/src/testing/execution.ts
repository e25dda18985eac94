/** An execution of the in-memory Orbit. */

import { randomUUID } from "node:crypto";
import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { timestampNow } from "@bufbuild/protobuf/wkt";
import { EventSchema, type Event } from "@orbit/api/orbit/workflow/v1/event_pb.js";
import {
  Cause,
  Execution_State,
  ExecutionSchema,
  FailureSchema,
  type Execution,
} from "@orbit/api/orbit/workflow/v1/execution_pb.js";
import type { Payload } from "@orbit/api/orbit/workflow/v1/payload_pb.js";
import type { Failure } from "../errors.js";
import { isClosed } from "../execution.js";
import { encodePayload } from "../payload.js";

type EventKind = NonNullable<MessageInitShape<typeof EventSchema>["kind"]>;

/** One execution: its message, its events, its signals. */
export class FakeExecution {
  /** Uid of the execution. */
  readonly uid = randomUUID();
  /** When it was started. */
  readonly startTime = timestampNow();
  /** Aborted by a cancel. */
  readonly cancelling = new AbortController();
  /** What queries are answered with. */
  readonly answers = new Map<string, Payload>();
  /** Its history so far. */
  readonly events: Event[] = [];
  /** Request ids of the calls that made it, for their repetitions. */
  readonly makers = new Set<string>();
  readonly #message: Execution;
  readonly #signals: { readonly name: string; readonly payload: Payload }[] = [];
  #watchers: (() => void)[] = [];
  #keys = 0;

  constructor(
    /** Id of the execution. */
    readonly id: string,
    /** Name of its workflow. */
    readonly workflow: string,
    /** Version that it runs. */
    readonly version: string,
    /** What it was started with. */
    readonly input: Payload,
    labels: Record<string, string>,
  ) {
    const { uid, startTime } = this;
    this.#message = create(ExecutionSchema, {
      ...{ id, uid, workflow, version, input, labels, startTime },
      run: 1,
      state: Execution_State.RUNNING,
    });
    this.#write({ case: "executionCreated", value: { id, uid, run: 1, workflow, version, input, labels } });
  }

  /** The execution as calls tell it. */
  get message(): Execution {
    return create(ExecutionSchema, { ...this.#message, lastEventNumber: BigInt(this.events.length) });
  }

  /** Whether it has ended. */
  get closed(): boolean {
    return isClosed(this.#message);
  }

  /** An idempotency key of its own for each task. */
  nextKey(): string {
    this.#keys += 1;
    return `${this.uid.replaceAll("-", "").slice(0, 24)}${String(this.#keys).padStart(8, "0")}`;
  }

  /** Ends it with an output. */
  succeed(output: Payload): void {
    this.#close(Execution_State.SUCCEEDED, { case: "executionSucceeded", value: { output } }, { output });
  }

  /** Ends it with a failure. */
  fail(failure: Failure): void {
    const { code, message, unit, details } = failure;
    const told = create(FailureSchema, { code, message, unit });
    if (details !== undefined) {
      told.details = encodePayload(details);
    }
    this.#close(Execution_State.FAILED, { case: "executionFailed", value: { failure: told } }, { failure: told });
  }

  /** Returns the number of its event. */
  signal(name: string, payload: Payload): number {
    const number = this.#write({ case: "signalReceived", value: { name, payload } });
    this.#signals.push({ name, payload });
    this.#changed();
    return number;
  }

  /** Cancels it: it ends at once. Returns the number of the newest event. */
  cancel(reason: string): number {
    if (!this.cancelling.signal.aborted) {
      this.#write({ case: "windDownStarted", value: { cause: Cause.CANCEL, reason } });
      this.#message.reason = reason;
      this.cancelling.abort();
      this.#close(Execution_State.CANCELLED, { case: "executionCancelled", value: {} }, {});
    }
    return this.events.length;
  }

  /** Ends it at once. Returns the number of the newest event. */
  terminate(reason: string): number {
    this.#message.reason = reason;
    this.cancelling.abort();
    this.#close(Execution_State.TERMINATED, { case: "executionTerminated", value: { reason } }, {});
    return this.events.length;
  }

  /** Waits for the next signal of a name and takes it. */
  async receive(name: string): Promise<Payload> {
    for (;;) {
      const index = this.#signals.findIndex((signal) => signal.name === name);
      const [taken] = index < 0 ? [] : this.#signals.splice(index, 1);
      if (taken !== undefined) {
        return taken.payload;
      }
      await this.change();
    }
  }

  /** Waits until something happened, at most so many milliseconds. */
  change(milliseconds?: number): Promise<void> {
    return new Promise((resolve) => {
      const timer = milliseconds === undefined ? undefined : setTimeout(resolve, milliseconds);
      this.#watchers.push(() => {
        clearTimeout(timer);
        resolve();
      });
    });
  }

  #close(state: Execution_State, kind: EventKind, parts: Partial<Pick<Execution, "output" | "failure">>): void {
    if (this.closed) {
      return;
    }
    Object.assign(this.#message, { state, closeTime: timestampNow() }, parts);
    this.#write(kind);
    this.#changed();
  }

  #write(kind: EventKind): number {
    const number = this.events.length + 1;
    this.events.push(create(EventSchema, { number: BigInt(number), time: timestampNow(), kind }));
    this.#changed();
    return number;
  }

  #changed(): void {
    const watchers = this.#watchers;
    this.#watchers = [];
    for (const watcher of watchers) {
      watcher();
    }
  }
}
