/** The commands about schedules and batches. */

import {
  parseJson,
  type BatchAction,
  type BatchDescription,
  type Batches,
  type Overlap,
  type ScheduleDescription,
  type Schedules,
  type SlotDescription,
} from "@orbit/sdk";
import { milliseconds, number, optional, text, type Fields, type Operation } from "./lines.mjs";

const list = (value: unknown) => value as string[];
const labels = (value: unknown) => value as Record<string, string>;
const overlap = (value: unknown) => value as Overlap;
const json = (value: unknown) => parseJson(text(value)) ?? null;
const time = (value: unknown) => new Date(text(value));

const write = (args: Fields) => ({ requestId: optional(args, "request_id", text) });
const change = (args: Fields) => ({ ...write(args), etag: optional(args, "etag", text) });

const times = (args: Fields) => ({
  cron: optional(args, "crons", list),
  everyMs: optional(args, "every_seconds", milliseconds),
  timezone: optional(args, "timezone", text),
});

const parts = (args: Fields) => ({
  ...times(args),
  version: optional(args, "version", text),
  input: optional(args, "input_json", json),
  labels: optional(args, "labels", labels),
  overlap: optional(args, "overlap", overlap),
  maxActions: optional(args, "max_actions", number),
  pauseOnFailure: optional(args, "pause_on_failure", Boolean),
  description: optional(args, "description", text),
});

/** What the suite says about schedules. */
export function scheduleOps(schedules: () => Schedules): Readonly<Record<string, Operation>> {
  const handle = (args: Fields) => schedules().handle(text(args.id));
  return {
    "schedule.create": async (args) => {
      const paused = optional(args, "paused", Boolean);
      const options = { ...parts(args), ...write(args), workflow: text(args.workflow), paused };
      return scheduleFields(await schedules().create(text(args.id), options));
    },
    "schedule.get": async (args) => scheduleFields(await handle(args).describe()),
    "schedule.list": async (args) => {
      const ids: string[] = [];
      const options = { workflow: optional(args, "workflow", text), pageSize: optional(args, "page_size", number) };
      for await (const { id } of schedules().list(options)) {
        ids.push(id);
      }
      return { ids };
    },
    "schedule.update": async (args) => scheduleFields(await handle(args).update(parts(args), change(args))),
    "schedule.pause": async (args) =>
      scheduleFields(await handle(args).pause({ ...change(args), note: optional(args, "note", text) })),
    "schedule.resume": async (args) => scheduleFields(await handle(args).resume(change(args))),
    "schedule.trigger": async (args) =>
      slotFields(await handle(args).trigger({ ...write(args), overlap: optional(args, "overlap", overlap) })),
    "schedule.backfill": async (args) => {
      const span = { firstTime: time(args.first_time), lastTime: time(args.last_time) };
      const concurrency = optional(args, "concurrency", number);
      return { request: await handle(args).backfill(span, { ...write(args), concurrency }) };
    },
    "schedule.preview": async (args) => {
      const options = { count: optional(args, "count", number), after: optional(args, "after_time", time) };
      const stored = optional(args, "id", text) !== undefined;
      const preview = await (stored ? handle(args).preview(options) : schedules().preview(times(args), options));
      const slots = preview.slots.map(({ nominalTime, skip }) => ({ nominal_time: timeText(nominalTime), skip }));
      return { slots, unlisted: preview.unlisted, stop_time: timeText(preview.stopTime) };
    },
    "schedule.slots": async (args) => {
      const slots: Fields[] = [];
      for await (const slot of handle(args).slots({ pageSize: optional(args, "page_size", number) })) {
        slots.push(slotFields(slot));
      }
      return { slots };
    },
    "schedule.delete": async (args) => {
      await handle(args).delete(change(args));
      return {};
    },
  };
}

/** What the suite says about batches. */
export function batchOps(batches: () => Batches): Readonly<Record<string, Operation>> {
  return {
    "batch.create": async (args) =>
      batchFields(
        await batches().create(text(args.action) as BatchAction, {
          ...write(args),
          filter: text(args.filter),
          reason: optional(args, "reason", text),
          maxExecutions: optional(args, "max_executions", number),
          dryRun: optional(args, "dry_run", Boolean),
        }),
      ),
    "batch.get": async (args) => batchFields(await batches().get(text(args.id))),
    "batch.list": async (args) => {
      const ids: string[] = [];
      for await (const { id } of batches().list({ pageSize: optional(args, "page_size", number) })) {
        ids.push(id);
      }
      return { ids };
    },
    "batch.cancel": async (args) => batchFields(await batches().cancel(text(args.id))),
    "batch.wait": async (args) => {
      const timeoutMs = optional(args, "timeout_seconds", milliseconds);
      return batchFields(await batches().wait(text(args.id), { timeoutMs }));
    },
  };
}

function scheduleFields(schedule: ScheduleDescription): Fields {
  const { id, uid, etag, state, workflow, description } = schedule;
  return {
    ...{ id, uid, etag, state, workflow, description },
    pause_note: schedule.pauseNote,
    invalid_reason: schedule.invalidReason,
    next_time: timeText(schedule.nextTime),
    last_execution_id: schedule.lastExecutionId ?? null,
  };
}

function slotFields({ nominalTime, kind, outcome, executionId, request, count }: SlotDescription): Fields {
  return { nominal_time: timeText(nominalTime), kind, outcome, execution_id: executionId ?? null, request, count };
}

function batchFields({ id, action, filter, state, expected, done, skipped, failed, ended }: BatchDescription): Fields {
  return { id, action, filter, state, expected, done, skipped, failed, ended };
}

/** A time as RFC 3339 has it. */
function timeText(time: Date | undefined): string | null {
  return time?.toISOString().replace(".000Z", "Z") ?? null;
}
