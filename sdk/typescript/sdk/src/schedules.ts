/** Schedules: executions that start by the clock. */

import { randomUUID } from "node:crypto";
import type { MessageInitShape } from "@bufbuild/protobuf";
import {
  PlannedSlot_Skip,
  Schedule_State,
  type PlannedSlot as PlannedSlotMessage,
  type SchedulePoliciesSchema,
  type ScheduleSchema,
  SchedulePolicies_Overlap,
  Slot_Kind,
  Slot_Outcome,
  type Schedule as ScheduleMessage,
  type Slot as SlotMessage,
} from "@orbit/api/orbit/schedule/v1/schedule_pb.js";
import type { PreviewScheduleRequestSchema } from "@orbit/api/orbit/schedule/v1/schedule_service_pb.js";
import type { ScheduleSpecSchema } from "@orbit/api/orbit/schedule/v1/spec_pb.js";
import { call, type CallLimits } from "./call.js";
import type { Connection } from "./connection.js";
import { InvalidArgumentError, OrbitError } from "./errors.js";
import type { WriteOptions } from "./handle.js";
import { nameOf } from "./execution.js";
import { encodePayload } from "./payload.js";
import { dateOf, durationOf, timestampFromDate } from "./time.js";

/** When a schedule starts something. At least one of `cron`, `everyMs` and what `spec` has. */
export interface ScheduleTimes {
  /** One or more expressions of five fields, as in `0 9 * * MON-FRI`. */
  readonly cron?: string | readonly string[] | undefined;
  /** Pause between two slots, in milliseconds, counted from the beginning of 1970. */
  readonly everyMs?: number | undefined;
  /** Moves the slots of `everyMs`. */
  readonly offsetMs?: number | undefined;
  /** Zone of the expressions, as in `Europe/Berlin` or `UTC`. Required with them: none is assumed. */
  readonly timezone?: string | undefined;
  /** No slot before it. */
  readonly startTime?: Date | undefined;
  /** No slot after it. */
  readonly endTime?: Date | undefined;
  /** Longest random delay of a start, in milliseconds. Default 0. */
  readonly jitterMs?: number | undefined;
  /** Everything else that a spec can have: calendars, exclusions, what happens when clocks are changed. */
  readonly spec?: MessageInitShape<typeof ScheduleSpecSchema> | undefined;
}

/** What happens at a slot while an execution of the schedule still runs. */
export type Overlap = "skip" | "allow" | "buffer_one" | "cancel_previous" | "terminate_previous";

const OVERLAP: Record<Overlap, SchedulePolicies_Overlap> = {
  skip: SchedulePolicies_Overlap.SKIP,
  allow: SchedulePolicies_Overlap.ALLOW,
  buffer_one: SchedulePolicies_Overlap.BUFFER_ONE,
  cancel_previous: SchedulePolicies_Overlap.CANCEL_PREVIOUS,
  terminate_previous: SchedulePolicies_Overlap.TERMINATE_PREVIOUS,
};

/** What a schedule is made of, but for its times. */
interface ScheduleParts {
  /** Version to start. Default: the highest at each slot. */
  readonly version?: string | undefined;
  /**
   * Input of each execution. Texts in it may hold `${ schedule.nominal_time }`, `${ schedule.start_time }` and
   * `${ schedule.id }`. Default null.
   */
  readonly input?: unknown;
  /** Labels of each execution, at most 31; the server adds `orbit.schedule`, the id of the schedule. */
  readonly labels?: Readonly<Record<string, string>> | undefined;
  /** What a slot does while an execution of the schedule is open. Default `skip`. */
  readonly overlap?: Overlap | undefined;
  /** How late a slot may start, in milliseconds, for example after an outage; later it is missed. Default 365 days. */
  readonly catchupWindowMs?: number | undefined;
  /** Most starts of all; then it is COMPLETED. Default: no limit. */
  readonly maxActions?: number | undefined;
  /** Whether an execution that fails pauses it. Default false. */
  readonly pauseOnFailure?: boolean | undefined;
  /** For people. At most 1,024 characters. */
  readonly description?: string | undefined;
}

/** What a schedule is made of. */
export interface ScheduleOptions extends ScheduleTimes, ScheduleParts, WriteOptions {
  /** Workflow to start. */
  readonly workflow: string;
  /** Whether it begins paused. Default false. */
  readonly paused?: boolean | undefined;
}

/**
 * What changes of a schedule: what is absent stays as it is. `everyMs` takes the place of all intervals, `cron` that of all crons,
 * and `spec` that of everything about times.
 */
export interface ScheduleChanges extends ScheduleTimes, ScheduleParts {
  /** Workflow to start. */
  readonly workflow?: string | undefined;
}

/** What changes of a schedule take. */
export interface ScheduleWriteOptions extends WriteOptions {
  /** Etag that the schedule must have; otherwise nothing happens, and `AbortedError` is thrown. Default: any. */
  readonly etag?: string | undefined;
}

/** Which times to tell. */
export interface PreviewOptions extends CallLimits {
  /** Most slots, 1 to 1,000; times that are left out come beside them. Default 10. */
  readonly count?: number | undefined;
  /** After which time. Default: now. */
  readonly after?: Date | undefined;
}

/** How a schedule stands. */
export interface ScheduleDescription {
  /** The caller's id. */
  readonly id: string;
  /** The server's, and never used again. */
  readonly uid: string;
  /** Changes with every change of the schedule. */
  readonly etag: string;
  /** `ACTIVE`, `PAUSED`, `INVALID` or `COMPLETED`. */
  readonly state: string;
  /** What it starts. */
  readonly workflow: string;
  /** For people; may be empty. */
  readonly description: string;
  /** Why it is paused, for people; may be empty. */
  readonly pauseNote: string;
  /** Why it cannot go on, or why its newest start failed, for people; empty if all is well. */
  readonly invalidReason: string;
  /** `undefined` if there is no further slot, or while it is paused. */
  readonly nextTime: Date | undefined;
  /** Id of the execution that it started last; `undefined` if it has started none. */
  readonly lastExecutionId: string | undefined;
  /** The message itself, with everything that is not told here. */
  readonly raw: ScheduleMessage;
}

/** What became of one slot, or of several in a row that went alike. */
export interface SlotDescription {
  /** What it is for, whenever it really started. */
  readonly nominalTime: Date | undefined;
  /** `REGULAR`, `TRIGGER` or `BACKFILL`. */
  readonly kind: string;
  /** As in `STARTED`, `OVERLAPPED` or `MISSED`. */
  readonly outcome: string;
  /** Id of the execution that it started; `undefined` if it has started none. */
  readonly executionId: string | undefined;
  /** Name of the call that asked for it, as `backfill` gives it; empty for a regular one. */
  readonly request: string;
  /** How many in a row went alike. */
  readonly count: number;
  /** Why, for people; may be empty. */
  readonly detail: string;
  /** The message itself, with everything that is not told here. */
  readonly raw: SlotMessage;
}

/** A time that is to come, or would come if nothing kept it away. */
export interface PlannedSlot {
  /** What an execution would be for. */
  readonly nominalTime: Date | undefined;
  /** In the schedule's zone, with its offset, such as `2026-11-01T01:30:00-04:00`. */
  readonly localTime: string;
  /** Empty for a slot; otherwise why it is none: `EXCLUDED`, or, when the clocks are changed, `MISSING` or `REPEATED`. */
  readonly skip: string;
  /** More about that, for people; may be empty. */
  readonly detail: string;
  /** The message itself. */
  readonly raw: PlannedSlotMessage;
}

/** What a schedule, or times that are not stored, has before it. */
export interface SchedulePreview {
  /** The times in order, and beside them those that are left out, of which it has at most 1,000. */
  readonly slots: readonly PlannedSlot[];
  /** How many more times are left out than `slots` tells. */
  readonly unlisted: number;
  /**
   * Where the look stopped because it had met too many times that are left out: a preview after it goes on. `undefined` if it has
   * as many slots as were asked for, or all that are left.
   */
  readonly stopTime: Date | undefined;
}

/** Makes schedules and finds them: `client.schedules`. */
export class Schedules {
  constructor(private readonly connection: Connection) {}

  /**
   * Makes a schedule.
   *
   * @throws InvalidArgumentError with all faults in `violations`; AlreadyExistsError; NotFoundError if the workflow is not there.
   */
  async create(id: string, options: ScheduleOptions): Promise<ScheduleDescription> {
    const request = {
      id,
      spec: specOf(options),
      start: {
        workflow: options.workflow,
        version: options.version ?? "",
        labels: { ...options.labels },
        ...(options.input !== undefined && { input: encodePayload(options.input) }),
      },
      policies: policiesOf(options),
      description: options.description ?? "",
      paused: options.paused ?? false,
      requestId: options.requestId ?? randomUUID(),
    };
    const { schedule } = await call((each) => this.connection.schedules.createSchedule(request, each), options);
    return described(schedule);
  }

  /** Names a schedule that is there; makes no call. With a uid it is only that one, which may be read also once it was deleted. */
  handle(id: string, options: { readonly uid?: string | undefined } = {}): ScheduleHandle {
    return new ScheduleHandle(this.connection, id, options.uid);
  }

  /** Goes through schedules by id, page by page as far as the caller goes; through those of one workflow if it is named. */
  async *list(
    options: CallLimits & { readonly workflow?: string | undefined; readonly pageSize?: number | undefined } = {},
  ): AsyncGenerator<ScheduleDescription, void, undefined> {
    let pageToken = "";
    do {
      const request = { workflow: options.workflow ?? "", pageSize: options.pageSize ?? 0, pageToken };
      const page = await call((each) => this.connection.schedules.listSchedules(request, each), options);
      yield* page.schedules.map(described);
      pageToken = page.nextPageToken;
    } while (pageToken !== "");
  }

  /**
   * Tells the next slots that times would have, and beside them the times that are left out and why. Nothing is stored.
   *
   * @throws InvalidArgumentError for times that cannot be used.
   */
  async preview(times: ScheduleTimes, options: PreviewOptions = {}): Promise<SchedulePreview> {
    return preview(this.connection, { spec: specOf(times) }, options);
  }
}

/** One schedule, by its id. All methods throw `NotFoundError` if there is none. */
export class ScheduleHandle {
  constructor(
    private readonly connection: Connection,
    /** Id of the schedule. */
    readonly id: string,
    /** Uid of the schedule, if it must have a certain one. */
    readonly uid?: string,
  ) {}

  /** Reads the schedule. */
  async describe(limits: CallLimits = {}): Promise<ScheduleDescription> {
    const request = { id: this.id, uid: this.uid ?? "" };
    const { schedule } = await call((each) => this.connection.schedules.getSchedule(request, each), limits);
    return described(schedule);
  }

  /**
   * Changes what is given, and leaves the rest.
   *
   * @throws InvalidArgumentError for what `create` would refuse; AbortedError if it has another etag.
   */
  async update(changes: ScheduleChanges, options: ScheduleWriteOptions = {}): Promise<ScheduleDescription> {
    const request = { ...this.#change(options), schedule: partsOf(changes), updateMask: { paths: pathsOf(changes) } };
    const { schedule } = await call((each) => this.connection.schedules.updateSchedule(request, each), options);
    return described(schedule);
  }

  /**
   * Tells its next slots, and beside them the times that are left out and why.
   *
   * @throws FailedPreconditionError if it is invalid.
   */
  async preview(options: PreviewOptions = {}): Promise<SchedulePreview> {
    return preview(this.connection, { id: this.id }, options);
  }

  /** Holds it: slots that come meanwhile start nothing. `note` says why, for people. */
  async pause(options: ScheduleWriteOptions & { readonly note?: string | undefined } = {}): Promise<ScheduleDescription> {
    const request = { ...this.#change(options), note: options.note ?? "" };
    const { schedule } = await call((each) => this.connection.schedules.pauseSchedule(request, each), options);
    return described(schedule);
  }

  /** Lets a paused one go on. */
  async resume(options: ScheduleWriteOptions = {}): Promise<ScheduleDescription> {
    const request = this.#change(options);
    const { schedule } = await call((each) => this.connection.schedules.resumeSchedule(request, each), options);
    return described(schedule);
  }

  /**
   * Starts an execution now, beside its times, also while it is paused. The slot tells whether it started, waits or was skipped,
   * as `overlap` says (default: the schedule's own).
   */
  async trigger(options: WriteOptions & { readonly overlap?: Overlap | undefined } = {}): Promise<SlotDescription> {
    const overlap = options.overlap === undefined ? SchedulePolicies_Overlap.UNSPECIFIED : OVERLAP[options.overlap];
    const request = { ...this.#write(options), overlap };
    const { slot } = await call((each) => this.connection.schedules.triggerSchedule(request, each), options);
    if (slot === undefined) {
      throw new OrbitError("the server's answer is empty");
    }
    return slotOf(slot);
  }

  /**
   * Starts executions for its times in a past span, whether they have started before or not, in order and in the background, as
   * many at once as `concurrency` says (1 to 100, default 1). Gives the name that their slots have as `request`.
   *
   * @throws InvalidArgumentError for a span without a slot, or with more than 10,000.
   */
  async backfill(
    span: { readonly firstTime: Date; readonly lastTime: Date },
    options: WriteOptions & { readonly concurrency?: number | undefined } = {},
  ): Promise<string> {
    const request = {
      ...this.#write(options),
      firstTime: timestampFromDate(span.firstTime),
      lastTime: timestampFromDate(span.lastTime),
      concurrency: options.concurrency ?? 0,
    };
    const answer = await call((each) => this.connection.schedules.backfillSchedule(request, each), options);
    return answer.request;
  }

  /** Goes through what became of its slots, the newest first. */
  async *slots(
    options: CallLimits & { readonly pageSize?: number | undefined } = {},
  ): AsyncGenerator<SlotDescription, void, undefined> {
    let pageToken = "";
    do {
      const request = { id: this.id, uid: this.uid ?? "", pageSize: options.pageSize ?? 0, pageToken };
      const page = await call((each) => this.connection.schedules.listSlots(request, each), options);
      yield* page.slots.map(slotOf);
      pageToken = page.nextPageToken;
    } while (pageToken !== "");
  }

  /** Deletes it; executions that it has started go on. With `allowMissing` it is no error that there is none. */
  async delete(options: ScheduleWriteOptions & { readonly allowMissing?: boolean | undefined } = {}): Promise<void> {
    const request = { ...this.#change(options), allowMissing: options.allowMissing ?? false };
    await call((each) => this.connection.schedules.deleteSchedule(request, each), options);
  }

  #write(options: WriteOptions): { id: string; requestId: string } {
    return { id: this.id, requestId: options.requestId ?? randomUUID() };
  }

  #change(options: ScheduleWriteOptions): { id: string; requestId: string; etag: string } {
    return { ...this.#write(options), etag: options.etag ?? "" };
  }
}

async function preview(
  connection: Connection,
  what: Pick<MessageInitShape<typeof PreviewScheduleRequestSchema>, "id" | "spec">,
  options: PreviewOptions,
): Promise<SchedulePreview> {
  const request = {
    ...what,
    maxSlots: options.count ?? 10,
    ...(options.after !== undefined && { afterTime: timestampFromDate(options.after) }),
  };
  const answer = await call((each) => connection.schedules.previewSchedule(request, each), options);
  const slots = answer.slots.map((slot) => ({
    nominalTime: dateOf(slot.nominalTime),
    localTime: slot.localTime,
    skip: slot.skip === PlannedSlot_Skip.UNSPECIFIED ? "" : nameOf(PlannedSlot_Skip, slot.skip),
    detail: slot.detail,
    raw: slot,
  }));
  return { slots, unlisted: answer.unlistedCount, stopTime: dateOf(answer.stopTime) };
}

/** A schedule with what changes; the mask says what that is. */
function partsOf(changes: ScheduleChanges): MessageInitShape<typeof ScheduleSchema> {
  return {
    spec: specOf(changes),
    start: {
      workflow: changes.workflow ?? "",
      version: changes.version ?? "",
      labels: { ...changes.labels },
      ...(changes.input !== undefined && { input: encodePayload(changes.input) }),
    },
    policies: policiesOf(changes),
    description: changes.description ?? "",
  };
}

/** The paths of what changes. */
function pathsOf(changes: ScheduleChanges): string[] {
  const { spec, workflow, version, input, labels, overlap, catchupWindowMs, maxActions } = changes;
  const given: Record<string, unknown> = {
    "start.workflow": workflow,
    "start.version": version,
    "start.input": input,
    "start.labels": labels,
    "policies.overlap": overlap,
    "policies.catchup_window": catchupWindowMs,
    "policies.max_actions": maxActions,
    "policies.pause_on_failure": changes.pauseOnFailure,
    description: changes.description,
    ...(spec !== undefined
      ? { spec }
      : {
          "spec.crons": changes.cron,
          "spec.intervals": changes.everyMs,
          "spec.timezone": changes.timezone,
          "spec.start_time": changes.startTime,
          "spec.end_time": changes.endTime,
          "spec.jitter": changes.jitterMs,
        }),
  };
  const paths = Object.entries(given).flatMap(([path, value]) => (value === undefined ? [] : [path]));
  if (paths.length === 0) {
    throw new InvalidArgumentError("nothing is to be changed", { code: "INVALID_ARGUMENT" });
  }
  return paths;
}

function policiesOf(parts: ScheduleParts): MessageInitShape<typeof SchedulePoliciesSchema> {
  const { overlap, catchupWindowMs, maxActions } = parts;
  return {
    overlap: overlap === undefined ? SchedulePolicies_Overlap.UNSPECIFIED : OVERLAP[overlap],
    pauseOnFailure: parts.pauseOnFailure ?? false,
    ...(catchupWindowMs !== undefined && { catchupWindow: durationOf(catchupWindowMs) }),
    ...(maxActions !== undefined && { maxActions: BigInt(maxActions) }),
  };
}

function specOf(times: ScheduleTimes): MessageInitShape<typeof ScheduleSpecSchema> {
  const { cron, everyMs, offsetMs, timezone, startTime, endTime, jitterMs, spec } = times;
  return {
    ...(cron !== undefined && { crons: typeof cron === "string" ? [cron] : [...cron] }),
    ...(everyMs !== undefined && {
      intervals: [{ every: durationOf(everyMs), ...(offsetMs !== undefined && { offset: durationOf(offsetMs) }) }],
    }),
    ...(timezone !== undefined && { timezone }),
    ...(startTime !== undefined && { startTime: timestampFromDate(startTime) }),
    ...(endTime !== undefined && { endTime: timestampFromDate(endTime) }),
    ...(jitterMs !== undefined && { jitter: durationOf(jitterMs) }),
    ...spec,
  };
}

function described(message: ScheduleMessage | undefined): ScheduleDescription {
  if (message === undefined) {
    throw new OrbitError("the server's answer is empty");
  }
  return {
    id: message.id,
    uid: message.uid,
    etag: message.etag,
    state: nameOf(Schedule_State, message.state),
    workflow: message.start?.workflow ?? "",
    description: message.description,
    pauseNote: message.pauseNote,
    invalidReason: message.invalidReason,
    nextTime: dateOf(message.nextTime),
    lastExecutionId: message.lastExecution?.id,
    raw: message,
  };
}

function slotOf(message: SlotMessage): SlotDescription {
  return {
    nominalTime: dateOf(message.nominalTime),
    kind: nameOf(Slot_Kind, message.kind),
    outcome: nameOf(Slot_Outcome, message.outcome),
    executionId: message.execution?.id,
    request: message.request,
    count: Number(message.slotCount),
    detail: message.detail,
    raw: message,
  };
}
