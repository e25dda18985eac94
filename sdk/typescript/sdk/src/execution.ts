/** Executions and their events as callers see them. */

import { timestampDate } from "@bufbuild/protobuf/wkt";
import type { Event as EventMessage } from "@orbit/api/orbit/workflow/v1/event_pb.js";
import {
  Execution_State,
  StepStatus_State,
  type Execution as ExecutionMessage,
  type Failure as FailureMessage,
  type StepStatus as StepMessage,
} from "@orbit/api/orbit/workflow/v1/execution_pb.js";
import type { Failure } from "./errors.js";
import { decodeOptional } from "./payload.js";
import { dateOf } from "./time.js";

/** Where an execution is in its life. A state that this SDK does not know is told by its number and counts as open. */
export type ExecutionState =
  | "RUNNING"
  | "WINDING_DOWN"
  | "PAUSED"
  | "SUCCEEDED"
  | "FAILED"
  | "CANCELLED"
  | "TIMED_OUT"
  | "TERMINATED"
  | (string & {});

/** What a list tells of an execution. */
export interface ExecutionSummary {
  /** The caller's, or the server's if the caller gave none. */
  readonly id: string;
  /** Made by the server, never reused. */
  readonly uid: string;
  /** Name of its workflow. */
  readonly workflow: string;
  /** Version of its definition. */
  readonly version: string;
  /** Where it is in its life. */
  readonly state: ExecutionState;
  /** Labels of the definition and of the start. */
  readonly labels: Readonly<Record<string, string>>;
  /** When it was started. */
  readonly startTime: Date | undefined;
  /** `undefined` while it is open. */
  readonly closeTime: Date | undefined;
  /** The message itself, with everything that is not told here. */
  readonly raw: ExecutionMessage;
}

/** An execution with its steps. */
export interface ExecutionDescription extends ExecutionSummary {
  /** Number of the present run, from 1: `continue_as_new` begins the next. */
  readonly run: number;
  /** Input with the schema's defaults filled in. */
  readonly input: unknown;
  /** Once SUCCEEDED. */
  readonly output: unknown;
  /** Why it failed; `undefined` if it did not. */
  readonly failure: Failure | undefined;
  /** Reason that a cancel, a terminate or a pause gave. */
  readonly reason: string;
  /** In the definition's order, then what undoes steps and handlers that have begun. */
  readonly steps: readonly StepDescription[];
}

/** How one step stands. */
export interface StepDescription {
  /** Id as the definition has it; `compensate:ID` undoes a step, `failure:ID` is of a handler. */
  readonly step: string;
  /** As in `SUCCEEDED` or `BACKING_OFF`. */
  readonly state: string;
  /** From 1; 0 before the first. */
  readonly attempt: number;
  /** Of all attempts together, from 1; 0 before the first. */
  readonly delivery: number;
  /** Who has or had the newest delivery; empty before the first. */
  readonly workerId: string;
  /** What it gave; `undefined` unless it succeeded. */
  readonly output: unknown;
  /** Why the newest attempt, or the step, failed; `undefined` if it did not. */
  readonly failure: Failure | undefined;
  /** What its worker reported last; `undefined` if it has reported nothing. */
  readonly progress: unknown;
  /** The message itself, with everything that is not told here. */
  readonly raw: StepMessage;
}

/** One fact in an execution's history. */
export interface ExecutionEvent {
  /** 1, 2, 3 … without gaps. */
  readonly number: number;
  /** When it was written. */
  readonly time: Date | undefined;
  /** What happened, as in `stepSucceeded`; empty if this SDK does not know it. */
  readonly type: string;
  /** What happened, with its fields: `event.kind.case === "stepSucceeded"` narrows `event.kind.value`. */
  readonly kind: EventMessage["kind"];
  /** The message itself. */
  readonly raw: EventMessage;
}

const CLOSED: ReadonlySet<Execution_State> = new Set([
  Execution_State.SUCCEEDED,
  Execution_State.FAILED,
  Execution_State.CANCELLED,
  Execution_State.TIMED_OUT,
  Execution_State.TERMINATED,
]);

/** Whether an execution has ended. */
export function isClosed(message: ExecutionMessage | undefined): boolean {
  return message !== undefined && CLOSED.has(message.state);
}

export function stateName(state: Execution_State): ExecutionState {
  return nameOf(Execution_State, state);
}

/** The name of an enum's value; its number for one that this SDK does not know. */
export function nameOf(names: Readonly<Record<number, string | undefined>>, value: number): string {
  return names[value] ?? String(value);
}

export function summary(message: ExecutionMessage): ExecutionSummary {
  return {
    id: message.id,
    uid: message.uid,
    workflow: message.workflow,
    version: message.version,
    state: stateName(message.state),
    labels: message.labels,
    startTime: dateOf(message.startTime),
    closeTime: dateOf(message.closeTime),
    raw: message,
  };
}

export function description(message: ExecutionMessage): ExecutionDescription {
  return {
    ...summary(message),
    run: message.run,
    input: decodeOptional(message.input),
    output: decodeOptional(message.output),
    failure: failureOf(message.failure),
    reason: message.reason,
    steps: message.steps.map((step) => ({
      step: step.step,
      state: nameOf(StepStatus_State, step.state),
      attempt: step.attempt,
      delivery: step.delivery,
      workerId: step.workerId,
      output: decodeOptional(step.output),
      failure: failureOf(step.failure),
      progress: decodeOptional(step.progress),
      raw: step,
    })),
  };
}

export function event(message: EventMessage): ExecutionEvent {
  return {
    number: Number(message.number),
    time: message.time === undefined ? undefined : timestampDate(message.time),
    type: message.kind.case ?? "",
    kind: message.kind,
    raw: message,
  };
}

export function failureOf(message: FailureMessage): Failure;
export function failureOf(message: FailureMessage | undefined): Failure | undefined;
export function failureOf(message: FailureMessage | undefined): Failure | undefined {
  if (message === undefined) {
    return undefined;
  }
  const { code, unit } = message;
  return { code, message: message.message, unit, details: decodeOptional(message.details) };
}
