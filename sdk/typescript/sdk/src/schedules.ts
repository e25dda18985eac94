/** Schedules: executions that start by the clock. */

import { randomUUID } from "node:crypto";
import type { MessageInitShape } from "@bufbuild/protobuf";
import {
  Schedule_State,
  SchedulePolicies_Overlap,
  Slot_Kind,
  Slot_Outcome,
  type Schedule as ScheduleMessage,
  type Slot as SlotMessage,
} from "@orbit/api/orbit/schedule/v1/schedule_pb.js";
import type { ScheduleSpecSchema } from "@orbit/api/orbit/schedule/v1/spec_pb.js";
import { call, type CallLimits } from "./call.js";
import type { Connection } from "./connection.js";
import { OrbitError } from "./errors.js";
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

/** What a schedule is made of. */
export interface ScheduleOptions extends ScheduleTimes, WriteOptions {
  /** Workflow to start. */
  readonly workflow: string;
  /** Version to start. Default: the highest at each slot. */
  readonly version?: string | undefined;
  readonly input?: unknown;
  readonly labels?: Readonly<Record<string, string>> | undefined;
  /** Default: the server's, `skip`. */
  readonly overlap?: Overlap | undefined;
  /** How late a slot may still be caught up with after the server was away, in milliseconds. Default: the server's. */
  readonly catchupWindowMs?: number | undefined;
  /** Most starts of all; then it is COMPLETED. Default: no limit. */
  readonly maxActions?: number | undefined;
  /** Whether an execution that fails pauses it. Default false. */
  readonly pauseOnFailure?: boolean | undefined;
  readonly description?: string | undefined;
  /** Whether it begins paused. Default false. */
  readonly paused?: boolean | undefined;
}

/** How a schedule stands. */
export interface ScheduleDescription {
  readonly id: string;
  readonly uid: string;
  /** Changes with every change of the schedule. */
  readonly etag: string;
  /** `ACTIVE`, `PAUSED`, `INVALID` or `COMPLETED`. */
  readonly state: string;
  readonly workflow: string;
  readonly description: string;
  /** `undefined` if there is no further slot. */
  readonly nextTime: Date | undefined;
  /** The message itself, with everything that is not told here. */
  readonly raw: ScheduleMessage;
}

/** What became of one slot. */
export interface SlotDescription {
  readonly nominalTime: Date | undefined;
  /** `REGULAR`, `TRIGGER` or `BACKFILL`. */
  readonly kind: string;
  /** As in `STARTED`, `OVERLAPPED` or `MISSED`. */
  readonly outcome: string;
  /** Id of the execution that it started. */
  readonly executionId: string | undefined;
  readonly raw: SlotMessage;
}

/** Makes schedules and finds them: `client.schedules`. */
export class Schedules {
  constructor(private readonly connection: Connection) {}

  /** Makes a schedule. */
  async create(id: string, options: ScheduleOptions): Promise<ScheduleDescription> {
    const { overlap, catchupWindowMs, maxActions } = options;
    const request = {
      id,
      spec: specOf(options),
      start: {
        workflow: options.workflow,
        version: options.version ?? "",
        labels: { ...options.labels },
        ...(options.input !== undefined && { input: encodePayload(options.input) }),
      },
      policies: {
        overlap: overlap === undefined ? SchedulePolicies_Overlap.UNSPECIFIED : OVERLAP[overlap],
        pauseOnFailure: options.pauseOnFailure ?? false,
        ...(catchupWindowMs !== undefined && { catchupWindow: durationOf(catchupWindowMs) }),
        ...(maxActions !== undefined && { maxActions: BigInt(maxActions) }),
      },
      description: options.description ?? "",
      paused: options.paused ?? false,
      requestId: options.requestId ?? randomUUID(),
    };
    const { schedule } = await call((each) => this.connection.schedules.createSchedule(request, each), options);
    return described(schedule);
  }

  /** Names a schedule that is there; makes no call. */
  handle(id: string): ScheduleHandle {
    return new ScheduleHandle(this.connection, id);
  }

  /** Goes through schedules, page by page as far as the caller goes. */
  async *list(options: CallLimits & { readonly workflow?: string } = {}): AsyncGenerator<ScheduleDescription, void> {
    let pageToken = "";
    do {
      const request = { workflow: options.workflow ?? "", pageToken };
      const page = await call((each) => this.connection.schedules.listSchedules(request, each), options);
      yield* page.schedules.map(described);
      pageToken = page.nextPageToken;
    } while (pageToken !== "");
  }

  /** Tells the next slots that times would have, without making anything. */
  async preview(times: ScheduleTimes, options: CallLimits & { readonly count?: number } = {}): Promise<Date[]> {
    const request = { spec: specOf(times), maxSlots: options.count ?? 10 };
    const { slots } = await call((each) => this.connection.schedules.previewSchedule(request, each), options);
    return slots.flatMap(({ plannedTime }) => dateOf(plannedTime) ?? []);
  }
}

/** One schedule, by its id. */
export class ScheduleHandle {
  constructor(
    private readonly connection: Connection,
    readonly id: string,
  ) {}

  async describe(limits: CallLimits = {}): Promise<ScheduleDescription> {
    const request = { id: this.id };
    const { schedule } = await call((each) => this.connection.schedules.getSchedule(request, each), limits);
    return described(schedule);
  }

  /** Holds it: slots that come meanwhile start nothing. */
  async pause(options: WriteOptions & { readonly note?: string } = {}): Promise<ScheduleDescription> {
    const request = { ...this.#write(options), note: options.note ?? "" };
    const { schedule } = await call((each) => this.connection.schedules.pauseSchedule(request, each), options);
    return described(schedule);
  }

  /** Lets a paused one go on. */
  async resume(options: WriteOptions = {}): Promise<ScheduleDescription> {
    const request = this.#write(options);
    const { schedule } = await call((each) => this.connection.schedules.resumeSchedule(request, each), options);
    return described(schedule);
  }

  /** Starts something now, beside its times. */
  async trigger(options: WriteOptions & { readonly overlap?: Overlap } = {}): Promise<SlotDescription> {
    const overlap = options.overlap === undefined ? SchedulePolicies_Overlap.UNSPECIFIED : OVERLAP[options.overlap];
    const request = { ...this.#write(options), overlap };
    const { slot } = await call((each) => this.connection.schedules.triggerSchedule(request, each), options);
    if (slot === undefined) {
      throw new OrbitError("the server's answer is empty");
    }
    return slotOf(slot);
  }

  /** Starts what the slots of a past span would have started, so many at once. */
  async backfill(
    span: { readonly firstTime: Date; readonly lastTime: Date },
    options: WriteOptions & { readonly concurrency?: number } = {},
  ): Promise<void> {
    const request = {
      ...this.#write(options),
      firstTime: timestampFromDate(span.firstTime),
      lastTime: timestampFromDate(span.lastTime),
      concurrency: options.concurrency ?? 0,
    };
    await call((each) => this.connection.schedules.backfillSchedule(request, each), options);
  }

  /** Goes through what became of its slots, the newest first. */
  async *slots(limits: CallLimits = {}): AsyncGenerator<SlotDescription, void, undefined> {
    let pageToken = "";
    do {
      const request = { id: this.id, pageToken };
      const page = await call((each) => this.connection.schedules.listSlots(request, each), limits);
      yield* page.slots.map(slotOf);
      pageToken = page.nextPageToken;
    } while (pageToken !== "");
  }

  /** Deletes it; executions that it has started go on. */
  async delete(options: WriteOptions & { readonly allowMissing?: boolean } = {}): Promise<void> {
    const request = { ...this.#write(options), allowMissing: options.allowMissing ?? false };
    await call((each) => this.connection.schedules.deleteSchedule(request, each), options);
  }

  #write(options: WriteOptions): { id: string; requestId: string } {
    return { id: this.id, requestId: options.requestId ?? randomUUID() };
  }
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
    nextTime: dateOf(message.nextTime),
    raw: message,
  };
}

function slotOf(message: SlotMessage): SlotDescription {
  return {
    nominalTime: dateOf(message.nominalTime),
    kind: nameOf(Slot_Kind, message.kind),
    outcome: nameOf(Slot_Outcome, message.outcome),
    executionId: message.execution?.id,
    raw: message,
  };
}
