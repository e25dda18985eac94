/**
 * Prometheus metrics of a worker. Needs `prom-client`.
 *
 * | metric | kind | meaning |
 * | --- | --- | --- |
 * | `orbit_worker_task_duration_seconds{contract,outcome}` | histogram | how long handlers ran; its count is how many |
 * | `orbit_worker_tasks_held` | gauge | tasks from receipt until their report is answered |
 * | `orbit_worker_slots` | gauge | most tasks at once |
 * | `orbit_worker_connected` | gauge | 1 while the worker has its server |
 * | `orbit_worker_last_contact_timestamp_seconds` | gauge | when the server last answered |
 *
 * The outcome is `succeeded`, `failed` (final), `retryable` or `cancelled`.
 *
 * @packageDocumentation
 */

import { Gauge, Histogram, register, type Registry } from "prom-client";
import { PermanentError } from "./errors.js";
import type { Middleware } from "./task.js";
import type { Worker } from "./worker/worker.js";

/** Where metrics go. */
export interface MetricsOptions {
  /** Default: prom-client's global registry. */
  readonly registry?: Registry;
  /** Bounds of the histogram, in seconds. Default: 1 ms to 5 minutes. */
  readonly buckets?: readonly number[];
}

const BUCKETS = [0.001, 0.005, 0.02, 0.1, 0.5, 1, 5, 30, 60, 300];

/** Middleware for a worker: measures its handlers. One registry takes one of these. */
export function taskMetrics(options: MetricsOptions = {}): Middleware {
  const duration = new Histogram({
    name: "orbit_worker_task_duration_seconds",
    help: "How long handlers ran",
    labelNames: ["contract", "outcome"],
    buckets: [...(options.buckets ?? BUCKETS)],
    registers: [options.registry ?? register],
  });
  return async (input, context, next) => {
    const begin = performance.now();
    let outcome = "succeeded";
    try {
      return await next(input);
    } catch (error) {
      outcome = error instanceof PermanentError ? "failed" : context.cancelled ? "cancelled" : "retryable";
      throw error;
    } finally {
      duration.observe({ contract: context.contract, outcome }, (performance.now() - begin) / 1000);
    }
  };
}

/** Tells how a worker does, whenever the registry is read. One registry takes one worker. */
export function workerMetrics(worker: Worker, options: Pick<MetricsOptions, "registry"> = {}): void {
  const registers = [options.registry ?? register];
  const gauge = (name: string, help: string, read: () => number | undefined) =>
    new Gauge({
      name,
      help,
      registers,
      collect() {
        const value = read();
        if (value !== undefined) {
          this.set(value);
        }
      },
    });
  gauge("orbit_worker_tasks_held", "Tasks from receipt until their report is answered", () => worker.status().held);
  gauge("orbit_worker_slots", "Most tasks at once", () => worker.status().slots);
  gauge("orbit_worker_connected", "1 while the worker has its server", () =>
    worker.status().state === "connected" ? 1 : 0,
  );
  gauge("orbit_worker_last_contact_timestamp_seconds", "When the server last answered", () => {
    const contact = worker.status().lastContact;
    return contact === undefined ? undefined : contact.getTime() / 1000;
  });
}
