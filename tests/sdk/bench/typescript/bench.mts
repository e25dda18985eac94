/**
 * How many steps one worker does a second: ten no-op steps one after the other, in many executions at once.
 *
 * All executions are started before the worker, so that what is measured is the worker and its server. The CPU time of
 * both is told as well: on a machine with other work it says more than the clock does.
 */

import { readFileSync } from "node:fs";
import { Worker } from "@orbit/sdk";
import { OrbitServer } from "@orbit/sdk/testing";

const executions = Number(process.argv[2] ?? 3_000);
const slots = Number(process.argv[3] ?? 1_000);
const mode = process.argv[4] === "poll" ? "poll" : "stream";
const STEPS = 10;
/** Starts that are under way at once. */
const STARTS = 64;
/** The kernel's unit of CPU time. */
const TICKS_PER_SECOND = 100;

const steps = Array.from({ length: STEPS }, (_, index) => {
  const needs = index === 0 ? "" : `, needs: [s${String(index - 1)}]`;
  return `  - {id: s${String(index)}, task: noop@1${needs}}`;
});
const definition = `name: bench\nversion: 1.0.0\ntasks: {noop@1: {}}\nsteps:\n${steps.join("\n")}\n`;

await using server = await OrbitServer.start({ args: ["--log", "warn"] });
await using client = server.client();
await client.deploy(definition);

let started = 0;
await Promise.all(
  Array.from({ length: STARTS }, async () => {
    while (started < executions) {
      started += 1;
      await client.start("bench", null, { timeoutMs: 60_000 });
    }
  }),
);

let done = 0;
let finish = () => {};
const finished = new Promise<void>((resolve) => (finish = resolve));
const worker = new Worker(client, { slots, mode });
worker.task("noop@1", () => {
  done += 1;
  if (done === executions * STEPS) {
    finish();
  }
});

const before = { time: performance.now(), own: process.cpuUsage(), server: serverCpu() };
const running = worker.run();
await finished;
const seconds = (performance.now() - before.time) / 1000;
const own = process.cpuUsage(before.own);
const total = executions * STEPS;
const ownMicros = (own.user + own.system) / total;
const serverMicros = ((serverCpu() - before.server) * 1e6) / total;
console.log(
  `${(total / seconds).toFixed(0)} steps/s: ${String(total)} steps in ${seconds.toFixed(1)} s, ` +
    `${ownMicros.toFixed(0)} µs CPU a step in the worker, ${serverMicros.toFixed(0)} µs in the server`,
);
worker.stop();
await running;

/** CPU seconds that the server has used. */
function serverCpu(): number {
  const fields = readFileSync(`/proc/${String(server.pid)}/stat`, "utf8").split(") ")[1]?.split(" ") ?? [];
  return (Number(fields[11]) + Number(fields[12])) / TICKS_PER_SECOND;
}
